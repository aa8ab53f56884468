"""Reranking: order the candidates of each query, by the evaluator of sentence-transformers."""

from __future__ import annotations

import logging
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import evaluation
from sentence_transformers.util import SimilarityFunction

from .encoding import encode_once
from .tables import read_fields, stem_of

logger = logging.getLogger(__name__)


class RerankingEvaluator(evaluation.RerankingEvaluator):
    """Rank the candidates of each query by the model's similarity function.

    This is sentence-transformers' evaluator with scores that are multiplied by 100 and a score per query.

    Args:
        samples: One dictionary per query, with its text, ``query``, and two lists of texts, ``positive`` and
            ``negative``. A query without one of the two is left out.
        **options: ``name``, ``at_k``, ``batch_size``, ``show_progress_bar`` and ``write_csv`` of
            sentence-transformers' ``RerankingEvaluator``.

    Returns:
        From a call, ``ndcg@10`` (the main metric), ``map`` and ``mrr@10``, with the name in front.

    Attributes:
        similarity: The similarity function of the model of the last call.
        items: nDCG@10, times 100, of each query in the last call.

    Raises:
        ValueError: If no query has both kinds of candidates, or if an embedding is not finite.

    Example:
        >>> from sbert_plugins import evaluation
        >>> sample = {"query": "a cat", "positive": ["a cat"], "negative": ["two dogs", "rain"]}
        >>> evaluator = evaluation.RerankingEvaluator([sample], name="pets")
        >>> evaluator(model)["pets_ndcg@10"]
        100.0
    """

    description = "Reranking"
    noun = "queries"
    similarity = "cosine"
    items: np.ndarray | None = None

    def __init__(self, samples: list[dict[str, Any]], **options: Any) -> None:
        super().__init__(samples, **options)
        if not self.samples:
            raise ValueError("No query has a relevant and an irrelevant candidate.")
        if without := len(samples) - len(self.samples):
            logger.warning(
                "Left out %s queries without a relevant or without an irrelevant candidate.", without
            )

    def __call__(  # type: ignore[override]
        self, model: SentenceTransformer, *arguments: Any, **keywords: Any
    ) -> dict[str, float]:
        """Return the metrics, with the name in front."""
        self.similarity = str(model.similarity_fn_name)
        self.similarity_fct = SimilarityFunction.to_similarity_fn(self.similarity)
        with encode_once(model):
            metrics = super().__call__(model, *arguments, **keywords)
            gains = []
            for sample in self.samples:
                one = copy(self)
                one.samples = [sample]
                gains.append(100 * one.compute_metrics(model)["ndcg"])
        self.items = np.array(gains)
        return {name: 100 * value for name, value in metrics.items()}

    def get_config_dict(self) -> dict[str, Any]:
        """Return the numbers of queries and candidates for the model card."""
        candidates = sum(len(sample["positive"]) + len(sample["negative"]) for sample in self.samples)
        return {"queries": len(self.samples), "candidates": candidates, "similarity": self.similarity}


def own_reranking(path: str | Path, **options: Any) -> RerankingEvaluator:
    """Return the evaluator of a file of queries with candidates.

    Args:
        path: Lines of query, candidate and label without header, separated by tabs or, in a ``.csv`` file, by
            commas. A candidate is relevant if its label is larger than 0. ``.gz`` is decompressed.
        **options: Of ``RerankingEvaluator``. By default no CSV file is written, and the name is that of the
            file without its endings.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: For a line with another number of fields, a label that is not a number, or if no query has
            a relevant and an irrelevant candidate.
    """
    samples: dict[str, dict[str, Any]] = {}
    for place, (query, candidate, label) in read_fields(path, 3):
        sample = samples.setdefault(query, {"query": query, "positive": [], "negative": []})
        try:
            sample["positive" if float(label) > 0 else "negative"].append(candidate)
        except ValueError:
            raise ValueError(
                f"{place}: the label must be a number, got {label!r}. The file has no header."
            ) from None
    return RerankingEvaluator(
        list(samples.values()), **({"name": stem_of(path), "write_csv": False} | options)
    )
