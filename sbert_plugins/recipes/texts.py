"""The texts that methods are trained on: what :func:`data.read_sentences` reads, and the seven tasks' sentences by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sbert_plugins.recipes.protocols import STS_SENTENCES

if TYPE_CHECKING:
    from datasets import Dataset


def read_text(
    text: str | Path,
    *,
    column: str | None = None,
    limit: int | None = None,
    data_dir: str | Path | None = None,
    hub: bool = False,
) -> Dataset:
    """Read sentences as :func:`data.read_sentences`; ``sts-sentences`` are those of the seven STS tasks.

    A training on these is transductive: it has seen the sentences of the test sets, though no score of theirs. Several papers
    train so; their numbers are not to be compared with those of other trainings.

    Args:
        text: A file, a dataset on the Hub, or :data:`STS_SENTENCES`.
        column: As in :func:`data.read_sentences`; of no use to ``sts-sentences``.
        limit: Keep the first ``limit`` sentences.
        data_dir: Of the STS tasks, by default the one in ``SBERT_PLUGINS_DATA``; without either they are from the Hub.
        hub: Take the tasks from the Hub in any case.

    Raises:
        ValueError: As :func:`data.read_sentences`, and for a column of ``sts-sentences``.
        FileNotFoundError: Likewise, and if the data directory lacks a task.
        ConnectionError: If neither a data directory nor the Hub has the tasks.
    """
    from datasets import Dataset

    from sbert_plugins import data, evaluation

    if str(text) != STS_SENTENCES or Path(text).exists():
        return data.read_sentences(text, column=column, limit=limit)
    if column is not None:
        raise ValueError(f"column must be left out where the text has no columns, got {column!r} with {text}.")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}.")
    return Dataset.from_dict({"anchor": evaluation.sts_sentences(data_dir, hub=hub)[:limit]})


def text_name(text: str) -> str:
    """Return what a text is called in records, reports and on model cards."""
    return f"{text} (transductive: the unlabelled sentences of the seven STS tasks)" if text == STS_SENTENCES else text
