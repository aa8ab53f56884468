"""Counts of the encoder's vocabulary, for the losses that weigh or label tokens by how often they occur."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from sbert_plugins.recipes.settings import Settings

logger = logging.getLogger(__name__)


def frequencies_of(
    sentences: Dataset, model: SentenceTransformer, settings: Settings, given: dict[str, Any]
) -> dict[str, Any]:
    """Find the keyword ``frequencies``: the tokens of the training, where the counts that ship are of another vocabulary."""
    from sbert_plugins import data

    is_needed = given.get("token_weights", 0.0) is not None and "frequencies" not in given
    if not is_needed or data.TokenFrequencies.bookcorpus().fits(model.tokenizer):
        return {}
    logger.warning(
        "The counts of BookCorpus are for the vocabulary of bert-base-uncased: the text of the training is counted instead."
    )
    anchors = (row[sentences.column_names[0]] for row in sentences)
    source = "the sentences of the training"
    return {"frequencies": data.TokenFrequencies.from_corpus(anchors, model.tokenizer, source=source)}
