"""Search by the evaluators of sentence-transformers: retrieval, its mix with BM25, and reranking."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import evaluation
from sentence_transformers.util import SimilarityFunction
from torch import Tensor

from sbert_plugins.data.read import decode_lines, read_fields, stem_of
from sbert_plugins.data.search_lists import bm25_scores, mix_scores

from .encoding import EmbeddingEvaluator, Encode, encode_once, label_items


class RetrievalEvaluator(evaluation.InformationRetrievalEvaluator):
    """Rank a corpus by the model's similarity function for each query. Each text has one rank.

    If a text occurs twice in a corpus, rounding decides which copy ranks first, and programs disagree
    (measured: MRR@10 of 0.832 in MTEB and 0.808 in sentence-transformers). This evaluator therefore changes
    sentence-transformers' ``InformationRetrievalEvaluator`` in two points:

    - Documents with the same text are one document. It is relevant if one of them is.
    - A document with the text of the query is skipped, as in the retrieval of duplicates, where the queries
      belong to the corpus. A query without any other answer is left out.

    Similarities are rounded to six decimals, because the seventh depends on the processor. Documents with
    equal similarities rank in the order of their ids. Judgements are yes or no, also for nDCG.

    Args:
        queries: Texts by id.
        corpus: Texts by id.
        relevant_docs: Ids of the relevant documents by query id, or their gains by id, where a gain of 0 is
            not relevant. Queries without any are left out.
        name: Prefix of the metrics' names.
        batch_size: Texts per batch.
        **options: ``show_progress_bar`` and ``write_csv`` of ``InformationRetrievalEvaluator``.

    Returns:
        From a call, ``cosine_ndcg@10`` (the main metric), ``cosine_map@100``, ``cosine_mrr@10`` and the
        accuracies, precisions and recalls of sentence-transformers, from 0 to 1, with the name in front. For
        a model with another similarity function, such as the dot product, it is ``dot_ndcg@10``.

    Attributes:
        similarity: The similarity function of the model of the last call.
        items: nDCG@10, times 100, of each different query in the last call.

    Raises:
        ValueError: If no query has a relevant document, or if an embedding is not finite.

    Example:
        >>> from sbert_plugins import evaluation
        >>> evaluator = evaluation.RetrievalEvaluator(
        ...     {"q": "a cat"}, {"1": "one cat", "2": "two dogs"}, {"q": {"1"}}, name="pets"
        ... )
        >>> evaluator(model)["pets_cosine_mrr@10"]
        1.0
    """

    noun = "queries"
    similarity = "cosine"
    items: np.ndarray | None = None

    def __init__(
        self,
        queries: Mapping[str, str],
        corpus: Mapping[str, str],
        relevant_docs: Mapping[str, Collection[str] | Mapping[str, float]],
        *,
        name: str = "",
        batch_size: int = 128,
        **options: Any,
    ) -> None:
        first_id = {corpus[document]: document for document in sorted(corpus, reverse=True)}  # by text
        relevant = {
            query: {
                first_id[corpus[document]]
                for document in documents
                if not isinstance(documents, Mapping) or documents[document] > 0
            }
            - {first_id.get(queries[query])}
            for query, documents in relevant_docs.items()
        }
        if not any(relevant.values()):
            raise ValueError("No query has a relevant document other than its own text.")
        super().__init__(
            queries=dict(queries),
            corpus={document: corpus[document] for document in sorted(first_id.values())},
            relevant_docs=relevant,
            corpus_chunk_size=max(10**8 // len(relevant), 1),  # 400 MB of cosines at the same time
            name=name,
            batch_size=batch_size,
            **options,
        )
        self.primary_metric = f"{name}_cosine_ndcg@10" if name else "cosine_ndcg@10"
        self._numbers = {text: number for number, text in enumerate({*self.corpus, *self.queries})}

    def compute_all_metrics(
        self, model: SentenceTransformer, *arguments: Any, **keywords: Any
    ) -> dict[str, float]:
        """Return the metrics by similarity function, without the name in front."""
        self.similarity = str(model.similarity_fn_name)
        self.score_functions = {self.similarity: self.compare_other_texts}
        with encode_once(model):
            return super().compute_all_metrics(model, *arguments, **keywords)

    def embed_inputs(
        self, model: SentenceTransformer, sentences: Any, *arguments: Any, **keywords: Any
    ) -> Any:
        """Return the embeddings with the number of the text as an additional last column."""
        vectors: Any = super().embed_inputs(model, sentences, *arguments, **keywords)
        numbers = torch.tensor([[self._numbers[text]] for text in sentences], device=vectors.device)
        return torch.hstack([vectors.float(), numbers.float()])

    def compare_other_texts(self, queries: Tensor, documents: Tensor) -> Tensor:
        """Return similarities, minus infinity for equal texts. The last column is the number of the text."""
        similarity = SimilarityFunction.to_similarity_fn(self.similarity)
        similarities = similarity(queries[:, :-1], documents[:, :-1]).round(decimals=6)
        return similarities.masked_fill(queries[:, -1:] == documents[:, -1], -torch.inf)

    def compute_metrics(self, queries_result_list: list[Any]) -> Any:
        """Return the metrics of sentence-transformers, and keep the nDCG@10 of each query."""
        ranked = (
            [hit["corpus_id"] for hit in sorted(hits, key=lambda hit: (-hit["score"], hit["corpus_id"]))]
            for hits in queries_result_list
        )
        self.items = label_items(self.ndcg_items(ranked), map(str, self.queries))
        return super().compute_metrics(queries_result_list)

    def ndcg_items(self, ranked: Iterable[Sequence[str]]) -> np.ndarray:
        """Return nDCG@10, times 100, of each query for the ids of the documents that it finds, in order."""
        gains = []
        for query, documents in zip(self.queries_ids, ranked, strict=True):
            relevant = self.relevant_docs[query]
            found = [document in relevant for document in documents[:10]]
            best = self.compute_dcg_at_k([1] * len(relevant), 10)
            gains.append(100 * self.compute_dcg_at_k(found, 10) / best)
        return np.array(gains)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the numbers of queries and documents for the model card."""
        return {"queries": len(self.queries), "documents": len(self.corpus), "similarity": self.similarity}


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
        queries, corpus = ([str(text) for text in side] for side in (retrieval.queries, retrieval.corpus))
        self.bm25 = bm25_scores(corpus, queries)
        self.is_same = np.array(queries, dtype=object)[:, None] == np.array(corpus, dtype=object)
        self.config = {"queries": len(queries), "documents": len(corpus), "mix": mix}

    def compute(self, encode: Encode) -> dict[str, float]:
        """Return nDCG@10 of the mix and of BM25."""
        queries = encode(self.retrieval.queries, "query")
        documents = encode(self.retrieval.corpus, "document")
        similarities = SimilarityFunction.to_similarity_fn(self.similarity)(queries, documents).cpu().numpy()
        mixed, bm25 = (
            ndcg_of_scores(self.retrieval, np.where(self.is_same, -np.inf, scores).round(6))
            for scores in (mix_scores(similarities, self.bm25, mix=self.mix), self.bm25)
        )
        self.items = label_items(mixed, map(str, self.retrieval.queries))
        return {"ndcg@10": float(mixed.mean()), "bm25_ndcg@10": float(bm25.mean())}


