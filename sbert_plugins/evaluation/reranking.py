"""Reranking: order the candidates of each query, by the evaluator of sentence-transformers."""

from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import evaluation
from sentence_transformers.util import SimilarityFunction

from .encoding import encode_once
from .tables import read_fields, stem_of


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
        ValueError: If an embedding is not finite.

    Example:
        >>> from sbert_plugins import evaluation
        >>> sample = {"query": "a cat", "positive": ["a cat"], "negative": ["two dogs", "rain"]}
        >>> evaluator = evaluation.RerankingEvaluator([sample], name="pets")
        >>> evaluator(model)["pets_ndcg@10"]
        100.0
    """

    noun = "queries"
    similarity = "cosine"
    items: np.ndarray | None = None

    def __call__(  # type: ignore[override]
        self, model: SentenceTransformer, *arguments: Any, **keywords: Any
    ) -> dict[str, float]:
        """Return the metrics, with the name in front."""
        self.similarity = str(model.similarity_fn_name)
        self.similarity_fct = SimilarityFunction.to_similarity_fn(self.similarity)
        options: dict[str, Any] = {"at_k": self.at_k, "similarity_fct": self.similarity_fct}
        with encode_once(model):
            metrics = super().__call__(model, *arguments, **keywords)
            each = [
                evaluation.RerankingEvaluator([sample], **options).compute_metrics(model)["ndcg"]
                for sample in self.samples
            ]
        self.items = 100 * np.array(each)
        return {name: 100 * value for name, value in metrics.items()}


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
    given: dict[str, Any] = {"name": stem_of(path), "write_csv": False} | options
    evaluator = RerankingEvaluator(list(samples.values()), **given)
    if not evaluator.samples:
        raise ValueError(f"{path}: no query has a relevant and an irrelevant candidate.")
    return evaluator
