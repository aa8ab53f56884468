"""Sentences of a text that are not trained on, to score by without labels."""

from __future__ import annotations

import random
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datasets import Dataset

    from sbert_plugins.evaluation import LabelFreeEvaluator

_HELD_OUT, _COUNTED, _FEWEST = 600, 20_000, 400  # sentences; about as in the study of this score


def hold_out(sentences: Dataset, *, name: str = "") -> tuple[Dataset, LabelFreeEvaluator]:
    """Return the rows that are left to train on, and a score without labels of up to 600 sentences that are not.

    The draw is the same whatever the seed of a training is. A sentence leaves in all of its spellings: other capitals, no full
    stop, and wherever it stands, as a sentence or as the positive of one.

    Args:
        sentences: The column ``anchor`` first, with or without others.
        name: Prefix of the score's names.

    Raises:
        ValueError: For fewer than 400 different sentences, and as :func:`data.label_free_texts` does.
        FileNotFoundError: If NLTK finds no WordNet.
    """
    from sbert_plugins import data, evaluation

    columns = [sentences[column][:] for column in sentences.column_names]
    marks = [[_letters(text) for text in column] for column in columns]
    distinct = list(dict(zip(reversed(marks[0]), reversed(columns[0]), strict=True)).values())[::-1]
    if len(distinct) < _FEWEST:
        raise ValueError(f"{_FEWEST} different ones are needed, of which a quarter is held out, got {len(distinct)}.")
    random.Random(0).shuffle(distinct)
    count = min(_HELD_OUT, len(distinct) // 4)
    texts = data.label_free_texts(distinct[:count], text=distinct[count : count + _COUNTED])
    gone = set(map(_letters, distinct[:count]))
    rows = sentences.select([place for place, row in enumerate(zip(*marks, strict=True)) if gone.isdisjoint(row)])
    return rows, evaluation.LabelFreeEvaluator(texts, name=name, write_csv=False)


def _letters(text: str) -> str:
    """Return what two ways to write a sentence share."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFC", text).casefold()))
