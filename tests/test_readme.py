"""The README says what the result files say, and its code runs."""

import re
import sys
import textwrap
from pathlib import Path

from sbert_plugins import losses

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

sys.path.insert(0, str(ROOT / "benchmarks"))

import report


def test_tables_are_generated():
    """Otherwise run ``python benchmarks/report.py``."""
    for page in report.PAGES:
        text = page.read_text(encoding="utf-8")
        assert report.filled(text) == text, page
    assert "| average |" in README


def test_the_eight_lines_run(tiny_encoder, tmp_path, monkeypatch):
    """With a tiny encoder in place of BERT and a few sentences in place of the Hub."""
    import datasets
    import sentence_transformers
    from methods import METHODS

    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sentence_transformers, "SentenceTransformer", lambda name: tiny_encoder())
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: METHODS["arccse"][1](16))
    exec(code, {})
    assert (tmp_path / "my-model" / "modules.json").exists()


def test_the_mix_is_built(tiny_encoder):
    code = textwrap.dedent(re.search(r"```python\n( +arccse = .*?)```", README, re.DOTALL)[1])
    names = {"losses": losses, "model": tiny_encoder()}
    exec(code, names)
    assert list(names["loss"].losses) == ["consert", "arccse"]


def test_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)]+)\)", README):
        assert link.startswith("https://") or (ROOT / link.partition("#")[0]).exists(), link
