import numpy as np
import pytest
from recipe_inputs import pairs
from scipy.stats import spearmanr

from sbert_plugins.recipes.scores import Change, _bootstrap_error, compare_scores, measure


@pytest.mark.parametrize(
    ("after", "error", "result", "words"),
    [
        (72.0, 0.5, "better", "better than the start"),
        (69.2, 0.5, "level", "level with the start"),
        (66.0, 0.5, "worse", "worse than the start"),
        (70.4, None, "level", "level with the start"),
        (69.0, None, "worse", "worse than the start"),
    ],
)
def test_a_verdict(after, error, result, words):
    change = Change("own pairs", "spearman", 70.0, after, error, "by bootstrap")
    assert change.result == result
    assert change.sentence.startswith(
        f"own pairs: {words}, spearman 70.00 to {after:.2f} ({after - 70:+.2f}; "
    )
    assert ("standard error 0.50" in change.sentence) == (error is not None)


def test_the_bootstrap_is_paired():
    """What two models have in common is no uncertainty of their difference."""
    generator = np.random.default_rng(0)
    grades = generator.normal(size=400)
    first = grades + generator.normal(size=400)
    assert _bootstrap_error(first, first, grades) == 0
    near, far = first + 0.1 * generator.normal(size=400), grades + generator.normal(size=400)
    assert 0 < _bootstrap_error(first, near, grades) < _bootstrap_error(first, far, grades)
    # Two independent samples: the error of a difference is that of one correlation times the root of two.
    single = 100 * (1 - spearmanr(first, grades).statistic ** 2) / 400**0.5
    assert _bootstrap_error(first, far, grades) == pytest.approx(2**0.5 * single, rel=0.4)


def test_a_model_is_level_with_itself(tiny_encoder):
    evaluators = [pairs("some", 12), pairs("others", 7)]
    measured = measure(tiny_encoder(), evaluators)
    changes = compare_scores(evaluators, measured, measured)
    assert [change.name for change in changes] == ["some", "others"]
    assert [change.result for change in changes] == ["level", "level"]
    assert changes[0].before == pytest.approx(measured.metrics["some"]["some_spearman"])
