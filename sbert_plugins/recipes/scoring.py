"""The scores of a comparison: any evaluators on one pass of encoding, under names that people read."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from copy import copy
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.evaluation import BaseEvaluator


class Scorer:
    """Scores models, all by this one way: the start of a comparison and what each training made of it.

    Args:
        evaluators: Of this package or of sentence-transformers; each under a name of its own.
        batch_size: Sentences an encoder call.

    Attributes:
        mark: What is scored in words, and a hash of it, by which a comparison that goes on knows it.

    Raises:
        ValueError: Without evaluators.
    """

    def __init__(self, evaluators: Sequence[BaseEvaluator], *, batch_size: int = 128) -> None:
        from sbert_plugins.evaluation import JointEvaluator

        if callable(evaluators):
            raise ValueError(f"evaluators must be a list, got one {type(evaluators).__name__}: [evaluator].")
        if not evaluators:
            raise ValueError(
                "evaluators must be at least one, got none: graded pairs (evaluation.own_pairs), topics (own_topics), queries "
                "and the texts that answer them (own_retrieval), or the STS tasks (STSSuiteEvaluator)."
            )
        # Copies: the host's keep what a call finds, and the next mark shall be of what was given.
        self.evaluators = [copy(each) for evaluator in evaluators for each in _unwrapped(evaluator)]
        self.mark = _mark(self.evaluators)
        for evaluator in self.evaluators:
            if hasattr(evaluator, "batch_size"):
                evaluator.batch_size = batch_size
        self._all = JointEvaluator(self.evaluators)

    def __call__(self, model: SentenceTransformer) -> dict[str, float]:
        """Return ``{title: score}``, first the main score of each evaluator.

        Raises:
            ValueError: On a score or an embedding that is not finite.
        """
        metrics = {key: value for key, value in self._all(model).items() if key != "sequential_score"}
        scores: dict[str, float] = {}
        others: dict[str, float] = {}
        for evaluator in self.evaluators:
            for place, (key, title, factor) in enumerate(_shown(evaluator)):
                (others if place else scores)[title] = factor * float(metrics.pop(key))
            if unshown := _unshown(evaluator):
                metrics = {key: value for key, value in metrics.items() if not unshown.fullmatch(key)}
        scores |= others | {key: float(value) for key, value in metrics.items()}
        if bad := [title for title, score in scores.items() if not math.isfinite(score)]:
            raise ValueError(f"scores must be finite, got NaN or infinity for {', '.join(bad)}.")
        return scores

    def main(self, scores: Mapping[str, float]) -> list[str]:
        """Return the titles of the main scores among ``scores``, one for each evaluator, after a call."""
        found = []
        for evaluator in self.evaluators:
            if shown := _shown(evaluator):
                found.append(shown[0][1])
            else:  # the host's may not know it before they are called
                found += [title for title in scores if title == evaluator.primary_metric]
        return found

    def lower(self, scores: Mapping[str, float]) -> list[str]:
        """Return the titles of the scores that are better the lower, as far as evaluators say so."""
        found = {str(evaluator.primary_metric) for evaluator in self.evaluators if not evaluator.greater_is_better}
        found |= {title.replace("alignment", "uniformity") for title in found}
        return [title for title in scores if title in found]

    def undirected(self, scores: Mapping[str, float]) -> list[str]:
        """Return the titles of the scores of which neither more nor less is better."""
        return []

    @property
    def test_sets(self) -> list[str]:
        """Names of the test sets among what is scored: who chooses a method by them has chosen by the test."""
        return list(dict.fromkeys(name for evaluator in self.evaluators for name in getattr(evaluator, "test_sets", ())))

    @property
    def notes(self) -> list[str]:
        """What evaluators say that their scores are not, for the page."""
        return [note for evaluator in self.evaluators if (note := getattr(evaluator, "note", ""))]


def _unwrapped(evaluator: BaseEvaluator) -> list[BaseEvaluator]:
    """Return the evaluators of a sequence of them: its own score is one of theirs."""
    inner = getattr(evaluator, "evaluators", None)
    return [each for one in inner for each in _unwrapped(one)] if isinstance(inner, list) else [evaluator]


def _mark(evaluators: Sequence[BaseEvaluator]) -> dict[str, str]:
    """Name what is scored, and hash it; before any call, for the host's evaluators keep what they find there."""
    digest = hashlib.sha256()
    for evaluator in evaluators:
        digest.update(json.dumps(_content(evaluator), sort_keys=True, default=_plain).encode())
    names = (getattr(evaluator, "name", "") or type(evaluator).__name__ for evaluator in evaluators)
    return {"name": ", ".join(names), "sha256": digest.hexdigest()[:16]}


