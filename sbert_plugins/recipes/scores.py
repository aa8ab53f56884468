"""Scores before and after a training, and the verdict: one sentence per score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.evaluation import BaseEvaluator

LEVEL = 0.5  # points: a smaller difference counts as level where there is no standard error


class Change(NamedTuple):
    """A score before and after.

    Attributes:
        name: Name of the evaluator.
        metric: Title of the score.
        before: Score of the start, in points.
        after: Score of the trained model, or its mean over seeds, in points.
        error: Standard error of the difference; None if it is not known.
        basis: What the standard error is computed from.
    """

    name: str
    metric: str
    before: float
    after: float
    error: float | None
    basis: str

    @property
    def title(self) -> str:
        """The heading of the score in tables."""
        return f"{self.name}: {self.metric}"

    @property
    def result(self) -> str:
        """``better``, ``worse`` or ``level`` (within two standard errors, or half a point without one)."""
        difference = self.after - self.before
        if abs(difference) <= (LEVEL if self.error is None else 2 * self.error):
            return "level"
        return "better" if difference > 0 else "worse"

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        compared = {"better": "better than", "worse": "worse than", "level": "level with"}[self.result]
        error = f"less than {LEVEL} is level" if self.error is None else f"standard error {self.error:.2f}"
        return (
            f"{self.name}: {compared} the start, {self.metric} {self.before:.2f} to {self.after:.2f} "
            f"({self.after - self.before:+.2f}; {error}, {self.basis})."
        )


class Measured(NamedTuple):
    """The scores of a model by evaluator and title, and what a standard error is computed from.

    Attributes:
        values: Scores in points, the main one first.
        samples: The main score on bootstrap samples of graded pairs.
        items: The main score of each text with a topic, or of each query, from 0 to 1.
    """

    values: dict[str, dict[str, float]]
    samples: dict[str, np.ndarray]
    items: dict[str, np.ndarray]


def measure(model: SentenceTransformer, evaluators: Sequence[BaseEvaluator]) -> Measured:
    """Score a model; each text is encoded once."""
    from sbert_plugins import evaluation

    values, samples, items = {}, {}, {}
    if evaluators:
        with evaluation.encode_once(model):
            scored = evaluation.score_model(model, evaluators, name="").scores
            for evaluator, (name, scores) in zip(evaluators, scored.items(), strict=True):
                values[name] = dict(scores.values)
                if isinstance(evaluator, evaluation.TopicsEvaluator):
                    purity = f"purity@{evaluator.neighbours}"
                    values[name] = {purity: values[name][purity]} | values[name]
                    items[name] = _purity_of_texts(model, evaluator)
                elif isinstance(evaluator, evaluation.RetrievalEvaluator):
                    items[name] = _ndcg_of_queries(model, evaluator)
                elif scores.main in scores.samples:
                    samples[name] = scores.samples[scores.main]
    return Measured(values, samples, items)


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
        changes.append(Change(name, metric, scores[metric], after.values[name][metric], error, basis))
    return changes


def _purity_of_texts(model: SentenceTransformer, evaluator: Any) -> np.ndarray:
    """Return, for each text, the share of its nearest neighbours with its topic."""
    import numpy as np

    vectors = np.asarray(evaluator.encoder(model)(evaluator.sentences).cpu(), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    copies = np.unique(evaluator.sentences, return_inverse=True)[1]
    topics = np.asarray(evaluator.labels, dtype=object)
    shares = []
    for place, vector in enumerate(vectors):
        cosines = np.where(copies == copies[place], -np.inf, vectors @ vector)
        nearest = np.argpartition(-cosines, evaluator.neighbours - 1)[: evaluator.neighbours]
        shares.append(np.mean(topics[nearest] == topics[place]))
    return np.array(shares)


def _ndcg_of_queries(model: SentenceTransformer, evaluator: Any) -> np.ndarray:
    """Return the nDCG@10 of each query."""
    import numpy as np

    queries = evaluator.embed_inputs(model, evaluator.queries, encode_fn_name="query")
    corpus = evaluator.embed_inputs(model, evaluator.corpus, encode_fn_name="document")
    discounts = 1 / np.log2(np.arange(2, 12))
    scores = []
    for query, vector in zip(evaluator.queries_ids, queries, strict=True):
        cosines = evaluator.score_functions["cosine"](vector[None], corpus)[0]
        nearest = cosines.topk(min(10, len(cosines))).indices.tolist()
        relevant = evaluator.relevant_docs[query]
        gains = [evaluator.corpus_ids[place] in relevant for place in nearest]
        scores.append(np.dot(gains, discounts[: len(gains)]) / discounts[: len(relevant)].sum())
    return np.array(scores)
