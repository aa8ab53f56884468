"""Records name what they were made with, and their rows what they compute."""

import json

import pytest
import records
import tables

FILES = sorted(path.stem for path in records.RESULTS.glob("*.jsonl"))
# Keywords that follow from the length of a training, from its text, or that the class has no more because
# only one of two values is the paper's.
ALLOWED = {"class", "loss", "warmup_steps", "enqueue_first"}


def test_a_measurement_is_a_line_with_its_origin(write):
    write("speed", {"method": "other"}, {"method": "mine", "seconds": 1})
    records.replace("speed", {"method": "mine", "seconds": 2}, key="method")
    records.append("speed", {"method": "third"})
    other, mine, third = records.read("speed")
    assert (other, third["method"]) == ({"method": "other"}, "third")
    assert mine["seconds"] == 2
    assert mine.keys() == {"method", "seconds", "date", "commit", "versions", "hardware"}
    assert records.read("nothing") == []


def test_changed_files_stop_a_measurement(monkeypatch):
    monkeypatch.setattr(records, "_git", lambda *_: " M sbert_plugins/functional.py")
    with pytest.raises(SystemExit, match="uncommitted"):
        records.require_clean_tree()


@pytest.mark.parametrize("name", FILES)
def test_lines_name_commit_versions_hardware_and_seed(name):
    lines = records.read(name)
    assert lines
    for line in lines:
        assert len(line["commit"]) >= 7
        assert {"torch", "transformers", "sentence-transformers"} <= line["versions"].keys()
        assert line["hardware"]
        assert "seed" in line or "curve" not in line
        assert '"/' not in json.dumps(line), "a path of one machine"


def test_each_row_of_quality_has_a_label_and_the_method_that_was_trained():
    lines = records.read("quality")
    assert all({"label", "method", "scores"} <= line.keys() for line in lines)
    assert all(
        {"loss", "updates", "learning_rate", "batch_size"} <= line.keys() for line in lines if "curve" in line
    )


def test_rows_named_after_a_paper_are_the_papers_form():
    lines = [line for line in records.read("quality") if line["label"] in tables.PAPERS]
    assert lines
    assert [line for line in lines if line["loss"].keys() - ALLOWED] == []
    old_names = {(line["label"], line["method"]) for line in lines if "class" in line["loss"]}
    assert ("DenoSent", "denosent") not in old_names  # its default was a bag of words
    assert ("PaSeR", "paser") not in old_names  # and so was PaSeR's
    assert ("SLT-FAI", "slt-fai") not in old_names  # its gradients were bounded
