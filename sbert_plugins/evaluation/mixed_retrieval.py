"""Search by a mix of vectors and BM25, which most vector databases offer."""

from __future__ import annotations

from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from sbert_plugins.data.search_lists import bm25_scores, mix_scores

from .encoding import EmbeddingEvaluator, Encode, label_items
from .retrieval import RetrievalEvaluator


class MixedRetrievalEvaluator(EmbeddingEvaluator):
    """Rank a corpus by a mix of the model's cosines and BM25 (:func:`data.mix_scores`).

    A search by words and vectors is often better than either. This score shows what a model adds to it.

    Args:
        retrieval: The queries, the corpus and the judgements. Equal texts count as in it.
        mix: Weight of BM25, from 0 to 1.
        **options: ``name`` (by default that of ``retrieval``, and "with BM25"), ``batch_size``,
            ``show_progress_bar`` and ``write_csv`` of ``EmbeddingEvaluator``.

    Returns:
        From a call, ``ndcg@10`` of the mix (the main metric) and ``bm25_ndcg@10`` of BM25 alone, times 100,
        with the name in front.

    Example:
        >>> from sbert_plugins import evaluation
        >>> corpus = {"1": "one cat", "2": "two dogs", "3": "a blue car"}
        >>> search = evaluation.RetrievalEvaluator({"q": "a cat"}, corpus, {"q": {"1"}}, name="pets")
        >>> evaluation.MixedRetrievalEvaluator(search)(model)["pets with BM25_ndcg@10"]
        100.0
    """

    noun = "queries"

    def __init__(self, retrieval: RetrievalEvaluator, *, mix: float = 0.3, **options: Any) -> None:
        super().__init__("ndcg@10", **({"name": f"{retrieval.name} with BM25"} | options))
        self.retrieval, self.mix = retrieval, mix
        corpus, queries = ([str(text) for text in side] for side in (retrieval.corpus, retrieval.queries))
        self.bm25 = bm25_scores(corpus, queries)
        self.config = {"queries": len(retrieval.queries), "documents": len(retrieval.corpus), "mix": mix}

    def encoder(self, model: SentenceTransformer) -> Encode:
        """Return the function that encodes the texts as the retrieval does, with their prompts."""
        self._model = model
        return super().encoder(model)

    def compute(self, encode: Encode) -> dict[str, float]:
        """Return nDCG@10 of the mix and of BM25."""
        queries, documents = (
            self.retrieval.embed_inputs(self._model, texts, encode_fn_name=kind).cpu()
            for texts, kind in ((self.retrieval.queries, "query"), (self.retrieval.corpus, "document"))
        )
        similarities = self._model.similarity(queries[:, :-1], documents[:, :-1]).numpy()
        is_same = (queries[:, -1:] == documents[:, -1]).numpy()
        gains = [
            ndcg_of_scores(self.retrieval, np.where(is_same, -np.inf, scores).round(6))
            for scores in (mix_scores(similarities, self.bm25, mix=self.mix), self.bm25)
        ]
        self.items = label_items(gains[0], map(str, self.retrieval.queries))
        return {"ndcg@10": float(gains[0].mean()), "bm25_ndcg@10": float(gains[1].mean())}


def ndcg_of_scores(retrieval: RetrievalEvaluator, scores: np.ndarray) -> np.ndarray:
    """Return nDCG@10, times 100, of each query.

    Args:
        retrieval: The queries, the corpus and the judgements.
        scores: (Q, N), of each query for each document. Equal scores rank in the order of the ids.
    """
    gains = []
    for query, places in zip(
        retrieval.queries_ids, np.argsort(-scores, axis=1, kind="stable")[:, :10], strict=True
    ):
        relevant = retrieval.relevant_docs[query]
        found = [retrieval.corpus_ids[place] in relevant for place in places]
        ideal = retrieval.compute_dcg_at_k([1] * len(relevant), 10)
        gains.append(100 * retrieval.compute_dcg_at_k(found, 10) / ideal)
    return np.array(gains)
