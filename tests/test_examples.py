"""Each example runs offline, as it stands but for fewer sentences and layers, and saves a model."""

import functools
import re
import runpy
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from sbert_plugins import recipes

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("train_*.py"))
UPDATES = 2


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example, tmp_path, monkeypatch, capsys):
    source = example.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 90
    batch = int(re.search(r"^BATCH_SIZE = (\d+)", source, re.MULTILINE)[1])
    source, changed = re.subn(r"^SENTENCES = \d+", f"SENTENCES = {UPDATES * batch}", source, flags=re.MULTILINE)
    assert changed == 1
    script = tmp_path / example.name
    script.write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recipes, "offline_encoder", functools.partial(recipes.offline_encoder, num_layers=1))
    runpy.run_path(str(script), run_name="__main__")
    before, after = map(float, re.search(r"([\d.]+) before, ([\d.]+) after", capsys.readouterr().out).groups())
    assert after != before  # how much a method gains is for the benchmarks
    (model,) = tmp_path.glob("runs/*/model")
    assert SentenceTransformer(str(model), device="cpu").encode("It is raining.").shape == (384,)
