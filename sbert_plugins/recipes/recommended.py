"""The recommended way to adapt a model: a contrastive loss with self-distillation or a bag-of-words loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sbert_plugins.recipes.recipe import Adaptation, Recipe, count_tokens_if_needed

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from sbert_plugins.data import TokenFrequencies

KEEP = 0.1  # chosen on development data for a start that is an embedding model


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
            now; None or 0 leaves it out. Use 0.1 for a model that embeds well already.
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
    from sbert_plugins import losses

    words = _influence(words, keep)
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


def _influence(words: float | None, keep: float | None) -> float:
    """Return the influence of the bag-of-words loss."""
    return (0.0 if keep else 0.3) if words is None else words


def find_keywords(
    rows: Dataset, model: SentenceTransformer, epochs: float, given: dict[str, Any]
) -> dict[str, Any]:
    """Count the tokens, if there is a bag-of-words loss and the built-in counts do not fit."""
    words = _influence(given.get("words"), given.get("keep"))
    return count_tokens_if_needed(rows, model, epochs, given) if words else {}


def adapt_to(*, embeds: bool) -> Adaptation:
    """Choose the keywords of the loss by whether the start embeds sentences already."""
    if embeds:
        reason = (
            f"The start is an embedding model. Self-distillation preserves its similarities (--keep {KEEP}). "
            "To train without it: --no_keep."
        )
        return Adaptation({"keep": KEEP}, reason)
    reason = (
        "The start is a plain language model. It is trained without self-distillation. To train with it: "
        f"--keep {KEEP}."
    )
    return Adaptation({}, reason)


RECOMMENDED = Recipe(
    name="recommended",
    title="Recommended",
    paper="this library, after ConSERT, DenoSent and RankCSE",
    url="https://sbert-plugins.github.io/sbert-plugins/methods/recommended.html",
    summary="ConSERT, with self-distillation for embedding models, with a bag-of-words loss for others",
    loss="ConSERTLoss",
    columns=("anchor",),
    second_column="positive",
    arguments={
        "learning_rate": 5e-5,
        "per_device_train_batch_size": 64,
        "max_steps": 60,
        "eval_steps": 20,
    },
    build=recommended_loss,
    adapt_to=adapt_to,
    find_keywords=find_keywords,
)
