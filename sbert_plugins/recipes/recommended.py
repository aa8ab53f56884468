"""The recommended way to adapt a model: a contrastive loss, a bag-of-words loss, and self-distillation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sbert_plugins.recipes.recipe import Adaptation, Recipe, count_tokens_if_needed

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from sbert_plugins.data import TokenFrequencies

# Chosen on development data for a start that is an embedding model. With shuffled tokens in the second view,
# which are ConSERT's default, such a start loses two points of SICK-R. Views without dropout share a pass.
EMBEDDER = {"keep": 0.1, "second_view": ("feature_cutoff",)}


def recommended_loss(
    model: SentenceTransformer,
    *,
    keep: float | None = None,
    words: float = 0.3,
    token_weights: float | None = 1e-6,
    frequencies: TokenFrequencies | str | None = None,
    mlm_head: str = "embeddings",
    projection_head: bool = True,
    **keywords: Any,
) -> nn.Module:
    """Build the sum of a contrastive loss, a bag-of-words loss and, with ``keep``, self-distillation.

    It learns from one column of sentences, or from sentences and positives.

    Args:
        model: The encoder.
        keep: Weight of :class:`losses.SelfDistillationLoss`, which keeps the similarities that the model has
            now; None or 0 leaves it out. Useful for a model that embeds well already.
        words: The gradient of :class:`losses.BagOfWordsLoss` at the sentence vectors is at most this multiple
            of the contrastive gradient; 0 leaves the loss out.
        token_weights: Keyword of :class:`losses.BagOfWordsLoss`.
        frequencies: Keyword of :class:`losses.BagOfWordsLoss`; needed for a vocabulary other than that of
            ``bert-base-uncased``.
        mlm_head: Keyword of :class:`losses.BagOfWordsLoss`.
        projection_head: Keyword of :class:`losses.ConSERTLoss`.
        **keywords: Further keywords of :class:`losses.ConSERTLoss`.
    """
    from sbert_plugins import losses

    loss: nn.Module = losses.ConSERTLoss(model, projection_head=projection_head, **keywords)
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


def adapt_to(*, embeds: bool) -> Adaptation:
    """Choose the keywords of the loss by whether the start embeds sentences already."""
    if embeds:
        reason = (
            "The start is an embedding model. Self-distillation preserves its similarities (--keep 0.1). To "
            "train without it: --no_keep."
        )
        return Adaptation(dict(EMBEDDER), reason)
    reason = (
        "The start is a plain language model. It is trained without self-distillation. To train with it: "
        "--keep 0.1."
    )
    return Adaptation({}, reason)


RECOMMENDED = Recipe(
    name="recommended",
    title="Recommended",
    paper="this library, after ConSERT, DenoSent and RankCSE",
    url="https://sbert-plugins.github.io/sbert-plugins/methods/recommended.html",
    summary="ConSERT, a bag-of-words loss and, for embedding models, self-distillation from the start",
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
    find_keywords=count_tokens_if_needed,
)
