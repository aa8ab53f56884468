"""The examples run offline, with fewer updates and layers, and the notebook equals its script."""

import functools
import importlib.util
import re
import runpy
import sys
from pathlib import Path

import nbformat
import pytest
from encoders import project_text

from sbert_plugins import recipes

EXAMPLES = Path(__file__).parent.parent / "examples"
PAPERS = ["ArcCSELoss", "PTBERTLoss", "PaSeRLoss", "DenoSentLoss", "SLTFAILoss"]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run an example with few updates of one layer and short sentences, and return what it prints."""
    monkeypatch.chdir(tmp_path)
    small = functools.partial(recipes.offline_encoder, num_layers=1, max_seq_length=16)
    monkeypatch.setattr(recipes, "offline_encoder", lambda **_: small())

    def start(name, *arguments, updates=2):
        written = (EXAMPLES / name).read_text("utf-8")
        source, changed = re.subn(r"^UPDATES = \d+", f"UPDATES = {updates}", written, flags=re.M)
        assert changed == 1
        Path(name).write_text(source, encoding="utf-8")
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(name, run_name="__main__")
        return capsys.readouterr().out

    return start


@pytest.mark.slow
@pytest.mark.parametrize("loss", PAPERS)
def test_train_a_paper(loss, run):
    assert re.search(r"[\d.]+ before, [\d.]+ after", run("train_a_paper.py", loss, updates=1))
    assert Path(f"runs/{loss}/model/modules.json").exists()


@pytest.mark.slow
def test_cluster_before_and_after(run, tmp_path):
    lines = [f"{place % 3}\t{line}" for place, line in enumerate(project_text()[:200])]
    (tmp_path / "topics.tsv").write_text("\n".join(lines), encoding="utf-8")
    printed = run("cluster_before_and_after.py", "topics.tsv", "--offline")
    assert re.search(r"v-measure of the clusters: [\d.]+ before, [\d.]+ after", printed)
    assert "the start, purity@10" in printed


FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"
_spec = importlib.util.spec_from_file_location("make_notebook", FOLDER / "make.py")
make = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make)


def test_it_equals_its_script_and_was_run():
    # Otherwise run ``python docs/notebooks/make.py``.
    kept, made = nbformat.read(make.NOTEBOOK, as_version=4), make.make_notebook()
    assert [cell.source for cell in kept.cells] == [cell.source for cell in made.cells]
    code = [cell for cell in kept.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    assert not re.search(r"/(home|root|tmp|work|usr|opt|mnt)/|Traceback", nbformat.writes(kept))
    assert [path.name for path in FOLDER.glob("*.ipynb")] == [make.NOTEBOOK.name]


@pytest.mark.slow
def test_the_script_of_the_notebook(run, tmp_path, caplog):
    caplog.set_level("INFO", "sbert_plugins")  # as the script does, but until the test ends
    assert "the start, Spearman" in run("adapt_in_ten_minutes.py")
    assert list(tmp_path.glob("runs/*/model/modules.json"))
