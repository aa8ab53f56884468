"""Known-item search: a score of search that needs documents only, no queries and no judgements."""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers.util import SimilarityFunction
from torch import Tensor

from sbert_plugins.data.crops import count_words, split_sentences

from .encoding import EmbeddingEvaluator, Encode, label_items

_BLOCK = 512  # queries whose cosines to all documents are in memory at the same time
_FEWEST = 20


class KnownItemEvaluator(EmbeddingEvaluator):
    """MRR@10 and nDCG@10, times 100, of finding the document that a sentence was taken from.

    One sentence of each document is a query. It is removed from its document, and the whole collection is
    ranked by the similarity function of the model. Sentences have the model's prompt for queries, documents
    that for documents. The only right answer is the rest of the document. The score compares models on one
    collection; it is not the quality that judged queries would measure.

    - A document gives a query if it has three different sentences, one of them of five words. Documents
      with fewer are ranked too. Each copy of the sentence is removed from its document.
    - Documents with the same text count once.
    - Similarities are rounded to six decimals. Documents as similar as the right one rank before it, so a
      model with equal vectors scores 0.

    Args:
        documents: Texts, in any order. The choice of a sentence depends on the document's text and ``seed``
            only.
        seed: Seed of the choice.
        limit: Number of documents to draw from a larger collection. None takes all.
        split: Function that splits a document into sentences.
        **options: ``name``, ``batch_size``, ``show_progress_bar`` and ``write_csv`` of
            ``EmbeddingEvaluator``.

    Attributes:
        queries: The sentences.
        documents: The collection without the sentences.
        answers: For each query, the position of its document.

    Returns:
        From a call, ``mrr@10`` (the main metric) and ``ndcg@10``, with the name in front.

    Raises:
        ValueError: If fewer than 20 documents give a query, or embeddings are not finite.

    Example:
        >>> from sbert_plugins import evaluation
        >>> documents = [
        ...     f"Sample {i} was measured in water. It broke after {i} hours of load. Nobody knows why."
        ...     for i in range(20)
        ... ]
        >>> scores = evaluation.KnownItemEvaluator(documents)(model)
    """

    noun = "queries"

    def __init__(
        self,
        documents: Iterable[str],
        *,
        seed: int = 0,
        limit: int | None = 5_000,
        split: Callable[[str], Iterable[str]] = split_sentences,
        **options: Any,
    ) -> None:
        super().__init__("mrr@10", **options)
        self.documents = list(dict.fromkeys(documents))
        if limit is not None and len(self.documents) > limit:
            self.documents = random.Random(seed).sample(self.documents, limit)
        self.queries: list[str] = []
        self.answers: list[int] = []
        for place, document in enumerate(self.documents):
            sentences = list(dict.fromkeys(" ".join(sentence.split()) for sentence in split(document)))
            long = [sentence for sentence in sentences if count_words(sentence) >= 5]
            if len(sentences) >= 3 and long:
                query = random.Random(f"{seed} {document}").choice(long)
                self.queries.append(query)
                self.answers.append(place)
                self.documents[place] = " ".join(sentence for sentence in sentences if sentence != query)
        if len(self.queries) < _FEWEST:
            raise ValueError(
                f"Known-item search needs {_FEWEST} documents of three sentences, got {len(self.queries)} "
                f"among {len(self.documents)}. Pass whole documents, or a function that splits them (split=)."
            )
        self.config = {"queries": len(self.queries), "documents": len(self.documents), "seed": seed}

    def compute(self, encode: Encode) -> dict[str, float]:
        """Return the metrics."""
        queries, documents = encode(self.queries, "query"), encode(self.documents, "document")
        ranks = answer_ranks(queries, documents, self.answers, self.similarity)
        gains = 100 * reciprocal_ranks(ranks)
        self.items = label_items(gains, self.queries)
        return {
            "mrr@10": float(gains.mean()),
            "ndcg@10": 100 * float((1 / np.log2(1 + ranks))[ranks <= 10].sum() / len(ranks)),
        }


def answer_ranks(
    queries: Tensor | np.ndarray,
    documents: Tensor | np.ndarray,
    answers: Sequence[int],
    similarity: str = "cosine",
) -> np.ndarray:
    """Return (Q,), the rank of the right document for each query, from 1.

    Args:
        queries: (Q, D)
        documents: (N, D)
        answers: For each query, the row of its document. Other documents with the same similarity, rounded to
            six decimals, rank before it.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``.
    """
    first, second = (torch.as_tensor(side).float() for side in (queries, documents))
    compare = SimilarityFunction.to_similarity_fn(similarity)
    right = torch.as_tensor(answers, device=first.device)
    ranks = []
    for start in range(0, len(first), _BLOCK):
        rows = slice(start, start + _BLOCK)
        similarities = compare(first[rows], second).round(decimals=6)
        ranks.append((similarities >= similarities.gather(1, right[rows, None])).sum(dim=1))
    return torch.cat(ranks).cpu().numpy()


def reciprocal_ranks(ranks: np.ndarray) -> np.ndarray:
    """Return 1 / rank for ranks up to 10, and 0 for lower ones. Their mean is MRR@10."""
    return np.where(ranks <= 10, 1 / ranks, 0.0)
