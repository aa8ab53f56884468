"""The README says what the result files say, its code runs, and its links lead somewhere."""

import re
import sys
from pathlib import Path

import pytest

from sbert_plugins import evaluation

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

sys.path.insert(0, str(ROOT / "benchmarks"))

import report

REPOSITORY = re.compile(r"https://(?:github\.com/sbert-plugins/sbert-plugins/(?:blob|tree|raw)/main/)([^)#\s]+)")
SITE = re.compile(r"https://sbert-plugins\.github\.io/sbert-plugins/([^)#\s]*)")


def test_tables_are_generated():
    """Otherwise run ``python benchmarks/report.py``."""
    for page in report.PAGES:
        text = page.read_text(encoding="utf-8")
        assert report.filled(text) == text, page


def test_each_table_has_its_place():
    pages = [page.read_text(encoding="utf-8") for page in report.PAGES]
    for name in report.TABLES:
        assert sum(text.count(f"<!-- {name} -->\n") for text in pages) == 1, name
    places = re.findall(r"<!-- /?(.+) -->", "".join(pages))
    assert set(places) == set(report.TABLES)


def test_it_is_short():
    assert len(README.encode()) <= 8_000


@pytest.mark.slow
def test_the_script_runs(tiny_encoder, tmp_path, monkeypatch, capsys):
    """With a tiny encoder in place of BERT, pairs of the package in place of the Hub's, and two updates."""
    import sentence_transformers
    from encoders import project_counts, project_text

    from sbert_plugins import data, recipes

    asked = []

    def load_sts(task, *, hub):
        asked.append((task, hub))
        return recipes.graded_pairs()

    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1].replace("max_steps=60", "max_steps=2")
    assert "max_steps=2" in code
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sentence_transformers, "SentenceTransformer", lambda name: tiny_encoder())
    monkeypatch.setattr(evaluation, "load_sts", load_sts)
    counts = project_counts(tiny_encoder().tokenizer)  # for BERT's vocabulary those that ship
    monkeypatch.setattr(data.TokenFrequencies, "bookcorpus", staticmethod(lambda: counts))
    (tmp_path / "sentences.txt").write_text("\n".join(project_text()[:128]), encoding="utf-8")
    exec(code, {})
    assert asked == [("STS-B dev", True)]
    assert re.search(r"Spearman x 100: -?\d+\.\d\d before, -?\d+\.\d\d after", capsys.readouterr().out)
    assert (tmp_path / "runs" / "script" / "model" / "modules.json").exists()


def test_links_are_absolute():
    """On a package index there is no repository beside the page."""
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) > 20
    assert all(link.startswith("https://") for link in links)


def test_anchors_of_the_site_are_headings():
    """Of links in the README, and in what the program prints."""
    anchors = re.compile(r"sbert-plugins\.github\.io/sbert-plugins/([\w/-]+)\.html#([\w-]+)")
    texts = [README, *(path.read_text(encoding="utf-8") for path in (ROOT / "sbert_plugins").rglob("*.py"))]
    found = {link for text in texts for link in anchors.findall(text)}
    assert found
    for page, anchor in found:
        headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}, (page, anchor)


def test_links_lead_somewhere():
    pages = {page: page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))}
    for page, text in pages.items():
        for path in REPOSITORY.findall(text):
            assert (ROOT / path).exists(), (page, path)
        for path in SITE.findall(text):
            source = (ROOT / "docs" / (path or "index.html")).with_suffix(".md")
            assert source.exists(), (page, path)
    assert len(REPOSITORY.findall(README)) > 5 < len(SITE.findall(README))
