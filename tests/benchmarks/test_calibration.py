"""Equal models are seldom called better or worse."""

import calibration
import pytest
import records

RUNS = 200


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("kind", calibration.KINDS)
def test_equal_models(kind, seeds):
    for labels, copies in ((1, 1), (5, 1), (60, 1), (150, 3)):
        if kind != "number" or copies == 1:
            found = calibration.count_verdicts(kind, labels=labels, seeds=seeds, copies=copies, runs=RUNS)
            # 5 % are 10 of 200; more than 16 by chance has a probability below 2 %, at most.
            assert found["better"] + found["worse"] <= 0.08 * RUNS
            if kind != "number":
                assert (found["too few labels to say"] == RUNS) == (labels < 30)


def test_number_of_one_model_has_no_verdict():
    found = calibration.count_verdicts("number", labels=100, seeds=1, runs=5)
    assert found == {"no verdict": 5}


def test_models_that_do_not_differ_are_level():
    assert calibration.count_verdicts("equal", labels=50, seeds=1, runs=5) == {"level": 5}


def test_real_differences_are_found():
    assert calibration.count_found("search", labels=300, runs=100) > 60


def test_the_record():
    lines = records.read("calibration")
    false = {
        (line["kind"], line["seeds"], line["copies"], line["methods"]): line["false"]
        for line in lines
        if "false" in line
    }
    assert {kind for kind, *_ in false} == set(calibration.KINDS)
    assert {seeds for _, seeds, *_ in false} == set(calibration.SEEDS)
    assert all({*map(int, each)} == set(calibration.LABELS) for each in false.values())
    assert max(max(each.values()) for each in false.values()) <= 5
    assert all(line["found"] > 50 for line in lines if "found" in line)
