"""The examples run offline, with fewer updates and layers."""

import functools
import re
import runpy
import sys
from pathlib import Path

import pytest
from encoders import project_text

from sbert_plugins import recipes

EXAMPLES = Path(__file__).parent.parent / "examples"
PAPERS = ["ArcCSELoss", "PTBERTLoss", "PaSeRLoss", "DenoSentLoss", "SLTFAILoss"]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run an example with few updates, and return what it prints."""
    monkeypatch.chdir(tmp_path)
    one_layer = functools.partial(recipes.offline_encoder)
    monkeypatch.setattr(recipes, "offline_encoder", lambda **given: one_layer(**given | {"num_layers": 1}))

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
