"""Retrieval and reranking: MAP, MRR and nDCG on sentence-transformers' evaluator, with one rank for each text."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.util import cos_sim
from torch import Tensor

from .embeddings import check_finite
from .tables import data_path, read_table, whole_number

logger = logging.getLogger(__name__)

SCORES = 10**8  # cosines at once: 400 MB of float32


class RetrievalEvaluator(InformationRetrievalEvaluator):
    """Rank a corpus, or each query's candidates, by cosine: sentence-transformers' evaluator on texts that occur once.

    Where one text has two ids, which of them ranks first is a matter of float noise, and programs differ (measured: MRR@10 of
    0.832 in mteb and 0.808 in sentence-transformers on one corpus). Here

    - documents of one text become one, under the first of their ids, relevant where any of them was;
    - a document with the query's own text is no answer and is left out, as in duplicate retrieval, where the queries are in
      the corpus; a query whose only answers were such documents is left out too;
    - equal scores rank in the order of the ids, whatever the order of the corpus.

    Relevance is yes or no, in nDCG as well (the host's definition): graded judgements count as yes.

    Args:
        queries: Text by id.
        corpus: Text by id.
        relevant_docs: Ids of the documents that answer a query, by query id; queries without any are left out.
        candidates: Ids of the documents to rank, by query id: reranking. MAP is then over all of them. Answers that are no
            candidates are not looked for, nor queries that have no other: a warning counts them, for the scores are then of
            the ranking alone, and not of the search that chose the candidates. None ranks the corpus.
        test_sets: Names of the test sets that the queries are from: choosing a checkpoint by their metrics warns.
        batch_size: Texts an encoder call.
        show_progress_bar: Whether ``encode`` shows its bar.
        name: Prefix of the metric names.
        write_csv: Whether to append to a csv file in the evaluator's output path.

    Returns:
        Of a call: ``cosine_map@k``, ``cosine_mrr@10``, ``cosine_ndcg@10`` (the primary metric), and the host's accuracies,
        precisions and recalls.

    Raises:
        ValueError: On an id that is in none of the mappings, a query that has judgements but no candidates, nothing left to
            rank, or embeddings that are not finite.

    Example:
        >>> from sbert_plugins import evaluation
        >>> evaluator = evaluation.RetrievalEvaluator(
        ...     {"q": "a cat"}, {"1": "one cat", "2": "two dogs"}, {"q": {"1"}}, name="pets"
        ... )
        >>> evaluator(model)["pets_cosine_mrr@10"]
        1.0
    """

    def __init__(
        self,
        queries: Mapping[str, str],
        corpus: Mapping[str, str],
        relevant_docs: Mapping[str, Collection[str]],
        *,
        candidates: Mapping[str, Collection[str]] | None = None,
        test_sets: tuple[str, ...] = (),
        batch_size: int = 128,
        show_progress_bar: bool = False,
        name: str = "",
        write_csv: bool = True,
    ) -> None:
        map_at_k = 100  # the host's
        _check_ids("relevant_docs", relevant_docs, queries, corpus)
        _check_ids("candidates", candidates or {}, queries, corpus)
        first = {corpus[document]: document for document in sorted(corpus, reverse=True)}  # text -> the first of its ids

        def ids(query: str, documents: Collection[str]) -> set[str]:
            return {first[corpus[document]] for document in documents} - {first.get(queries[query])}

        relevant = {query: ids(query, documents) for query, documents in relevant_docs.items()}
        self.candidates: dict[str, set[str]] | None = None
        if candidates is not None:
            if missing := [query for query in relevant if relevant[query] and query not in candidates]:
                raise ValueError(f"candidates must have every query with judgements, {missing[0]!r} is missing.")
            self.candidates = {query: ids(query, documents) for query, documents in candidates.items()}
            relevant = _looked_for(relevant, self.candidates)
            map_at_k = max((len(documents) for documents in self.candidates.values()), default=1)
        if not any(relevant.values()):
            raise ValueError("no query has a relevant document (among its candidates) that is not its own text: got nothing.")
        super().__init__(
            queries=dict(queries),
            corpus={document: corpus[document] for document in sorted(first.values())},
            relevant_docs=relevant,
            corpus_chunk_size=max(SCORES // sum(map(bool, relevant.values())), 1),
            map_at_k=[map_at_k],
            score_functions={"cosine": self._score},
            main_score_function="cosine",
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            name=name,
            write_csv=write_csv,
        )
        self.test_sets = test_sets
        self._start = 0
        place = {document: i for i, document in enumerate(self.corpus_ids)}
        self._ranked = self._places_of_candidates(place)
        texts = [queries[query] for query in self.queries_ids]
        self._own = [(i, place[first[text]]) for i, text in enumerate(texts) if text in first]

    def _places_of_candidates(self, place: Mapping[str, int]) -> list[list[int]] | None:
        if self.candidates is None:
            return None
        return [[place[document] for document in self.candidates[query]] for query in self.queries_ids]

    def _score(self, queries: Tensor, documents: Tensor) -> Tensor:
        """Return cosines, minus infinity for what is not to be ranked, of the next documents of the corpus."""
        start, end = self._start, self._start + len(documents)
        self._start = end  # the host asks chunk after chunk and does not say where it is
        scores = cos_sim(queries, documents)
        if self._ranked is not None:
            kept = torch.full_like(scores, -torch.inf)
            for row, places in enumerate(self._ranked):
                here = [place - start for place in places if start <= place < end]
                kept[row, here] = scores[row, here]
            scores = kept
        if own := [(row, place - start) for row, place in self._own if start <= place < end]:
            scores[tuple(map(list, zip(*own, strict=True)))] = -torch.inf
        return scores

    def embed_inputs(self, model: SentenceTransformer, sentences: Any, *args: Any, **keywords: Any) -> Any:
        """Encode, and refuse embeddings that are not finite."""
        if sentences is self.queries:
            self._start = 0  # a new ranking, also after one that was stopped
            self.score_functions = {"cosine": self._score}  # a copy's are those of what it was copied from
        embeddings: Any = super().embed_inputs(model, sentences, *args, **keywords)  # tensors, which the host calls arrays
        check_finite(embeddings)
        return embeddings

    @property
    def description(self) -> str:
        """Heading in the model card."""
        return "Information Retrieval" if self.candidates is None else "Reranking"

    def get_config_dict(self) -> dict[str, Any]:
        """Return what is ranked."""
        ranked = {} if self._ranked is None else {"candidates": sum(map(len, self._ranked)) / len(self._ranked)}
        return {"queries": len(self.queries), "documents": len(self.corpus), **ranked, "similarity": "cosine"}


def quora_retrieval(
    data_dir: str | Path | None = None, *, split: Literal["dev", "test"] = "dev", **keywords: Any
) -> RetrievalEvaluator:
    """Find the duplicates of a question among all questions: Quora's pairs, as in PaSeR (section 4.4).

    The split by clusters of duplicates is this project's own data set (its README), thus not the paper's numbers.

    Args:
        data_dir: A directory with the folder ``rerank/quora_dup``, by default the one in ``SBERT_PLUGINS_DATA``.
        split: ``"dev"`` (1,000 queries, 7,313 questions) or ``"test"`` (5,000 and 30,385).
        **keywords: Of :class:`RetrievalEvaluator`.
    """
    queries, corpus, relevant = _quora(data_dir, split)
    keywords = {"name": f"quora_{split}", "test_sets": _tests("Quora", split)} | keywords
    return RetrievalEvaluator(queries, corpus, relevant, **keywords)


def quora_reranking(
    data_dir: str | Path | None = None, *, split: Literal["dev", "test"] = "dev", size: int = 20, **keywords: Any
) -> RetrievalEvaluator:
    """Tell a question's duplicates from the questions that share most of its words.

    The candidates of a query are its duplicates and, up to ``size`` in all, the questions of the corpus with the highest
    TF-IDF cosine (scikit-learn's defaults), equal ones in the order of the ids. So is the AskUbuntu set of PaSeR made (20
    questions found by a search over words), whose text is not freely at hand.

    Args:
        data_dir: As in :func:`quora_retrieval`.
        split: As in :func:`quora_retrieval`.
        size: Candidates a query; AskUbuntu's 20.
        **keywords: Of :class:`RetrievalEvaluator`.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    queries, corpus, relevant = _quora(data_dir, split)
    ids = np.array(sorted(corpus))
    vectorizer = TfidfVectorizer()
    documents = vectorizer.fit_transform(corpus[document] for document in ids)
    asked = list(relevant)
    candidates = {}
    for start in range(0, len(asked), 500):
        chunk = asked[start : start + 500]
        scores = (vectorizer.transform(queries[query] for query in chunk) @ documents.T).toarray()
        for query, row in zip(chunk, scores, strict=True):
            answers = set(relevant[query])
            nearest = ids[np.argsort(-row, kind="stable")[: size + len(answers) + 1]]
            others = [document for document in nearest if document not in answers and corpus[document] != queries[query]]
            candidates[query] = [*answers, *others[: max(size - len(answers), 0)]]
    keywords = {"name": f"quora_rerank_{split}", "test_sets": _tests("Quora", split)} | keywords
    return RetrievalEvaluator(queries, corpus, relevant, candidates=candidates, **keywords)


def cranfield_retrieval(data_dir: str | Path | None = None, **keywords: Any) -> RetrievalEvaluator:
    """Find the aeronautics abstracts that answer a question: Cranfield, 225 queries on 1,400 titles with abstracts.

    Args:
        data_dir: A directory with the folder ``rerank/cranfield``, by default the one in ``SBERT_PLUGINS_DATA``.
        **keywords: Of :class:`RetrievalEvaluator`.
    """
    corpus = read_texts(data_path(data_dir, "rerank", "cranfield", "corpus.tsv.gz"), has_titles=True)
    queries = read_texts(data_path(data_dir, "rerank", "cranfield", "queries.tsv"))
    relevant = read_judgements(data_path(data_dir, "rerank", "cranfield", "qrels.tsv"), queries, corpus)
    return RetrievalEvaluator(queries, corpus, relevant, **{"name": "cranfield", "test_sets": ("Cranfield",)} | keywords)


def _quora(data_dir: str | Path | None, split: str) -> tuple[dict[str, str], dict[str, str], dict[str, set[str]]]:
    if split not in ("dev", "test"):
        raise ValueError(f"split must be 'dev' or 'test', got {split!r}.")
    corpus = read_texts(data_path(data_dir, "rerank", "quora_dup", f"{split}_corpus.tsv.gz"))
    queries = read_texts(data_path(data_dir, "rerank", "quora_dup", f"{split}_queries.tsv"))
    return queries, corpus, read_judgements(data_path(data_dir, "rerank", "quora_dup", f"{split}_qrels.tsv"), queries, corpus)


def _tests(name: str, split: str) -> tuple[str, ...]:
    return (name,) if split == "test" else ()


def read_texts(path: Path, *, has_titles: bool = False) -> dict[str, str]:
    """Read the texts of a file of id and text, or id, title and text, by their ids.

    Raises:
        ValueError: With file and line, for a row of another form, or an id that stands twice.
    """
    texts: dict[str, str] = {}
    for place, (name, *parts) in read_table(path, ("id", "title", "text") if has_titles else ("id", "text")):
        if name in texts:
            raise ValueError(f"{place}: an id must stand once, got {name!r} again: give each text an id of its own.")
        texts[name] = " ".join(parts).strip() if has_titles else parts[0]
    return texts


def read_judgements(path: Path, queries: Collection[str], corpus: Collection[str]) -> dict[str, set[str]]:
    """Read which texts answer a query: rows of query id, document id and gain."""
    relevant: dict[str, set[str]] = {}
    for place, (query, document, gain) in read_table(path, ("query id", "document id", "gain")):
        if query not in queries or document not in corpus:
            raise ValueError(f"{place}: no query {query!r} or no document {document!r} in the files beside it.")
        if whole_number(gain, "gain", place) > 0:
            relevant.setdefault(query, set()).add(document)
    return relevant


def _looked_for(relevant: Mapping[str, set[str]], candidates: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the answers that are candidates, and tell of the others."""
    found = {query: documents & candidates.get(query, set()) for query, documents in relevant.items()}
    missed = sum(map(len, relevant.values())) - sum(map(len, found.values()))
    if missed:
        left_out = sum(bool(documents) and not found[query] for query, documents in relevant.items())
        logger.warning(
            "%s of %s answers are no candidates and not looked for; %s of %s queries have no other and are left out.",
            f"{missed:,}",
            f"{sum(map(len, relevant.values())):,}",
            f"{left_out:,}",
            f"{sum(map(bool, relevant.values())):,}",
        )
    return found


def _check_ids(
    argument: str, mapping: Mapping[str, Collection[str]], queries: Collection[str], corpus: Collection[str]
) -> None:
    if len(kinds := {type(each).__name__ for each in corpus}) > 1:
        raise ValueError(f"ids of the corpus must be of one type, got {' and '.join(sorted(kinds))}: str(id) makes them so.")
    for query, documents in mapping.items():
        if query not in queries:
            raise ValueError(f"{argument} names the query {query!r}, which is not in queries.")
        if isinstance(documents, str) or not isinstance(documents, Collection):
            raise ValueError(f"{argument}[{query!r}] must be a set or a list of ids, got {documents!r}: put it in a set.")
        if unknown := [document for document in documents if document not in corpus]:
            raise ValueError(f"{argument}[{query!r}] names the document {unknown[0]!r}, which is not in corpus.")
