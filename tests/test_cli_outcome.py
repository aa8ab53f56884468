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
