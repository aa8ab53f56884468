"""Transfer tasks: the accuracy of a linear classifier on embeddings that are not trained further."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sbert_plugins.data.read import read_fields

from .encoding import EmbeddingEvaluator, Encode, label_items
from .sts import DATA_VARIABLE, average_items, data_directory

# Task: the files of each split. One split means ten folds, three are training, development and test.
_SPLITS = {
    **{task: [[task.lower()]] for task in ("MR", "CR", "SUBJ", "MPQA")},
    "SST2": [["sst2_train"], ["sst2_dev"], ["sst2_test"]],
    "TREC": [["trec_train"], ["trec_test"]],
    "MRPC": [["mrpc_train", "mrpc_val"], ["mrpc_test"]],
}
TRANSFER_TASKS = tuple(_SPLITS)
_STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)  # scikit-learn's C, the inverse of the regularisation
_SEED = 1111  # SentEval's


class TransferEvaluator(EmbeddingEvaluator):
    r"""Accuracy, times 100, of logistic regression on seven transfer tasks of SentEval.

    ArcCSE reports them in Table 2: MR, CR, SUBJ, MPQA, SST2, TREC and MRPC (Conneau and Kiela, 2018,
    https://aclanthology.org/L18-1269/). The features of a sentence are its embedding :math:`u`. Those of
    MRPC's pairs are :math:`[\,|u - v|,\ u * v\,]`.

    MR, CR, SUBJ and MPQA are scored in ten folds, the others on their test sets. The regularisation is chosen
    as in SentEval, on SST2's development set or by cross-validation of the training rows. The scores differ
    from SentEval's in four points:

    - The classifier is scikit-learn's ``LogisticRegression`` with LBFGS. SentEval's is trained by Adam until
      the accuracy on other rows no longer rises.
    - Each feature is standardised to mean 0 and variance 1.
    - The cross-validation that chooses the regularisation has five folds instead of ten. The classifier of
      SST2 is trained on the development set as well, after the choice.
    - SST2 has 6,920 training sentences. SentEval trains on 67,349 phrases and sentences.

    Compare the scores with each other, not with a paper's table.

    Args:
        data_dir: Folder with ``transfer/mr.tsv.gz`` and so on, with lines of label and sentence, for MRPC of
            label, sentence and sentence. Default: ``SBERT_PLUGINS_DATA``.
        tasks: A selection of ``TRANSFER_TASKS``.
        **options: ``name``, ``batch_size``, ``show_progress_bar`` and ``write_csv`` of
            ``EmbeddingEvaluator``.

    Returns:
        From a call, the mean of the tasks, ``avg7`` (for a selection of n tasks ``avg<n>``), and the accuracy
        of each task, with the name in front.

    Raises:
        KeyError: For an unknown task.
        ValueError: For a line with another number of fields, or embeddings that are not finite.
        FileNotFoundError: If the folder or a task's file is missing.

    Example:
        >>> from sbert_plugins import evaluation
        >>> evaluator = evaluation.TransferEvaluator(tasks=["CR"])  # doctest: +SKIP
        >>> accuracy = evaluator(model)["CR"]  # doctest: +SKIP
    """

    noun = "sentences"
    note = "Transfer tasks are scored by scikit-learn's logistic regression, so papers have other numbers."

    def __init__(
        self, data_dir: str | Path | None = None, *, tasks: Sequence[str] = TRANSFER_TASKS, **options: Any
    ) -> None:
        super().__init__(f"avg{len(tasks)}", **options)
        if (directory := data_directory(data_dir)) is None:
            raise FileNotFoundError(f"Set {DATA_VARIABLE} or data_dir to the folder that holds transfer/.")
        self.splits = {
            task: [_read(directory, files, 3 if task == "MRPC" else 2) for files in _SPLITS[task]]
            for task in tasks
        }
        self.config = {"classifier": "logistic regression of standardised embeddings", "tasks": list(tasks)}

    def compute(self, encode: Encode) -> dict[str, float]:
        """Return the mean and the accuracy of each task."""
        items = []
        for splits in self.splits.values():
            features = [_features(encode, texts) for _, *texts in splits]
            correct = _classify(features, [np.array(labels) for labels, *_ in splits])
            items.append(label_items(100.0 * correct, zip(*splits[-1][1:], strict=True)))
        self.items = average_items(items)
        scores = {task: float(values.mean()) for task, values in zip(self.splits, items, strict=True)}
        return {f"avg{len(scores)}": float(self.items.mean()), **scores}


def _read(directory: Path, files: Sequence[str], width: int) -> list[tuple[str, ...]]:
    """Return the columns of some files: labels, and one or two columns of sentences."""
    paths = (directory / "transfer" / f"{file}.tsv.gz" for file in files)
    return list(zip(*(fields for path in paths for _, fields in read_fields(path, width)), strict=True))


def _features(encode: Encode, texts: Sequence[Sequence[str]]) -> np.ndarray:
    first, *second = (encode(column).cpu().numpy() for column in texts)
    return np.hstack([np.abs(first - second[0]), first * second[0]]) if second else first


def _classify(features: list[np.ndarray], labels: list[np.ndarray]) -> np.ndarray:
    """Return whether each row of the last split is classified correctly."""
    rows, wanted, ends = *map(np.concatenate, (features, labels)), np.cumsum([len(split) for split in labels])
    folds: Any = StratifiedKFold(10, shuffle=True, random_state=_SEED).split(rows, wanted)
    inner: Any = StratifiedKFold(5, shuffle=True, random_state=_SEED)
    if len(ends) > 1:
        folds = [(np.arange(ends[-2]), np.arange(ends[-2], ends[-1]))]
    if len(ends) > 2:
        inner = [(np.arange(ends[0]), np.arange(ends[0], ends[1]))]
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    search = GridSearchCV(classifier, {"logisticregression__C": _STRENGTHS}, cv=inner)
    correct = np.empty(len(wanted))
    for train, test in folds:
        correct[test] = search.fit(rows[train], wanted[train]).predict(rows[test]) == wanted[test]
    return correct[-len(labels[-1]) :]
