"""How the score without labels follows STS-B dev."""

from itertools import groupby

import label_free
import pytest
import records

from sbert_plugins import evaluation


def test_summary_by_hand():
    rising = [[0, 60.0, 1.0], [10, 70.0, 2.0], [20, 80.0, 3.0]]
    late = [[0, 60.0, 1.0], [10, 75.0, 2.5], [20, 72.0, 4.0]]  # the score selects 72
    found = label_free.summarize([rising, late])
    assert (found["trainings"], found["checkpoints"]) == (2, 5)
    assert found["within"] == pytest.approx(0.75)  # the median of 1 and 0.5
    assert found["lost"] == pytest.approx(1.5)


def test_the_docstring_of_the_evaluator_has_the_numbers_of_the_record():
    lines = [line for line in records.read("label_free") if line["set"] in ("chosen on", "validated on")]
    for name, runs in groupby(lines, key=lambda line: line["set"]):
        found = label_free.summarize([line["curve"] for line in runs])
        row = f"{found['checkpoints']} checkpoints, {found['trainings']} runs"
        (line,) = [one for one in evaluation.LabelFreeEvaluator.__doc__.splitlines() if row in one]
        assert line.split()[-2:] == [f"{found['overall']:.2f}", f"{found['within']:.2f}"], name
