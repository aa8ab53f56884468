"""The recommended way to adapt a model: a contrastive loss with self-distillation or a bag-of-words loss."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import nn

from sbert_plugins import losses
from sbert_plugins.data import TokenFrequencies
from sbert_plugins.recipes.encoders import embeds_already
from sbert_plugins.recipes.recipe import Recipe, count_tokens

logger = logging.getLogger(__name__)
KEEP = 0.1  # chosen on development data for a start that is an embedding model


def choose_weights(
    model: SentenceTransformer, keep: float | None, words: float | None
) -> tuple[float, float]:
    """Return ``keep`` and ``words`` of :func:`recommended_loss`. None lets the model decide."""
    if keep is None and embeds_already(model):
        keep = KEEP
        logger.info(
            "The start is an embedding model. Self-distillation preserves its similarities (keep=%s). To "
            "train without it: --keep 0.",
            KEEP,
        )
    elif keep is None:
        keep = 0.0
        logger.info(
            "The start is a plain language model. It is trained without self-distillation. To train with it: "
            "--keep %s.",
            KEEP,
        )
    if words is None:
        words = 0.0 if keep else 0.3
    return keep, words


def recommended_loss(
    model: SentenceTransformer,
    *,
    keep: float | None = None,
    words: float | None = None,
    second_view: Sequence[str] | None = None,
    token_weights: float | None = 1e-6,
    frequencies: TokenFrequencies | str | None = None,
    mlm_head: str = "embeddings",
    projection_head: bool = True,
    **keywords: Any,
) -> nn.Module:
    """Build a contrastive loss, plus self-distillation (with ``keep``) or a bag-of-words loss (without).

    It learns from one column of sentences, or from sentences and positives.

    Args:
        model: The encoder.
        keep: Weight of :class:`losses.SelfDistillationLoss`, which keeps the similarities that the model has
            now; 0 leaves it out. None is 0.1 for a model that was loaded as an embedding model, and 0 for
            another.
        words: The gradient of :class:`losses.BagOfWordsLoss` at the sentence vectors is at most this multiple
            of the contrastive gradient; 0 leaves the loss out. None is 0.3 without ``keep``. With ``keep`` it
            is 0, because the loss lowered the STS scores of a model that embeds well.
        second_view: Keyword of :class:`losses.ConSERTLoss`. By default it shuffles tokens without ``keep``.
            With ``keep`` it cuts features as in the first view, because shuffled tokens lowered the STS
            scores of such a model.
        token_weights: Keyword of :class:`losses.BagOfWordsLoss`.
        frequencies: Keyword of :class:`losses.BagOfWordsLoss`; needed for a vocabulary other than that of
            ``bert-base-uncased``.
        mlm_head: Keyword of :class:`losses.BagOfWordsLoss`.
        projection_head: Keyword of :class:`losses.ConSERTLoss`.
        **keywords: Further keywords of :class:`losses.ConSERTLoss`.
    """
    # A training has chosen both already, in prepare. A script that builds the loss has not.
    keep, words = choose_weights(model, keep, words)
    if second_view is None:
        second_view = ("feature_cutoff",) if keep else ("token_shuffling",)
    loss: nn.Module = losses.ConSERTLoss(
        model, second_view=second_view, projection_head=projection_head, **keywords
    )
    if words:
        bag = losses.BagOfWordsLoss(
            model, token_weights=token_weights, frequencies=frequencies, mlm_head=mlm_head
        )
        loss = losses.WeightedSumLoss(
            model, {"contrast": (loss, 1.0), "words": (bag, 1.0, [0])}, balance=words
        )
    if keep:
        kept = losses.SelfDistillationLoss(model)
        loss = losses.WeightedSumLoss(model, {"learn": (loss, 1.0), "keep": (kept, keep, [0])})
    return loss


def prepare(
    rows: Dataset, model: SentenceTransformer, given: Mapping[str, Any], **_: Any
) -> tuple[Dataset, dict[str, Any]]:
    """Choose the weight of self-distillation, and count the tokens if there is a bag-of-words loss."""
    keep, words = choose_weights(model, given.get("keep"), given.get("words"))
    return rows, {"keep": keep, "words": words} | (count_tokens(rows, model, given) if words else {})


RECOMMENDED = Recipe(
    name="recommended",
    loss=recommended_loss,
    loss_class="ConSERTLoss",
    optional=("positive",),
    arguments={
        "learning_rate": 5e-5,
        "per_device_train_batch_size": 64,
        "max_steps": 60,
        "eval_steps": 20,
    },
    prepare=prepare,
)