def ndcg_of_scores(retrieval: RetrievalEvaluator, scores: np.ndarray) -> np.ndarray:
    """Return nDCG@10, times 100, of each query.

    Args:
        retrieval: The queries, the corpus and the judgements.
        scores: (Q, N), of each query for each document. Equal scores rank in the order of the ids.
    """
    best = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    return retrieval.ndcg_items([retrieval.corpus_ids[place] for place in places] for places in best)


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


def own_retrieval(directory: str | Path, **options: Any) -> RetrievalEvaluator:
    """Return the evaluator of a folder with queries, documents and judgements.

    Args:
        directory: Folder with ``queries.tsv`` (id, text), ``corpus.tsv`` (id, text; or id, title, text) and
            ``qrels.tsv`` (query id, document id, gain; a gain of 0 is not relevant; or the four columns of
            TREC). The files are tab-separated, without quoting, and may have a header and end in ``.gz``. Or
            a folder of BEIR: ``queries.jsonl``, ``corpus.jsonl`` and ``qrels/test.tsv``.
        **options: Of ``RetrievalEvaluator``. By default no CSV file is written, and the name is the folder's.

    Raises:
        FileNotFoundError: If the folder or a file does not exist.
        ValueError: For a line with another number of fields, an id that occurs twice, or a judgement that is
            not a number or has an unknown id, and for a ``.jsonl`` line without ``_id`` or ``text``.
    """
    files = []
    for names in (
        ("queries.tsv", "queries.jsonl"),
        ("corpus.tsv", "corpus.jsonl"),
        ("qrels.tsv", "qrels/test.tsv"),
    ):
        paths = [Path(directory) / f"{name}{ending}" for name in names for ending in ("", ".gz")]
        if not (found := [path for path in paths if path.is_file()]):
            raise FileNotFoundError(
                f"{str(directory)!r} is not a folder with {' or '.join(names)}. Labels of search are such a "
                "folder with queries, corpus and qrels."
            )
        files.append(found[0])
    defaults: dict[str, Any] = {"name": stem_of(directory), "write_csv": False}
    return RetrievalEvaluator(*read_collection(*files), **(defaults | options))


