"""SimCSE, the baseline that the other methods are compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbert_plugins.recipes.recipe import Prepared, Recipe, Request

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import nn


def simcse_loss(model: SentenceTransformer, *, temperature: float = 0.05, pairs: bool = False) -> nn.Module:
    """Build sentence-transformers' ranking loss on a sentence and itself in another dropout view.

    Args:
        model: The encoder.
        temperature: Temperature of the cosines, above 0.
        pairs: Whether the second column holds positives, which take the place of the second view.
    """
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    from sbert_plugins import losses

    ranking = MultipleNegativesRankingLoss(model, scale=1 / temperature)
    return losses.WeightedSumLoss(model, {"simcse": (ranking, 1.0, [0, 1] if pairs else [0, 0])})


def prepare(rows: Dataset, model: SentenceTransformer, request: Request) -> Prepared:
    """Use positives where the text has them."""
    return Prepared(rows, {"pairs": len(rows.column_names) == 2})


SIMCSE = Recipe(
    name="simcse",
    title="SimCSE",
    paper="Gao et al., EMNLP 2021",
    url="https://aclanthology.org/2021.emnlp-main.552",
    summary="contrastive loss on two dropout views of a sentence: the usual baseline",
    loss=simcse_loss,
    optional=("positive",),
    pooling="cls",
    arguments={
        "learning_rate": 3e-5,
        "per_device_train_batch_size": 64,
        "num_train_epochs": 1,
        "eval_steps": 125,
    },
    offline_arguments={"max_steps": 60, "eval_steps": 20},
    prepare=prepare,
    paper_updates=15_625,  # computed: one epoch of a million sentences, 64 per update
)
