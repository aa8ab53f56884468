"""Passages: long documents cut into texts that an encoder reads completely."""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from datasets import Dataset

from .crops import split_sentences
from .read import as_dataset

logger = logging.getLogger(__name__)


def split_passages(
    documents: Dataset | Iterable[str],
    tokenizer: Any,
    max_tokens: int,
    *,
    split: Callable[[str], Iterable[str]] = split_sentences,
) -> Dataset:
    """Cut documents into passages of whole sentences.

    An encoder ignores the tokens of a text beyond its maximum length. A passage takes as many sentences as
    fit. A sentence that does not fit alone is cut between two tokens.

    Args:
        documents: A dataset with the column ``document`` (:func:`read_documents`), or a list.
        tokenizer: The encoder's tokenizer (``model.tokenizer``), from transformers.
        max_tokens: Tokens of a passage, with special tokens and, if there is a column ``title``, with the
            title. Usually ``model.max_seq_length``. A title leaves at least half of the tokens to the text.
        split: Function that splits a document into sentences.

    Returns:
        The passages in the column ``document``, in the order of the documents. Other columns are repeated for
        each passage. The numbers of documents and passages are logged.

    Example:
        >>> text = "It rains. Nobody sails today. The boats stay in the harbour."
        >>> passages = split_passages([text], model.tokenizer, max_tokens=10)
        >>> passages["document"][:]
        ['It rains. Nobody sails today.', 'The boats stay in the harbour.']
    """
    rows = as_dataset(documents, "document")
    room = max_tokens - tokenizer.num_special_tokens_to_add()
    passages = []
    for row in rows:
        title = tokenizer(row.get("title") or "", add_special_tokens=False, verbose=False)["input_ids"]
        passages += [
            row | {"document": passage}
            for passage in _cut(split(row["document"]), tokenizer, room - min(len(title), room // 2))
        ]
    logger.info(
        "Cut %s documents into %s passages of at most %s tokens.", len(rows), len(passages), max_tokens
    )
    return Dataset.from_list(passages, features=rows.features)


def _cut(sentences: Iterable[str], tokenizer: Any, room: int) -> Iterator[str]:
    """Yield passages of at most ``room`` tokens."""
    passage, length = "", 0
    for sentence in sentences:
        offsets = tokenizer(sentence, add_special_tokens=False, return_offsets_mapping=True, verbose=False)[
            "offset_mapping"
        ]
        for start in range(0, len(offsets), room):
            piece = offsets[start : start + room]
            if length + len(piece) > room:
                yield passage
                passage, length = "", 0
            text = sentence[piece[0][0] : piece[-1][1]]
            passage, length = f"{passage} {text}".strip(), length + len(piece)
    if passage:
        yield passage
