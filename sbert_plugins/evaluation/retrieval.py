"""Retrieval: MAP, MRR and nDCG by the evaluator of sentence-transformers, with one rank per text."""

import gzip
import json
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.util import SimilarityFunction
from torch import Tensor

from .encoding import encode_once, label_items
from .tables import read_fields, stem_of

_SCORES = 10**8  # cosines in memory at the same time, 400 MB


class RetrievalEvaluator(InformationRetrievalEvaluator):
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
        relevant_docs: Ids of the relevant documents by query id. Queries without any are left out.
        test_sets: Names of the test sets that the queries come from, if any.
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
        relevant_docs: Mapping[str, Collection[str]],
        *,
        test_sets: tuple[str, ...] = (),
        name: str = "",
        batch_size: int = 128,
        **options: Any,
    ) -> None:
        first_id = {corpus[document]: document for document in sorted(corpus, reverse=True)}  # by text
        relevant = {
            query: {first_id[corpus[document]] for document in documents} - {first_id.get(queries[query])}
            for query, documents in relevant_docs.items()
        }
        if not any(relevant.values()):
            raise ValueError("No query has a relevant document other than its own text.")
        super().__init__(
            queries=dict(queries),
            corpus={document: corpus[document] for document in sorted(first_id.values())},
            relevant_docs=relevant,
            corpus_chunk_size=max(_SCORES // len(relevant), 1),
            score_functions={"cosine": partial(_similarity_of_other_texts, "cosine")},
            name=name,
            batch_size=batch_size,
            **options,
        )
        self.primary_metric = f"{name}_cosine_ndcg@10" if name else "cosine_ndcg@10"
        self.test_sets = test_sets
        self._numbers = {text: number for number, text in enumerate({*self.corpus, *self.queries})}

    def __call__(  # type: ignore[override]
        self, model: SentenceTransformer, *arguments: Any, **keywords: Any
    ) -> dict[str, float]:
        """Return the metrics, with the name in front."""
        before, self.similarity = self.similarity, str(model.similarity_fn_name)
        self.score_functions = {self.similarity: partial(_similarity_of_other_texts, self.similarity)}
        self.score_function_names = [self.similarity]
        self.csv_headers = [header.replace(before, self.similarity) for header in self.csv_headers]
        self.primary_metric = str(self.primary_metric).replace(f"{before}_ndcg", f"{self.similarity}_ndcg")
        with encode_once(model):
            return super().__call__(model, *arguments, **keywords)

    def embed_inputs(
        self, model: SentenceTransformer, sentences: Any, *arguments: Any, **keywords: Any
    ) -> Any:
        """Return the embeddings with the number of the text as an additional last column."""
        vectors: Any = super().embed_inputs(model, sentences, *arguments, **keywords)
        numbers = torch.tensor([[self._numbers[text]] for text in sentences], device=vectors.device)
        return torch.hstack([vectors.float(), numbers.float()])

    def compute_metrics(self, queries_result_list: list[Any]) -> Any:
        """Return the metrics of sentence-transformers, and keep the nDCG@10 of each query."""
        gains = []
        for query, hits in zip(self.queries_ids, queries_result_list, strict=True):
            relevant = self.relevant_docs[query]
            ranked = sorted(hits, key=lambda hit: (-hit["score"], hit["corpus_id"]))
            found = [hit["corpus_id"] in relevant for hit in ranked[:10]]
            best = self.compute_dcg_at_k([1] * len(relevant), 10)
            gains.append(100 * self.compute_dcg_at_k(found, 10) / best)
        self.items = label_items(np.array(gains), map(str, self.queries))
        return super().compute_metrics(queries_result_list)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the numbers of queries and documents for the model card."""
        return {"queries": len(self.queries), "documents": len(self.corpus), "similarity": self.similarity}


def _similarity_of_other_texts(name: str, queries: Tensor, documents: Tensor) -> Tensor:
    """Return similarities, minus infinity for equal texts. The last column is the number of the text."""
    similarity = SimilarityFunction.to_similarity_fn(name)
    similarities = similarity(queries[:, :-1], documents[:, :-1]).round(decimals=6)
    return similarities.masked_fill(queries[:, -1:] == documents[:, -1], -torch.inf)


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
            not a number or has an unknown id.
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


def read_collection(
    queries_file: Path, corpus_file: Path, judgements_file: Path
) -> tuple[dict[str, str], dict[str, str], dict[str, set[str]]]:
    """Return the texts of queries and documents by id, and the relevant documents by query."""
    queries, corpus = _read_texts(queries_file), _read_texts(corpus_file)
    relevant: dict[str, set[str]] = {}
    for place, (query, *_, document, gain) in read_fields(judgements_file, 3, 4):
        if query not in queries or document not in corpus:
            raise ValueError(f"{place}: there is no query {query!r} or no document {document!r}.")
        try:
            is_relevant = float(gain) > 0
        except ValueError:
            raise ValueError(f"{place}: the judgement must be a number such as 1, got {gain!r}.") from None
        if is_relevant:
            relevant.setdefault(query, set()).add(document)
    return queries, corpus, relevant


def _read_texts(path: Path) -> dict[str, str]:
    """Return the texts of a file by id. A title stands in front of its text."""
    texts: dict[str, str] = {}
    is_json = ".jsonl" in path.suffixes
    for place, (name, *parts) in _read_json(path) if is_json else read_fields(path, 2, 3):
        if name in texts:
            raise ValueError(f"{place}: the id {name!r} occurs twice.")
        texts[name] = " ".join(parts).strip()
    return texts


def _read_json(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the place, and id, title and text, of each line of a file of BEIR."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            place = f"{path}, line {number}"
            try:
                row = json.loads(line)
                yield place, [str(row["_id"]), row.get("title") or "", row["text"]]
            except (ValueError, KeyError, TypeError, AttributeError):
                raise ValueError(f"{place}: expected a JSON object with _id and text.") from None
