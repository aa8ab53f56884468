"""PT-BERT as in its paper. Sources of the values: protocols/pt-bert.paper.toml."""

import logging
from collections.abc import Mapping
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer

from sbert_plugins.recipes.encoders import pooling_of
from sbert_plugins.recipes.recipe import Recipe

logger = logging.getLogger(__name__)


def prepare(
    rows: Dataset, model: SentenceTransformer, given: Mapping[str, Any], **_: Any
) -> tuple[Dataset, dict[str, Any]]:
    """Find what the pseudo tokens attend to, and a queue that holds no copies of the sentences of a batch.

    With mean pooling the pseudo tokens attend to all tokens, as in the paper. With one token as the sentence
    vector they attend to that vector: the vector that is trained and the vector that is saved are then alike.
    """
    found: dict[str, Any] = {}
    if not given.get("official"):
        found["attend_to"] = "tokens" if pooling_of(model) == "mean" else "pooled"
    largest = max(1, len(rows) // 2)
    if given.get("queue_size", 256) > largest:
        logger.warning(
            "The queue is longer than half of the text (%d): sentences would become their own negatives.%s",
            *(largest, "" if "queue_size" in given else " So the queue is shortened."),
        )
        found["queue_size"] = largest  # if it is not given
    return rows, found


PT_BERT = Recipe(
    name="pt-bert",
    loss="PTBERTLoss",
    optional=("positive",),
    pooling="mean",  # with [CLS], as in the paper's protocol, the pseudo tokens do nothing
    max_seq_length=64,
    arguments={
        "learning_rate": 3e-5,
        "per_device_train_batch_size": 64,
        "num_train_epochs": 1,
        "eval_steps": 125,
    },
    prepare=prepare,
    paper_updates=15_625,  # computed: one epoch of a million sentences, 64 per update
)
