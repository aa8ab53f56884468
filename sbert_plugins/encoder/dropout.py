"""Dropout of an encoder: set its probability, check that there is some, and switch it off for one pass."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from sbert_plugins import host

from .model import is_training, unwrap

_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def set_dropout(model: nn.Module, dropout: float) -> None:
    """Set the probability of every dropout of a model, in place. Its configuration does not change."""
    for module, name in list(_dropouts(model)):
        setattr(module, name, dropout)


def require_dropout(model: nn.Module, needed_by: str) -> None:
    """Raise ``ValueError`` if dropout cannot make two different views of a sentence.

    Either all probabilities are 0, or a training has all dropout modules in eval mode. The two views would
    be identical, and the loss would not show it.
    """
    encoder = unwrap(model)
    # any() stops at the first dropout that is found, because this check runs in each step.
    if not any(getattr(module, name) for module, name in _dropouts(encoder)):
        raise ValueError(
            f"{needed_by} makes its positive pairs by dropout, but all dropout probabilities are 0. "
            "Load the model with dropout: SentenceTransformer(name, config_kwargs={'hidden_dropout_prob': "
            "0.1, 'attention_probs_dropout_prob': 0.1}); for ModernBERT "
            "config_kwargs={'embedding_dropout': 0.1, 'attention_dropout': 0.1, 'mlp_dropout': 0.1}."
        )
    is_on = any(module.training and getattr(module, name) for module, name in _dropouts(encoder))
    if is_training(encoder) and torch.is_grad_enabled() and not is_on:
        raise ValueError(
            f"{needed_by} makes its positive pairs by dropout, but all dropout modules are in eval mode, as "
            "SentenceTransformer loads them: call model.train() before the training."
        )


def _dropouts(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Yield each module that drops, and the name of its attribute with the probability.

    Some layers hold the probability as a number, such as ``attention_dropout``, instead of an ``nn.Dropout``.
    LayerDrop, which skips whole layers, is not among them.
    """
    for module in model.modules():
        if isinstance(module, _DROPOUTS):
            yield module, "p"
        for name, value in vars(module).items():
            if "dropout" in name and (isinstance(value, float) or (type(value) is int and value == 0)):
                yield module, name


@contextmanager
def dropout_off(model: nn.Module) -> Iterator[None]:
    """Switch dropout off inside the block. Gradients stay on.

    The block changes the ``training`` flag of every submodule, because attention layers pass their own flag
    to the functional dropout. Afterwards each module has the flag that it had before; ``model.train()``
    would also change modules that a user has frozen in eval mode. With gradient checkpointing, the layers
    that run again in the backward pass also run without dropout.
    """
    modules = list(model.modules())
    checkpointed = host.checkpointed_layers(modules)
    with _eval_flags(modules), host.checkpointing_by(checkpointed, _run_without_dropout):
        for layer in checkpointed:
            layer.training = True  # transformers checkpoints only layers in training mode
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
    with _eval_flags(list(layer.modules())):
        return run(*inputs)
