"""What ``train`` prints when it ends."""

from argparse import Namespace

import pytest

from sbert_plugins.cli.outcome import print_results, print_seeds

BEFORE = {"graded pairs": 61.0, "STS-B dev": 66.84, "another": None, "kept": 70.0}
OPTIONS = Namespace(output="runs/a", offline=False, text="own.txt", model=None)
ADVICE = "Keep the encoder as it was, or try a lower rate, fewer updates or another method."


def shared(after):
    return {"pooling": "mean", "before": BEFORE, "after": after}


@pytest.mark.parametrize(
    "after, lower",
    [
        (
            {"graded pairs": 62.0, "STS-B dev": 65.0, "another": 1.0, "kept": 69.5},
            f"Lower than before: STS-B dev (66.84 to 65.00), kept (70.00 to 69.50). {ADVICE}",
        ),
        ({"graded pairs": 61.0, "STS-B dev": None, "another": 1.0, "kept": 69.51}, None),  # another seed may do as much
    ],
)
def test_what_the_training_took(after, lower, capsys):
    """A reader of one line knows that the encoder was better before."""
    known = {"seconds": 75.8, "evaluation_seconds": 66.4, "steps": 4, "saved_update": 4}
    print_results(shared(after) | known, OPTIONS, None)
    of_one = capsys.readouterr().out
    assert "Updates: 4 in 76 s, 66 of them evaluating. Model: " in of_one
    spread = {name: {"mean": score, "deviation": None, "values": [score]} for name, score in after.items()}
    print_seeds(shared(spread) | {"seeds": [1], "updates": ["4"]}, OPTIONS, None)
    for printed in (of_one, capsys.readouterr().out):
        assert [line for line in printed.splitlines() if line.startswith("Lower")] == ([lower] if lower else [])


@pytest.mark.parametrize(("was", "now", "is_told"), [(16.4, 15.9, True), (16.4, 15.91, False)])
def test_half_a_point_as_it_is_printed(was, now, is_told, capsys):
    """16.4 - 15.9 is a little less than .5 in binary."""
    results = {"pooling": "mean", "before": {"x": was}, "after": {"x": now}, "seconds": None, "steps": 4}
    print_results(results, OPTIONS, None)
    assert ("Lower than before: x" in capsys.readouterr().out) is is_told


def test_of_several_seeds_the_mean_is_compared(capsys):
    after = {"x": {"mean": 70.0, "deviation": 1.0, "values": [69.0, 71.0]}}
    results = {"pooling": "mean", "before": {"x": 70.0}, "after": after, "seeds": [0, 1], "updates": ["4", "4"]}
    print_seeds(results, OPTIONS, None)
    assert "Lower" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("hub", "text", "lines"), [(None, "sts-sentences", "T"), (True, "wikipedia", "H"), (None, "wikipedia", "")]
)
def test_what_the_papers_number_has(hub, text, lines, capsys):
    class Plan(dict):
        printed = "76.57"

        def source(self, setting):
            return f"paper Table 1: {setting}"

    options = Namespace(**vars(OPTIONS) | {"hub": hub, "data_dir": None if hub else "data", "sick": None})
    known = {"seconds": None, "steps": 4}
    print_results({"pooling": "mean", "before": {}, "after": {}} | known, options, Plan(text=text))
    out = capsys.readouterr().out
    assert "Printed is 76.57 (paper Table 1: printed)." in out
    assert ("Transductive: " in out, "4,927 test pairs" in out) == (lines == "T", lines == "H")


def test_what_comes_next_is_said_where_no_own_text_was_read(capsys):
    results = {"pooling": "mean", "before": {}, "after": {}, "seconds": None, "steps": 4}
    for text in (None, "own.txt"):
        print_results(results, Namespace(**vars(OPTIONS) | {"offline": True, "text": text, "method": "simcse"}), None)
        assert ("Next, your own text" in capsys.readouterr().out) is (text is None)
