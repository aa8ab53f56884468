"""Dropout of an encoder as the methods need it: is there any, and off for one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from sbert_plugins import host

from .distributed import is_training

_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def set_dropout(model: nn.Module, dropout: float) -> None:
    """Give every dropout of ``model`` this probability, in place; its configuration, which is saved, stays as it is."""
    for module in model.modules():
        if isinstance(module, _DROPOUTS):
            module.p = dropout
        for name in _numbers(module):
            setattr(module, name, dropout)


def require_dropout(model: nn.Module, needed_by: str, *, in_a_forward: bool = True) -> None:
    """Raise ``ValueError`` for an encoder without dropout, or in a forward of a training with all of it off.

    Two views of a sentence would be identical, or one that should differ would be the sentence as it is.
    """
    if not any(dropout_rates(model)):  # in each forward: most often the first is above 0
        raise ValueError(
            f"{needed_by} makes its positive pairs by dropout, but every dropout probability of this model is 0.0, so "
            "both views would be identical. Load the model with dropout, for BERT-like models "
            "SentenceTransformer(name, config_kwargs={'hidden_dropout_prob': 0.1, 'attention_probs_dropout_prob': 0.1}), "
            "for ModernBERT config_kwargs={'embedding_dropout': 0.1, 'attention_dropout': 0.1, 'mlp_dropout': 0.1}."
        )
    if in_a_forward and is_training(model) and torch.is_grad_enabled() and not any(dropout_rates(model, in_training=True)):
        raise ValueError(
            f"{needed_by} makes its positive pairs by dropout, but every dropout of this model is in eval mode, as "
            "SentenceTransformer loads it: call model.train() before the training."
        )


def dropout_rates(model: nn.Module, *, in_training: bool = False) -> Iterator[float]:
    """Yield the probability of each dropout of ``model``, in the order of its modules, or of those in training mode alone.

    Some layers hold it as a number (``attention_dropout``, XLM's and BART's ``dropout``) instead of an ``nn.Dropout``.
    """
    for module in model.modules():
        if in_training and not module.training:
            continue
        if isinstance(module, _DROPOUTS):
            yield module.p
        yield from (vars(module)[name] for name in _numbers(module))


def _numbers(module: nn.Module) -> list[str]:
    """Return the names under which a module holds probabilities of its own; LayerDrop leaves whole layers out."""
    found = ((name, value) for name, value in vars(module).items() if "dropout" in name)
    return [name for name, value in found if isinstance(value, float) or (type(value) is int and value == 0)]


@contextmanager
def dropout_off(model: nn.Module) -> Iterator[None]:
    """Switch dropout off inside the block, gradients stay on; afterwards every module is exactly as before.

    The flag is flipped on all submodules, since attention layers call the functional dropout with their own ``training``;
    ``model.eval()`` and ``model.train()`` would also lose the state of modules that a user has frozen in eval mode.
    Gradient checkpointing goes on: what is run again in backward, behind the block, is without dropout, too.
    """
    modules = host.modules_of(model)
    checkpointed = host.checkpointed_layers(modules)
    with _flag_off(modules), host.checkpointing_by(checkpointed, _without_dropout):
        for layer in checkpointed:
            layer.training = True  # or transformers would keep all that the layer computes
        yield


@contextmanager
def _flag_off(modules: Sequence[nn.Module]) -> Iterator[None]:
    before = [module.training for module in modules]
    for module in modules:
        module.training = False
    try:
        yield
    finally:
        for module, training in zip(modules, before, strict=True):
            module.training = training


def _without_dropout(layer: nn.Module, run: Callable[..., Any], *inputs: Any) -> Any:
    with _flag_off(host.modules_of(layer)):
        return run(*inputs)
