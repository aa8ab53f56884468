"""What a loss has to do for its own modules: keep them fitting the encoder, and say where nobody saves or trains them."""

from __future__ import annotations

import warnings

import torch
from torch import nn

from .distributed import unwrap
from .mlm_head import MLMHead


def warn_unless_kept(loss: nn.Module) -> None:
    """Warn, once a loss, that nobody saves its state; to be called in the first training forward.

    ``loss.state_is_kept`` is set by ``training.SentenceTransformerTrainer`` and ``training.LossStateCallback``.
    """
    if not loss.state_is_kept:
        loss.state_is_kept = True
        warnings.warn(
            f"{type(loss).__name__} owns weights that checkpoints of sentence-transformers' trainer do not hold: a resumed "
            "training would start them anew. Train with sbert_plugins.training.SentenceTransformerTrainer, or add "
            "callbacks=[sbert_plugins.training.LossStateCallback(loss)]. In a loop of your own, save loss.state_dict() and "
            "set loss.state_is_kept = True.",
            stacklevel=3,
        )


def follow_mode(loss: nn.Module) -> None:
    """Put the modules that a loss owns in its encoder's mode: a trainer and ``model.eval()`` reach the encoder only."""
    for name, module in loss.named_children():
        if name != "model" and module.training != loss.model.training:
            module.train(loss.model.training)


def follow_table(head: MLMHead, model: nn.Module) -> None:
    """Give a head the encoder's dtype, which ``model.bfloat16()`` changes without it; to be called in each forward.

    Raises:
        ValueError: If the encoder has another number of word embeddings by now, to which the head does not fit.
    """
    words = unwrap(model).transformers_model.get_input_embeddings().weight
    size = head.full.get_output_embeddings().out_features
    if size != len(words):
        raise ValueError(
            f"the encoder must keep the {size:,} word embeddings that it had when the loss was built, got {len(words):,}: "
            "call resize_token_embeddings before the loss is built."
        )
    head.to(words.dtype)


def require_trained(loss: nn.Module) -> None:
    """Say where the encoder is not trained; to be called in each training forward.

    Raises:
        ValueError: If nothing is: encoder frozen, and no weight of the loss's own.
    """
    if not torch.is_grad_enabled() or any(parameter.requires_grad for parameter in loss.model.parameters()):
        return
    name = type(loss).__name__
    if not any(parameter.requires_grad for parameter in loss.parameters()):
        raise ValueError(
            f"{name} trains the encoder, got one whose parameters are all frozen: set requires_grad on those that shall "
            "learn, or add adapters, before training."
        )
    warnings.warn(
        f"the encoder is frozen: {name} trains only what it owns, and sentence vectors stay as they are. Set requires_grad on "
        "the encoder's parameters that shall learn.",
        stacklevel=3,
    )
