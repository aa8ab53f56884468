"""Scores before and after a training, and the verdict: one sentence per score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.evaluation import BaseEvaluator

LEVEL = 0.5  # points: what counts as level where there is no standard error
_SAMPLES = 300  # of a bootstrap


class Change(NamedTuple):
    """A score before and after.

    Attributes:
        name: What is scored.
        metric: Name of the metric.
        before: Score of the start, in points.
        after: Score of the trained model, or the mean over seeds, in points.
        error: Standard error of the difference; None if it is not known.
        basis: How the standard error was computed.
    """

    name: str
    metric: str
    before: float
    after: float
    error: float | None
    basis: str

    @property
    def result(self) -> str:
        """``better``, ``worse`` or ``level``: within two standard errors, or half a point where there is none."""
        difference = self.after - self.before
        if abs(difference) <= (LEVEL if self.error is None else 2 * self.error):
            return "level"
        return "better" if difference > 0 else "worse"

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        compared = {"better": "better than", "worse": "worse than", "level": "level with"}[self.result]
        error = f"standard error {self.error:.2f}, {self.basis}" if self.error is not None else self.basis
        return (
            f"{self.name}: {compared} the start, {self.metric} {self.before:.2f} to {self.after:.2f} "
            f"({self.after - self.before:+.2f}; {error})."
        )


class Measured(NamedTuple):
    """The metrics of a model by evaluator, and numbers per pair, text or query for a standard error."""

    metrics: dict[str, dict[str, float]]
    items: dict[str, np.ndarray]


def measure(model: SentenceTransformer, evaluators: Sequence[BaseEvaluator]) -> Measured:
    """Score a model; each text is encoded once."""
    from sbert_plugins import evaluation

    view = evaluation.EncodeOnce(model)
    metrics, items = {}, {}
    for evaluator in evaluators:
        name = getattr(evaluator, "name", "") or type(evaluator).__name__
        metrics[name] = {key: float(value) for key, value in evaluator(view).items()}
        if isinstance(evaluator, evaluation.PairsEvaluator):
            items[name] = _cosines(view, evaluator.pairs)
    return Measured(metrics, items)


def main_score(evaluator: BaseEvaluator, metrics: dict[str, float]) -> tuple[str, float]:
    """Return the name and the value, in points, of the metric that is shown of an evaluator."""
    key = str(evaluator.primary_metric)
    factor = 100 if type(evaluator).__module__.startswith("sentence_transformers.") else 1
    return key.removeprefix(f"{evaluator.name}_"), factor * metrics[key]


def compare_scores(evaluators: Sequence[BaseEvaluator], before: Measured, after: Measured) -> list[Change]:
    """Return the change of each evaluator's score, with a standard error where items are known."""
    changes = []
    for evaluator in evaluators:
        name = getattr(evaluator, "name", "") or type(evaluator).__name__
        metric, first = main_score(evaluator, before.metrics[name])
        _, last = main_score(evaluator, after.metrics[name])
        error, basis = None, f"level means a difference below {LEVEL} points"
        if name in before.items:
            error = _bootstrap_error(before.items[name], after.items[name], evaluator.pairs.scores)
            basis = "by bootstrap over the pairs"
        changes.append(Change(name, metric, first, last, error, basis))
    return changes


def _cosines(view: Any, pairs: Any) -> np.ndarray:
    from sentence_transformers.util import pairwise_cos_sim

    vectors = [
        view.encode(list(side), convert_to_tensor=True) for side in (pairs.sentences1, pairs.sentences2)
    ]
    return pairwise_cos_sim(*vectors).float().cpu().numpy()


def _bootstrap_error(before: np.ndarray, after: np.ndarray, grades: Sequence[float]) -> float:
    """Return the standard error, in points, of the difference of two Spearman correlations on the same pairs."""
    import numpy as np
    from scipy.stats import rankdata

    generator = np.random.default_rng(0)
    differences = []
    for _ in range(_SAMPLES):
        rows = generator.integers(len(before), size=len(before))
        ranks = rankdata([before[rows], after[rows], np.asarray(grades)[rows]], axis=1)
        correlations = np.corrcoef(ranks)
        differences.append(correlations[1, 2] - correlations[0, 2])
    return 100 * float(np.nanstd(differences))
