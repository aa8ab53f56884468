"""Scores before and after a training, and the verdict: one sentence per score."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.evaluation import BaseEvaluator

LEVEL = 0.5  # points: a smaller difference counts as level where there is no standard error


def format_score(score: float) -> str:
    """Return a score with two decimals. A score of at most 1, which is not in points, has four.

    Example:
        >>> format_score(71.3), format_score(0.713)
        ('71.30', '0.7130')
    """
    return f"{score:.{_digits(score)}f}"


def _digits(score: float) -> int:
    return 2 if abs(score) > 1 else 4


class Change(NamedTuple):
    """A score before and after.

    Attributes:
        name: Name of the evaluator.
        metric: Title of the score.
        before: Score of the start: in points, or of an evaluator from elsewhere as it is.
        after: Score of the trained model, or its mean over seeds.
        error: Standard error of the difference; None if it is not known.
        basis: What the standard error is computed from.
        higher_is_better: Whether a higher score is a better one.
    """

    name: str
    metric: str
    before: float
    after: float
    error: float | None
    basis: str
    higher_is_better: bool = True

    @property
    def title(self) -> str:
        """The heading of the score in tables."""
        return f"{self.name}: {self.metric}"

    @property
    def gain(self) -> float:
        """The difference, above 0 if the trained model is better."""
        return self.after - self.before if self.higher_is_better else self.before - self.after

    @property
    def level(self) -> float:
        """The largest difference that counts as level where there is no standard error."""
        return LEVEL if max(abs(self.before), abs(self.after)) > 1 else LEVEL / 100

    @property
    def result(self) -> str:
        """``better``, ``worse`` or ``level`` (within two standard errors, or half a point without one)."""
        if abs(self.gain) <= (self.level if self.error is None else 2 * self.error):
            return "level"
        return "better" if self.gain > 0 else "worse"

    def format_error(self) -> str:
        """Return the standard error with the digits of the score."""
        return f"{self.error:.{_digits(self.after)}f}"

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        compared = {"better": "better than", "worse": "worse than", "level": "level with"}[self.result]
        known = self.error is not None
        error = f"standard error {self.format_error()}" if known else f"up to {self.level:g} is level"
        difference = f"{self.after - self.before:+.{_digits(self.after)}f}"
        return (
            f"{self.name}: {compared} the start, {self.metric} {format_score(self.before)} to "
            f"{format_score(self.after)} ({difference}; {error}, {self.basis})."
        )


class Measured(NamedTuple):
    """The scores of a model by evaluator and title, and what a standard error is computed from.

    Attributes:
        values: Scores by title, the main one first.
        samples: The main score on bootstrap samples of graded pairs.
        items: The main score of each text with a topic, or of each query, from 0 to 1.
        lower_is_better: Names of the evaluators whose main score is better if it is lower.
    """

    values: dict[str, dict[str, float]]
    samples: dict[str, np.ndarray]
    items: dict[str, np.ndarray]
    lower_is_better: Collection[str] = ()


def measure(model: SentenceTransformer, evaluators: Sequence[BaseEvaluator]) -> Measured:
    """Score a model; each text is encoded once."""
    from sbert_plugins import evaluation
    from sbert_plugins.evaluation.topics import text_purities

    values, samples, items, lower_is_better = {}, {}, {}, []
    if evaluators:
        with evaluation.encode_once(model):
            scored = evaluation.score_model(model, evaluators, name="").scores
            for evaluator, (name, scores) in zip(evaluators, scored.items(), strict=True):
                values[name] = dict(scores.values)
                if not evaluator.greater_is_better:
                    lower_is_better.append(name)
                if isinstance(evaluator, evaluation.TopicsEvaluator):
                    purity = f"purity@{evaluator.neighbours}"
                    values[name] = {purity: values[name][purity]} | values[name]
                    items[name] = text_purities(
                        evaluator.encoder(model)(evaluator.sentences),
                        evaluator.labels,
                        evaluator.sentences,
                        neighbours=evaluator.neighbours,
                    )
                elif isinstance(evaluator, evaluation.RetrievalEvaluator):
                    items[name] = _ndcg_of_queries(model, evaluator)
                elif scores.main in scores.samples:
                    samples[name] = scores.samples[scores.main]
    return Measured(values, samples, items, lower_is_better)


def compare_scores(before: Measured, after: Measured) -> list[Change]:
    """Return the change of the main score of each evaluator, with a standard error where there is one."""
    changes = []
    for name, scores in before.values.items():
        metric = next(iter(scores))
        error, basis = None, "without a standard error"
        if name in before.samples:
            error, basis = (
                float((after.samples[name] - before.samples[name]).std()),
                "bootstrap over the pairs",
            )
        elif name in before.items:
            differences = after.items[name] - before.items[name]
            error = 100 * float(differences.std() / math.sqrt(len(differences)))
            basis = "paired over the texts" if metric.startswith("purity") else "paired over the queries"
        is_higher = name not in before.lower_is_better
        values = scores[metric], after.values[name][metric]
        changes.append(Change(name, metric, *values, error, basis, is_higher))
    return changes


def _ndcg_of_queries(model: SentenceTransformer, evaluator: Any) -> np.ndarray:
    """Return the nDCG@10 of each query."""
    import numpy as np

    queries = evaluator.embed_inputs(model, evaluator.queries, encode_fn_name="query")
    corpus = evaluator.embed_inputs(model, evaluator.corpus, encode_fn_name="document")
    discounts = 1 / np.log2(np.arange(2, 12))
    scores = []
    for query, vector in zip(evaluator.queries_ids, queries, strict=True):
        cosines = evaluator.score_functions["cosine"](vector[None], corpus)[0]
        nearest = cosines.argsort(descending=True, stable=True)[:10].tolist()  # the corpus is in order of id
        relevant = evaluator.relevant_docs[query]
        gains = [evaluator.corpus_ids[place] in relevant for place in nearest]
        scores.append(np.dot(gains, discounts[: len(gains)]) / discounts[: len(relevant)].sum())
    return np.array(scores)