def own_reranking(path: str | Path, **options: Any) -> RerankingEvaluator:
    """Return the evaluator of a file of queries with candidates.

    Args:
        path: Lines of query, candidate and label, separated by tabs or, in a ``.csv`` file, by commas. A
            candidate is relevant if its label is larger than 0. ``.gz`` is decompressed.
        **options: Of ``RerankingEvaluator``. By default no CSV file is written, and the name is that of the
            file without its endings.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: For a line with another number of fields, a label that is not a number, or if no query has
            a relevant and an irrelevant candidate.
    """
    samples: dict[str, dict[str, Any]] = {}
    for _, (query, candidate, label) in read_fields(path, 3, number=2):
        sample = samples.setdefault(query, {"query": query, "positive": [], "negative": []})
        sample["positive" if float(label) > 0 else "negative"].append(candidate)
    given: dict[str, Any] = {"name": stem_of(path), "write_csv": False} | options
    evaluator = RerankingEvaluator(list(samples.values()), **given)
    if not evaluator.samples:
        raise ValueError(f"{path}: no query has a relevant and an irrelevant candidate.")
    return evaluator


def read_collection(
    queries_file: Path, corpus_file: Path, judgements_file: Path
) -> tuple[dict[str, str], dict[str, str], dict[str, set[str]]]:
    """Return the texts of queries and documents by id, and the relevant documents by query."""
    queries, corpus = _read_texts(queries_file), _read_texts(corpus_file)
    relevant: dict[str, set[str]] = {}
    for place, (query, *_, document, gain) in read_fields(judgements_file, 3, 4, number=-1):
        if query not in queries or document not in corpus:
            raise ValueError(f"{place}: there is no query {query!r} or no document {document!r}.")
        if float(gain) > 0:
            relevant.setdefault(query, set()).add(document)
    return queries, corpus, relevant


def _read_texts(path: Path) -> dict[str, str]:
    """Return the texts of a file by id. A title stands in front of its text."""
    if ".jsonl" in path.suffixes:
        rows = []
        for number, line in enumerate(decode_lines(path), start=1):
            try:
                row = json.loads(line)
                rows.append([str(row["_id"]), " ".join([row.get("title") or "", row["text"]])])
            except (ValueError, KeyError, TypeError, AttributeError):
                raise ValueError(
                    f"{path}, line {number}: expected a JSON object with _id and text."
                ) from None
    else:
        rows = [fields for _, fields in read_fields(path, 2, 3)]
    texts: dict[str, str] = {}
    for name, *parts in rows:
        if name in texts:
            raise ValueError(f"{path}: the id {name!r} occurs twice.")
        texts[name] = " ".join(parts).strip()
    return texts