def _content(evaluator: BaseEvaluator) -> list[Any]:
    content = {key: value for key, value in vars(evaluator).items() if key[0] != "_" and key not in _NO_CONTENT}
    for key in _SIMILARITIES:  # cosine, which most calls find, is left out whether it was given or found
        if content.get(key) in ([], ["cosine"]):
            del content[key]
    return [type(evaluator).__name__, content]


# What evaluators, ours and the host's, keep that decides no number, or is found in a call; everything else is hashed.
_NO_CONTENT = (
    "batch_size", "corpus_chunk_size", "show_progress_bar", "write_csv", "write_predictions", "csv_file", "csv_headers",
    "predictions_file", "primary_metric", "greater_is_better", "score_functions",
)  # fmt: skip
_SIMILARITIES = ("similarity_fn_names", "score_function_names")


# Title and factor; the evaluator's own score is in hundreds.
_LABEL_FREE = {
    "label_free": ("without labels", 1.0),
    "substitution_margin": ("substitution margin", 100.0),
    "half_mrr": ("MRR of half", 100.0),
}


def _plain(value: Any) -> Any:
    if hasattr(value, "primary_metric"):  # an evaluator in another one
        return _content(value)
    if isinstance(value, Enum) and value.value != "cosine":  # which is told from None, and is in records by its type
        return value.value
    if isinstance(value, set | frozenset):
        return sorted(value)
    if hasattr(value, "tolist"):  # of numpy, of torch
        return value.tolist()
    return getattr(value, "__name__", type(value).__name__)  # a function: its address is another in each process


def _shown(evaluator: BaseEvaluator) -> list[tuple[str, str, float]]:
    """Return metric, title and factor of what is shown of an evaluator of ours, its main score first; none of another."""
    from sbert_plugins.evaluation import (
        LabelFreeEvaluator,
        PairsEvaluator,
        RetrievalEvaluator,
        STSSuiteEvaluator,
        TopicsEvaluator,
    )

    name = getattr(evaluator, "name", "")
    before = f"{name}_" if name else ""
    title = f"{name}: " if name else ""
    if isinstance(evaluator, STSSuiteEvaluator):
        average = evaluator.average_key
        tasks = [(f"{before}{task}", f"{title}{task}", 1.0) for task in evaluator.pairs]
        return [(f"{before}{average}", f"{title}average of {len(tasks)} STS tasks", 1.0), *tasks]
    if isinstance(evaluator, PairsEvaluator):
        return [(f"{before}spearman", f"{title}Spearman", 1.0)]
    if isinstance(evaluator, TopicsEvaluator):
        keys = ("v_measure", f"purity@{evaluator.neighbours}")
        return [(f"{before}{key}", f"{title}{key.replace('_', '-')}", 1.0) for key in keys]
    if isinstance(evaluator, LabelFreeEvaluator):
        return [(f"{before}{key}", f"{title}{words}", factor) for key, (words, factor) in _LABEL_FREE.items()]
    if isinstance(evaluator, RetrievalEvaluator):
        words = {f"map@{evaluator.map_at_k[0]}": "MAP", "mrr@10": "MRR@10", "ndcg@10": "nDCG@10"}
        return [(f"{before}cosine_{key}", f"{title}{word}", 100.0) for key, word in words.items()]
    return []


def _unshown(evaluator: BaseEvaluator) -> re.Pattern[str] | None:
    """Return what the metrics look like that the host's retrieval evaluator gives besides."""
    from sbert_plugins.evaluation import RetrievalEvaluator

    if not isinstance(evaluator, RetrievalEvaluator):
        return None
    before = "_".join(filter(None, [evaluator.name, "cosine_"]))
    return re.compile(rf"{re.escape(before)}(accuracy|precision|recall|mrr|ndcg|map)@\d+")
