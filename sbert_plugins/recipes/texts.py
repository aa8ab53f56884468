"""The texts that methods are trained on: what :func:`data.read_sentences` reads, and the seven tasks' sentences by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from sbert_plugins.recipes.protocols import STS_SENTENCES

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer


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


_MANY_UNKNOWN = 0.05  # of the tokens


def what_is_unread(sentences: Dataset, model: SentenceTransformer) -> str:
    """Say how much of the first thousand rows the encoder's tokenizer does not know, where it is much.

    Raises:
        ValueError: If that is all of it.
    """
    tokenizer = getattr(model[0], "tokenizer", None)
    unknown = getattr(tokenizer, "unk_token_id", None)
    if tokenizer is None or unknown is None:
        return ""
    texts = list(map(str, sentences[sentences.column_names[0]][:1000]))
    tokens = [token for row in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"] for token in row]
    share = tokens.count(unknown) / max(1, len(tokens))
    if share == 1:
        raise ValueError(
            f"sentences must be text that the encoder reads, got {tokenizer.unk_token} for each of their tokens: take an "
            "encoder that was pretrained on the language, a multilingual one for instance."
        )
    if share < _MANY_UNKNOWN:
        return ""
    return (
        f"{share:.0%} of the text's tokens are {tokenizer.unk_token} to this encoder, which tells none of them from another: "
        "take one that was pretrained on the language, a multilingual one for instance."
    )


def file_name(path: Path) -> str:
    """Return the name of a file as UTF-8 has it: one of another encoding cannot be written into a card."""
    return os.fsencode(path.name).decode("utf-8", "replace")


def text_name(text: str) -> str:
    """Return what a text is called in records, reports and on model cards."""
    return f"{text} (transductive: the unlabelled sentences of the seven STS tasks)" if text == STS_SENTENCES else text
