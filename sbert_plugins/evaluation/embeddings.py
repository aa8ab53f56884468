"""Evaluators from embeddings: the part that all of them share, so that each is its sentences and its formula."""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterable, Sequence
from itertools import chain, count
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator
from torch import Tensor

logger = logging.getLogger(__name__)


class Embeddings:
    """Embeddings of distinct sentences, looked up by sentence.

    Args:
        sentences: In any order, with repetitions; each distinct one is encoded once.
        model: What encodes them, in one ``encode`` call.
        batch_size: Sentences an encoder call.
        show_progress_bar: Whether ``encode`` shows its bar.

    Raises:
        ValueError: If an embedding is not finite.
    """

    def __init__(
        self, model: SentenceTransformer, sentences: Iterable[str], *, batch_size: int = 128, show_progress_bar: bool = False
    ) -> None:
        # dict.fromkeys keeps the order of first appearance: the same sentences give the same batches every time.
        self.row = {sentence: i for i, sentence in enumerate(dict.fromkeys(sentences))}
        self.matrix = model.encode(
            list(self.row), batch_size=batch_size, show_progress_bar=show_progress_bar, convert_to_tensor=True
        ).float()
        check_finite(self.matrix)

    def __call__(self, sentences: Sequence[str]) -> Tensor:
        """Return the embeddings of ``sentences`` as the model gives them, (len(sentences), D) in float32."""
        return self.matrix[[self.row[sentence] for sentence in sentences]]

    def cosines(self, sentences1: Sequence[str], sentences2: Sequence[str]) -> Tensor:
        """Return the cosine of each pair, (len(sentences1),)."""
        first, second = (torch.nn.functional.normalize(self(side), dim=1) for side in (sentences1, sentences2))
        return (first * second).sum(dim=1)


class EmbeddingEvaluator(BaseEvaluator):
    """An evaluator that needs no more of a model than the embeddings of its sentences.

    A subclass sets :attr:`sentences`, :attr:`csv_file` and ``primary_metric``, and writes :meth:`compute`. This class encodes,
    logs, appends to the csv file, prefixes the metrics with the name and writes them into the model card.

    Args:
        name: Prefix of the metric names.
        batch_size: Sentences an encoder call.
        show_progress_bar: Whether ``encode`` shows its bar.
        write_csv: Whether to append to ``<name>_<csv_file>`` in the evaluator's output path.
    """

    #: Every sentence that the evaluator reads; repetitions are allowed.
    sentences: Sequence[str]
    csv_file: str
    #: Metrics, without the name in front, that are better the lower, and those of which neither is better.
    lower_is_better: tuple[str, ...] = ()
    no_direction: tuple[str, ...] = ()
    #: Names of the test sets among what it reads. Our trainer warns when one of its metrics chooses the checkpoint.
    test_sets: tuple[str, ...] = ()

    def __init__(
        self, *, name: str = "", batch_size: int = 128, show_progress_bar: bool = False, write_csv: bool = True
    ) -> None:
        super().__init__()
        self.name = name
        self.batch_size = batch_size
        self.show_progress_bar = show_progress_bar
        self.write_csv = write_csv

    @property
    def primary_metric(self) -> str | None:
        """The metric that chooses a checkpoint, as a call returns it; set without the name in front."""
        return None if self._primary_metric is None else self.titles([self._primary_metric])[0]

    @primary_metric.setter
    def primary_metric(self, metric: str | None) -> None:
        self._primary_metric = metric

    def titles(self, metrics: Iterable[str]) -> list[str]:
        """Return metrics with the name in front, as a call returns them."""
        return ["_".join(filter(None, [self.name, metric])) for metric in metrics]

    def compute(self, embeddings: Embeddings) -> dict[str, float]:
        """Return the metrics, without the name in front."""
        raise NotImplementedError

    def __call__(  # type: ignore[override]  # the host's own evaluators take no other kind of model either
        self, model: SentenceTransformer, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Encode the distinct sentences once and return the metrics; see the class."""
        embeddings = Embeddings(model, self.sentences, batch_size=self.batch_size, show_progress_bar=self.show_progress_bar)
        metrics = self.compute(embeddings)
        logger.info("%s: %s", self.description, "  ".join(f"{key} {value:.4g}" for key, value in metrics.items()))
        if output_path is not None and self.write_csv:
            append_csv(
                Path(output_path) / "_".join(filter(None, [self.name, self.csv_file])),
                {"epoch": epoch, "steps": steps, **metrics},
            )
        metrics = {title: float(value) for title, value in zip(self.titles(metrics), metrics.values(), strict=True)}
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics


def check_finite(embeddings: Tensor) -> None:
    """Refuse embeddings with NaN or infinity.

    Raises:
        ValueError: With the number of sentences.
    """
    if not torch.isfinite(embeddings).all():
        bad = int((~torch.isfinite(embeddings)).any(dim=1).sum())
        raise ValueError(
            f"embeddings must be finite, got NaN or infinity for {bad} of {len(embeddings)} sentences: "
            "training has diverged (lower the learning rate) or the model overflows in its dtype."
        )


def append_csv(path: Path, values: dict[str, float]) -> None:
    """Append a row, after a header where the file is new.

    A file with other columns stays as it is, for under its header the numbers would be those of something else: the row goes
    to ``<stem>_2.csv`` beside it, or the first number that has these columns or no file yet. A warning names both when the
    other file is begun.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    others = (path.with_stem(f"{path.stem}_{number}") for number in count(2))
    place = next(file for file in chain([path], others) if _columns(file) in ([], list(values)))
    is_new = not _columns(place)
    if is_new and place != path:
        logger.warning("%s has other columns: rows of %s are written to %s.", path, ", ".join(values), place)
    with place.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(values))
        if is_new:
            writer.writeheader()
        writer.writerow(values)


def _columns(path: Path) -> list[str]:
    """Return the header of a csv file; nothing of one that is empty or not there."""
    if not path.exists():
        return []
    # A spreadsheet may have saved it: with a byte order mark, or in an encoding that must not end a training.
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        return next(csv.reader(file), [])
