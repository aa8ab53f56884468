"""Dropout of an encoder: check that there is some, set it, and switch it off for one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from sbert_plugins import host

from .model import is_training, unwrap

_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def set_dropout(model: nn.Module, dropout: float) -> None:
    """Set the probability of every dropout of a model, in place. Its saved configuration stays."""
    for module in model.modules():
        if isinstance(module, _DROPOUTS):
            module.p = dropout
        for name in _own_probabilities(module):
            setattr(module, name, dropout)


def require_dropout(model: nn.Module, needed_by: str) -> None:
    """Raise ``ValueError`` for a model without dropout, or in training with all dropout modules in eval mode.

    Two views of a sentence would be identical, which no number shows.
    """
    inside = unwrap(model)
    # Lazily, because this runs in each step: most often the first module that is found settles it.
    if not any(probability for probability, _ in _probabilities(inside)):
        raise ValueError(
            f"{needed_by} makes its positive pairs by dropout, but all dropout probabilities are 0. "
            "Load it with dropout: SentenceTransformer(name, config_kwargs={'hidden_dropout_prob': 0.1, "
            "'attention_probs_dropout_prob': 0.1}); for ModernBERT config_kwargs={'embedding_dropout': 0.1, "
            "'attention_dropout': 0.1, 'mlp_dropout': 0.1}."
        )
    trains = is_training(inside) and torch.is_grad_enabled()
    if trains and not any(probability for probability, training in _probabilities(inside) if training):
        raise ValueError(
            f"{needed_by} makes its positive pairs by dropout, but all dropout modules are in eval mode, as "
            "SentenceTransformer loads them: call model.train() before the training."
        )


def _probabilities(model: nn.Module) -> Iterator[tuple[float, bool]]:
    """Yield the probability of each dropout and whether its module is in training mode.

    Some layers hold the probability as a number (``attention_dropout``) instead of an ``nn.Dropout``.
    """
    for module in model.modules():
        if isinstance(module, _DROPOUTS):
            yield module.p, module.training
        for name in _own_probabilities(module):
            yield vars(module)[name], module.training


def _own_probabilities(module: nn.Module) -> list[str]:
    """Return the attributes that hold a dropout probability (not LayerDrop, which skips layers)."""
    found = ((name, value) for name, value in vars(module).items() if "dropout" in name)
    return [name for name, value in found if isinstance(value, float) or (type(value) is int and value == 0)]


@contextmanager
def dropout_off(model: nn.Module) -> Iterator[None]:
    """Switch dropout off inside the block. Gradients stay on; afterwards every module is exactly as before.

    The flag of all submodules changes, because attention calls the functional dropout with its own
    ``training``. ``model.eval()`` and ``model.train()`` would lose the modes of modules that a user has
    frozen. Gradient checkpointing works: the layers that run again in the backward pass are without dropout,
    too.
    """
    modules = host.modules_of(model)
    checkpointed = host.checkpointed_layers(modules)
    with _eval_flags(modules), host.checkpointing_by(checkpointed, _run_without_dropout):
        for layer in checkpointed:
            layer.training = True  # without it, transformers would keep all that the layer computes
        yield


@contextmanager
def _eval_flags(modules: Sequence[nn.Module]) -> Iterator[None]:
    before = [module.training for module in modules]
    for module in modules:
        module.training = False
    try:
        yield
    finally:
        for module, training in zip(modules, before, strict=True):
            module.training = training


def _run_without_dropout(layer: nn.Module, run: Callable[..., Any], *inputs: Any) -> Any:
    with _eval_flags(host.modules_of(layer)):
        return run(*inputs)
