"""The grid of the quality tables: a cell in small, and the methods that only the benchmarks have."""

import json
import sys
from pathlib import Path

import pytest
from encoders import project_text

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import mixes
import quality
import records

from sbert_plugins import recipes


@pytest.fixture
def registered():
    before = dict(recipes.RECIPES)
    mixes.register()
    yield
    for name in set(recipes.RECIPES) - set(before):
        del recipes.RECIPES[name]


def test_mixes_do_not_hide_recipes():
    assert not {recipe.method for recipe in mixes.MIXES} & set(recipes.RECIPES)


@pytest.mark.parametrize("method", ["paser:mlm_head=fresh", "simcse on paser's rows"])
def test_without_wordnet_paser_is_not_called_by_its_name(registered, monkeypatch, method):
    monkeypatch.setattr("nltk.data.path", [])
    with pytest.raises(SystemExit, match=f"^{method} is trained with synonyms, from WordNet"):
        quality.refuse_without_wordnet(["simcse", method])
    quality.refuse_without_wordnet(["simcse", "recommended"])


@pytest.mark.slow
def test_a_grid_goes_on(registered, wordnet, tiny_encoder, tmp_path, monkeypatch, capsys):
    tiny_encoder().save_pretrained(str(tmp_path / "encoder"))
    (tmp_path / "text.txt").write_text("\n".join(project_text()[:40]), encoding="utf-8")
    (tmp_path / "sts").mkdir()
    pairs = [f"x\t{i % 6}\t{line}\t{project_text()[60 + i]}\n" for i, line in enumerate(project_text()[:40])]
    (tmp_path / "sts" / "stsb_dev.tsv").write_text("".join(pairs), encoding="utf-8")
    monkeypatch.setenv("SBERT_PLUGINS_DATA", str(tmp_path))
    monkeypatch.setattr(quality, "RESULTS", tmp_path / "results")
    methods = ["tsdae", "ct", "simcse on paser's rows"]  # the others count words, which the tiny vocabulary has none of
    command = ["quality.py", "--encoder", str(tmp_path / "encoder"), "--text", str(tmp_path / "text.txt"), "--dirty"]
    command += [
        "--steps",
        "1",
        "--batch-size",
        "8",
        "--eval-steps",
        "1",
        "--seeds",
        "1",
        "--dev-only",
        "--no-bf16",
        "--untrained",
        "whitening",
        "--methods",
    ]
    monkeypatch.setattr(sys, "argv", [*command, *methods])
    for _ in range(2):
        with pytest.raises(SystemExit) as end:
            quality.main()
        assert end.value.code == 0, capsys.readouterr().out
    assert capsys.readouterr().out.count("finished before") == len(methods)
    (grid,) = (tmp_path / "results" / "dirty").glob("*_dev")
    shared = json.loads(records.settings_file(grid).read_text())
    assert (shared["steps"], shared["dev_only"]) == (1, True)
    cells = [json.loads(path.read_text()) for path in grid.glob("*_seed0.json")]
    assert {cell["name"] for cell in cells} == {*methods, "whitening"}
    assert all("STS-B dev: Spearman" in cell["scores"] for cell in cells)
    assert all(cell["steps"] == 1 and not cell["neighbours"] for cell in cells if cell["name"] in methods)
