"""Subclasses of mteb's classes: the data directory's test sets as tasks. Imported by ``mteb.py`` when they are needed.

The tasks' names begin with ``Local`` and their dataset revision is a hash of the files that were read, so that a score can be
taken neither for one of the leaderboard's nor for one of other data.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, DatasetDict
from mteb.abstasks import AbsTask, AbsTaskClassification, AbsTaskRetrieval, AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata, TaskType
from mteb.models import SentenceTransformerEncoderWrapper

from .embeddings import check_finite
from .retrieval import cranfield_retrieval, quora_retrieval
from .sts import concatenated, read_scored_pairs
from .tables import DATA_VARIABLE, read_table, whole_number

_SICK = [f"sts/sick_{split}.tsv" for split in ("train", "trial", "test")]


class CheckedEncoder(SentenceTransformerEncoderWrapper):
    """mteb's view of a model, which refuses embeddings that are not finite: mteb itself would store their score."""

    def encode(self, *arguments: Any, **keywords: Any) -> Any:
        """Encode as mteb does.

        Raises:
            ValueError: With the number of sentences whose embedding is not finite.
        """
        embeddings = super().encode(*arguments, **keywords)
        check_finite(torch.as_tensor(embeddings))
        return embeddings


class _LocalTask(AbsTask):
    """What the three kinds share. :func:`local_task` makes the class of one task, for mteb reads metadata from classes."""

    protocol: tuple[TaskType, str]  # and the main score
    paths: list[Path]

    def _read(self) -> Any:
        raise NotImplementedError

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        """Read the files; mteb calls it before the first evaluation."""
        if not self.data_loaded:
            self.dataset = {"default": self._read()}
            self.data_loaded = True


class LocalSTS(_LocalTask, AbsTaskSTS):
    """Scored sentence pairs: Spearman correlation of cosine and score."""

    protocol = ("STS", "cosine_spearman")

    def _read(self) -> DatasetDict:
        parts = [read_scored_pairs(path, lowest=self.min_score, highest=self.max_score) for path in self.paths]
        first, second, scores = concatenated(parts)
        return DatasetDict(test=Dataset.from_dict({"sentence1": first, "sentence2": second, "score": scores}))


class LocalRelatedness(LocalSTS):
    """SICK: relatedness is graded from 1 to 5."""

    min_score = 1


class LocalRetrieval(_LocalTask, AbsTaskRetrieval):
    """What a retrieval evaluator of this library ranks: texts that occur once, judgements of yes or no."""

    protocol = ("Retrieval", "ndcg_at_10")
    evaluator = staticmethod(cranfield_retrieval)

    def _read(self) -> dict[str, Any]:
        evaluator = self.evaluator(self.paths[0].parents[2])
        split = {
            "corpus": Dataset.from_dict({"id": evaluator.corpus_ids, "text": evaluator.corpus}),
            "queries": Dataset.from_dict({"id": evaluator.queries_ids, "text": evaluator.queries}),
            "relevant_docs": {query: dict.fromkeys(evaluator.relevant_docs[query], 1) for query in evaluator.queries_ids},
            "top_ranked": None,
        }
        return {"test": split}


class LocalQuora(LocalRetrieval):
    """The duplicates of a question among all questions, of which it is one itself."""

    evaluator = staticmethod(partial(quora_retrieval, split="test"))
    ignore_identical_ids = True


class LocalClassification(_LocalTask, AbsTaskClassification):
    """Labelled sentences: mteb's protocol, logistic regression on eight training sentences a label, ten draws."""

    protocol = ("Classification", "accuracy")

    def _read(self) -> DatasetDict:
        splits = {}
        for name, path in zip(("train", "test"), self.paths, strict=True):
            labels, texts = [], []
            for place, (label, text) in read_table(path, ("label", "sentence")):
                labels.append(whole_number(label, "label", place))
                texts.append(text)
            splits[name] = Dataset.from_dict({"label": labels, "text": texts})
        return DatasetDict(splits)


_UNSTATED: dict[str, Any] = dict.fromkeys((
    "reference", "date", "domains", "task_subtypes", "license", "annotations_creators", "dialect", "sample_creation",
    "bibtex_citation",
))  # fmt: skip

# name -> (class, files)
_TASKS: dict[str, tuple[type[_LocalTask], list[str]]] = {
    **{f"LocalSTS{year}": (LocalSTS, [f"sts/sts{year}.tsv"]) for year in range(12, 17)},
    "LocalSTSBenchmark": (LocalSTS, ["sts/stsb_test.tsv"]),
    "LocalSICK-R": (LocalRelatedness, _SICK[-1:]),
    "LocalSICK-R.all": (LocalRelatedness, _SICK),
    "LocalQuoraRetrieval": (
        LocalQuora,
        ["rerank/quora_dup/test_corpus.tsv.gz", "rerank/quora_dup/test_queries.tsv", "rerank/quora_dup/test_qrels.tsv"],
    ),
    "LocalCranfield": (
        LocalRetrieval,
        ["rerank/cranfield/corpus.tsv.gz", "rerank/cranfield/queries.tsv", "rerank/cranfield/qrels.tsv"],
    ),
    **{
        f"Local{name}Classification": (LocalClassification, [f"transfer/{file}_{split}.tsv.gz" for split in ("train", "test")])
        for name, file in {"SST2": "sst2", "SST5": "sst5", "TREC": "trec"}.items()
    },
}


def local_task(name: str, directory: str | Path) -> AbsTask:
    """Return the local task of this name over the files of a data directory.

    Raises:
        FileNotFoundError: If the directory lacks one of the task's files.
        ValueError: For a name that is not one of the local tasks.
    """
    if name not in _TASKS:
        raise ValueError(f"a local task must be one of {', '.join(_TASKS)}, got {name!r}.")
    kind, files = _TASKS[name]
    paths = [Path(directory) / file for file in files]
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} does not exist: {name} reads it. {DATA_VARIABLE} or data_dir must name the directory that holds it."
            )
    task_type, main_score = kind.protocol
    metadata = TaskMetadata(
        name=name,
        dataset={"path": f"local/{Path(files[-1]).name}", "revision": _digest(paths)},
        description=f"{', '.join(files)} of a data directory, scored by mteb's protocol.",
        type=task_type,
        category="t2c" if task_type == "Classification" else "t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score=main_score,
        **_UNSTATED,
    )
    return type(name, (kind,), {"metadata": metadata, "paths": paths})()


def _digest(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return f"files-{digest.hexdigest()[:16]}"
