"""Lists for learning to search from documents alone: sentences as queries, and scores that know the words."""

import random
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from datasets import Dataset

from .columns import list_texts
from .crops import count_words, split_sentences


def pseudo_queries(
    documents: Iterable[str],
    *,
    per_document: int = 2,
    limit: int | None = None,
    min_words: int = 5,
    split: Callable[[str], Iterable[str]] = split_sentences,
    seed: int = 42,
) -> tuple[list[str], list[int]]:
    """Draw sentences of documents as queries.

    Args:
        documents: Texts.
        per_document: Sentences per document, at most.
        limit: Number of queries, at most. None takes all.
        min_words: Sentences with fewer words are left out.
        split: Function that splits a document into sentences.
        seed: Seed of the choice. The choice in a document depends on it and on the document's position only.

    Returns:
        The queries in random order, and for each the position of its document.

    Raises:
        ValueError: If no document has a query.

    Example:
        >>> pseudo_queries(["It has rained since morning. Why?", "Nobody in the village sails."])
        (['Nobody in the village sails.', 'It has rained since morning.'], [1, 0])
    """
    found: list[tuple[str, int]] = []
    texts = list_texts(documents)
    for place, document in enumerate(texts):
        sentences = dict.fromkeys(" ".join(sentence.split()) for sentence in split(document))
        long = [sentence for sentence in sentences if count_words(sentence) >= min_words]
        found += [
            (sentence, place)
            for sentence in random.Random(f"{seed} {place}").sample(long, min(per_document, len(long)))
        ]
    if not found:
        raise ValueError(
            f"None of the {len(texts):,} documents has a sentence of {min_words} words. Lower min_words, or "
            "pass a function that splits texts of this language (split=)."
        )
    random.Random(seed).shuffle(found)
    return [text for text, _ in found[:limit]], [place for _, place in found[:limit]]


def bm25_scores(
    documents: Iterable[str],
    queries: Iterable[str],
    *,
    k1: float = 1.2,
    b: float = 0.75,
    stop_words: str | Sequence[str] = "english",
    words: Callable[[str], list[str]] | None = None,
) -> np.ndarray:
    """Return (Q, N), the BM25 scores of documents for queries, by the package ``bm25s``.

    Words are lower-cased, without stemming.

    Args:
        documents: N texts.
        queries: Q texts.
        k1: Saturation of the frequency of a word.
        b: Influence of the length of a document.
        stop_words: A language of ``bm25s`` (``"english"``, ``"german"``, ...), or a list of words; ``[]`` for
            none.
        words: Function that splits a text into words, for languages without spaces between them. It
            replaces the default, and ``stop_words``.

    Raises:
        ValueError: If the documents contain no words.

    Example:
        >>> scores = bm25_scores(["a red car", "a blue car", "two blue cats"], ["blue cats"])
        >>> scores.argmax(axis=1).tolist()
        [2]
    """
    import bm25s  # takes as long as the rest of this package

    def tokens(texts: Iterable[str]) -> list[list[str]]:
        listed = list_texts(texts)
        if words is not None:
            return [words(text) for text in listed]
        return bm25s.tokenize(listed, stopwords=stop_words, return_ids=False, show_progress=False)

    of_documents = tokens(documents)
    if not any(of_documents):
        raise ValueError("BM25 found no words in the documents. Pass a function that splits them (words=).")
    index = bm25s.BM25(k1=k1, b=b)
    index.index(of_documents, show_progress=False)
    rows = []
    for query in tokens(queries):
        known = [word for word in query if word in index.vocab_dict]
        rows.append(index.get_scores(known) if known else np.zeros(len(of_documents)))
    return np.asarray(rows, dtype=np.float32)


def mix_scores(
    cosines: np.ndarray, bm25: np.ndarray, own: Sequence[int] | None = None, *, mix: float = 0.3
) -> np.ndarray:
    r"""Mix the scores of vectors and words: :math:`(1 - m)\, z(\cos) + m\, z(\mathrm{BM25})`.

    :math:`z` is the z-score over the documents, for each query.

    Args:
        cosines: (Q, N)
        bm25: (Q, N)
        own: For each query, the document that it is from, which is taken out: it has minus infinity, and does
            not count for the z-scores. None for real queries.
        mix: :math:`m`, the weight of BM25.

    Returns:
        (Q, N) in float32.

    Example:
        >>> mixed = mix_scores(np.array([[0.9, 0.1, 0.5]]), np.array([[7.0, 2.0, 0.0]]), own=[0], mix=0.5)
        >>> mixed.round(3).tolist()
        [[-inf, 0.0, 0.0]]
    """
    mixed = np.zeros(cosines.shape, np.float32)
    for weight, scores in ((1 - mix, cosines), (mix, bm25)):
        others = np.array(scores, dtype=np.float64)
        if own is not None:
            others[np.arange(len(others)), own] = np.nan
        others -= np.nanmean(others, axis=1, keepdims=True)
        mixed += weight * others / np.maximum(np.nanstd(others, axis=1, keepdims=True), 1e-9)
    return np.where(np.isnan(mixed), -np.inf, mixed)


def search_rows(
    queries: Sequence[str], documents: Sequence[str], scores: np.ndarray, *, size: int = 4
) -> Dataset:
    """Make the rows of :class:`losses.SearchDistillationLoss`: each query with its best documents.

    Args:
        queries: Q texts.
        documents: N texts.
        scores: (Q, N), for instance of :func:`mix_scores`.
        size: Documents per query.

    Returns:
        A dataset with the columns ``query``, ``document_1`` to ``document_<size>``, and ``label``: the row
        and the columns in ``scores`` of these texts.

    Raises:
        ValueError: If there are fewer than ``size`` documents other than the query's own.

    Example:
        >>> rows = search_rows(["rain"], ["It rains.", "It is dry."], np.array([[2.0, 1.0]]), size=1)
        >>> rows[0]
        {'query': 'rain', 'document_1': 'It rains.', 'label': [0, 0]}
    """
    best = np.argsort(-scores, axis=1, kind="stable")[:, :size]
    if best.shape[1] < size or np.isneginf(np.take_along_axis(scores, best, axis=1)).any():
        raise ValueError(f"Lists of {size} documents need more documents, got {len(documents)}.")
    columns = {f"document_{i + 1}": [documents[place] for place in best[:, i]] for i in range(size)}
    return Dataset.from_dict(
        {
            "query": list(queries),
            **columns,
            "label": [[row, *places] for row, places in enumerate(best.tolist())],
        }
    )
