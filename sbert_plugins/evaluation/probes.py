"""The seven transfer tasks of SentEval: what a linear classifier reads from frozen embeddings."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from .embeddings import EmbeddingEvaluator, Embeddings
from .tables import check_tasks, data_path, read_table, whole_number

TRANSFER_TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
FOLDS = 10
INVERSE_REGULARISATION = 0.01

# task -> (training files, test file or None for cross-validation) under <data>/transfer
_SOURCES = {
    **{task: ([f"{task.lower()}.tsv.gz"], None) for task in ("MR", "CR", "SUBJ", "MPQA")},
    "SST2": (["sst2_train.tsv.gz"], "sst2_test.tsv.gz"),
    "TREC": (["trec_train.tsv.gz"], "trec_test.tsv.gz"),
    "MRPC": (["mrpc_train.tsv.gz", "mrpc_val.tsv.gz"], "mrpc_test.tsv.gz"),
}


class Labelled(NamedTuple):
    """Labels, and the sentences of each row: one, or two for a task on pairs."""

    labels: list[int]
    columns: tuple[list[str], ...]


class TransferEvaluator(EmbeddingEvaluator):
    r"""Accuracy x 100 of logistic regression on frozen embeddings: MR, CR, SUBJ, MPQA, SST2, TREC and MRPC.

    One protocol for every encoder:

    1. Features are the embeddings :math:`u` as ``encode`` gives them; for MRPC's pairs :math:`[\,|u - v|,\ u * v\,]`, as in
       SentEval.
    2. They are standardised: each dimension has mean 0 and variance 1 over the training rows.
    3. scikit-learn's ``LogisticRegression`` with L2 regularisation, ``C=0.01`` (lbfgs until it converges; multinomial for
       TREC). ``C`` is one for all encoders and tasks: the best of 0.001 to 1 in cross-validation of all-MiniLM-L6-v2 on 1,500
       rows of CR and TREC and 1,000 of SUBJ, 0.9 points from it on 1,500 of MR; ``C=1`` costs points.
    4. MR, CR, SUBJ and MPQA: mean accuracy over 10 stratified folds, shuffled with seed 1111. SST2 (6,920 training
       sentences, no phrases), TREC (5,452) and MRPC (4,076 with the validation rows): the given test set.

    **These are not SentEval's numbers.** SentEval trains a classifier in torch with Adam, early stopping and a regularisation
    chosen by inner cross-validation, on raw features, and SST2 in the papers has 67,349 training phrases and
    sentences. Compare scores of this class with each other, not with a paper's table.

    Args:
        data_dir: A directory with the folder ``transfer``, by default the one in the environment variable
            ``SBERT_PLUGINS_DATA``: ``mr.tsv.gz``, ``cr.tsv.gz``, ``subj.tsv.gz``, ``mpqa.tsv.gz``, and ``sst2``, ``trec``,
            ``mrpc`` each ``_train`` and ``_test`` (``mrpc_val`` too). Fields: label, sentence (MRPC: label, two sentences).
        tasks: A selection of :data:`TRANSFER_TASKS`.
        batch_size: Sentences an encoder call.
        show_progress_bar: Whether ``encode`` shows its bar.
        name: Prefix of the metric names.
        write_csv: Whether to append to ``<name>_results.csv`` in the evaluator's output path.

    Returns:
        Of a call: accuracy x 100 of each task and their mean, ``avg7`` (``avg`` and the number of tasks), the primary metric.

    Raises:
        ValueError: On an unknown task, a malformed row (file and line), a task with one label only, a label with fewer rows
            than folds, embeddings that are not finite.
        FileNotFoundError: On a missing data directory or task file.
    """

    csv_file = "results.csv"

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        tasks: Sequence[str] = TRANSFER_TASKS,
        batch_size: int = 128,
        show_progress_bar: bool = False,
        name: str = "transfer",
        write_csv: bool = True,
    ) -> None:
        super().__init__(name=name, batch_size=batch_size, show_progress_bar=show_progress_bar, write_csv=write_csv)
        check_tasks(tasks, TRANSFER_TASKS)
        self.primary_metric = self.average_key = f"avg{len(tasks)}"
        self.test_sets = tuple(tasks)
        self.rows = {task: _load(task, data_dir) for task in tasks}
        self.sentences = [
            sentence
            for parts in self.rows.values()
            for part in parts
            if part is not None
            for column in part.columns
            for sentence in column
        ]

    def compute(self, embeddings: Embeddings) -> dict[str, float]:
        """Return accuracy x 100 of each task, and the mean."""
        metrics = {}
        for task, (train, test) in self.rows.items():
            features, labels = _features(embeddings, train), np.array(train.labels)
            if test is None:
                folds = StratifiedKFold(FOLDS, shuffle=True, random_state=1111).split(features, labels)
                scores = [_accuracy(features[fit], labels[fit], features[held], labels[held]) for fit, held in folds]
                metrics[task] = 100 * float(np.mean(scores))
            else:
                metrics[task] = 100 * _accuracy(features, labels, _features(embeddings, test), np.array(test.labels))
        metrics[self.average_key] = sum(metrics.values()) / len(metrics)
        return metrics

    @property
    def description(self) -> str:
        """Heading in the model card."""
        return "Transfer Tasks"

    def get_config_dict(self) -> dict[str, Any]:
        """Return the protocol."""
        return {
            "protocol": "scikit-learn logistic regression on standardised frozen embeddings, not SentEval's classifier",
            "C": INVERSE_REGULARISATION,
            "folds": f"{FOLDS} where the task has no test set",
            "tasks": list(self.rows),
        }


def _load(task: str, data_dir: str | Path | None) -> tuple[Labelled, Labelled | None]:
    train, test = _SOURCES[task]
    rows = _read(task, train, data_dir)
    counts = np.unique(rows.labels, return_counts=True)[1]
    if len(counts) < 2:
        raise ValueError(f"{task} must have rows of two labels or more in {', '.join(train)}, got {len(counts)}.")
    if test is None and counts.min() < FOLDS:
        raise ValueError(f"{task} has {counts.min()} rows of one label, and {FOLDS} folds need as many: give more rows.")
    return rows, None if test is None else _read(task, [test], data_dir)


def _read(task: str, files: Sequence[str], data_dir: str | Path | None) -> Labelled:
    columns = ("label", "sentence1", "sentence2") if task == "MRPC" else ("label", "sentence")
    rows = []
    for file in files:
        for place, (label, *sentences) in read_table(data_path(data_dir, "transfer", file), columns):
            rows.append((whole_number(label, "label", place), *sentences))
    if not rows:
        raise ValueError(f"{', '.join(files)} must have at least one row, got an empty file.")
    labels, *texts = (list(column) for column in zip(*rows, strict=True))
    return Labelled(labels, tuple(texts))


def _features(embeddings: Embeddings, part: Labelled) -> np.ndarray:
    first, *second = (embeddings(column).cpu().numpy().astype(np.float64) for column in part.columns)
    return np.hstack([np.abs(first - second[0]), first * second[0]]) if second else first


def _accuracy(features: np.ndarray, labels: np.ndarray, test_features: np.ndarray, test_labels: np.ndarray) -> float:
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=INVERSE_REGULARISATION, max_iter=2000))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)  # a score of an unfinished fit is no score
        try:
            classifier.fit(features, labels)
        except ConvergenceWarning as error:
            raise ValueError(f"the logistic regression must converge in 2,000 iterations, it did not: {error}") from None
    return float(classifier.score(test_features, test_labels))
