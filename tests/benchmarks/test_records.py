"""What the tables read: cells, none of a tree that nobody has."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import records

GRID = {"encoder": "minilm-mlm", "text": "short", "steps": 60, "dev_only": False}


@pytest.fixture
def write(tmp_path):
    folder = tmp_path / "quality" / "bge-v1.5_60_0a"
    folder.mkdir(parents=True)
    records.settings_file(folder).write_text(json.dumps(GRID))

    def write(name, **changes):
        scores = {"STS-B dev: Spearman": 80.0, "average of 7 STS tasks": 71.0, "STS12": 60.0}
        record = {"name": "simcse", "seed": 3, "scores": scores, "commit": "abc", "uncommitted_changes": False}
        (folder / name).write_text(json.dumps(record | changes))
        return records.read_grids(tmp_path).get("bge-v1.5_60_0a", [])

    return write


def test_a_cell(write):
    (cell,) = write("simcse_seed3.json")
    assert (cell["method"], cell["seed"], cell["dev"], cell["commit"]) == ("simcse", 3, 80.0, "abc")
    assert cell["scores"] == {"avg7": 71.0, "STS12": 60.0}
    assert cell["settings"] == GRID


def test_the_start_is_a_row(write):
    (cell,) = write("start.json")
    assert (cell["method"], cell["seed"], cell["dev"]) == ("raw", 0, 80.0)


@pytest.mark.parametrize("dev", [None, {"name": "STS-B dev", "sha256": "0a"}])
def test_what_chose_is_no_score(write, dev):
    (cell,) = write("simcse_seed3.json", method="simcse", dev=dev)
    assert (cell["method"], cell["dev"]) == ("simcse", 80.0)


def test_what_failed_is_no_cell(write):
    assert write("simcse_seed3.json", failed="it diverged") == []


def test_a_tree_with_changes(write):
    with pytest.raises(ValueError, match=r"simcse_seed3\.json was made on a tree with uncommitted changes"):
        write("simcse_seed3.json", uncommitted_changes=True)


def test_rows_that_were_made_in_two_ways(write):
    write("simcse_seed0.json", prepared={"synonyms": 0.5})
    with pytest.raises(ValueError, match="seeds of simcse in bge-v1.5_60_0a were trained on rows that were made in two ways"):
        write("simcse_seed1.json", prepared={"synonyms": None})


def test_a_missing_score(write):
    with pytest.raises(ValueError, match="misses scores that the tables show, has dev: make it again"):
        write("simcse_seed3.json", scores={"STS-B dev: Spearman": 80.0})


def test_no_record_names_a_place_on_a_machine():
    """Of the grid: what an attack answers may have one."""
    folder = Path(records.__file__).parent / "results" / "quality"
    texts = {path: path.read_text(encoding="utf-8") for path in folder.rglob("*.json")}
    assert len(texts) > 100
    assert [path for path, text in texts.items() if '"/' in text] == []
