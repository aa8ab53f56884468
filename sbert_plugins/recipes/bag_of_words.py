"""The bag-of-words loss alone. Settings by STS-B dev; there is no paper with this loss alone."""

from collections.abc import Mapping
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer

from sbert_plugins.recipes.recipe import Recipe, count_tokens


def prepare(
    rows: Dataset, model: SentenceTransformer, given: Mapping[str, Any], **_: Any
) -> tuple[Dataset, dict[str, Any]]:
    """Count the tokens of the text."""
    return rows, count_tokens(rows, model, given)


BAG_OF_WORDS = Recipe(
    name="bag-of-words",
    loss="BagOfWordsLoss",
    arguments={"learning_rate": 5e-5, "per_device_train_batch_size": 64, "max_steps": 60, "eval_steps": 20},
    prepare=prepare,
)
