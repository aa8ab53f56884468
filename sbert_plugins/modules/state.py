"""What a loss has to do for its own modules: keep them in the encoder's mode, and warn where nobody saves them."""

from __future__ import annotations

import warnings

from torch import nn


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
