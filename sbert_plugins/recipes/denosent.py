"""DenoSent as in its paper. Sources of the values: protocols/denosent.paper.toml."""

from collections.abc import Mapping
from typing import Any

from datasets import Dataset

from sbert_plugins import data
from sbert_plugins.recipes.recipe import Recipe


def translate_what_is_read(
    sentences: Dataset, arguments: Mapping[str, Any], *, processes: int = 1, **keywords: Any
) -> Dataset:
    """Make the pairs of DenoSent, of no more sentences than the training reads.

    5,000 updates of 64 rows read 320,000 of a million sentences. Translating all of them would take three
    times as long.

    Args:
        sentences: The text.
        arguments: Fields of :class:`training.TrainingArguments`. Without ``max_steps`` all is translated.
        processes: Number of processes of the training.
        **keywords: Keywords of :func:`data.back_translate`.
    """
    per_update = arguments["per_device_train_batch_size"] * arguments.get("gradient_accumulation_steps", 1)
    read = max(arguments.get("max_steps", 0), 0) * per_update * processes or len(sentences)
    return data.back_translate(sentences.select(range(min(read, len(sentences)))), **keywords)


DENOSENT = Recipe(
    name="denosent",
    loss="DenoSentLoss",
    optional=("paraphrase",),
    pooling="mask",
    arguments={
        "learning_rate": 5e-5,
        "per_device_train_batch_size": 64,
        "num_train_epochs": 1,
        "eval_steps": 50,
    },
    paper_updates=5_000,  # of the authors' script
)
