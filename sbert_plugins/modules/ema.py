"""Exponential moving averages of parameters, updated after each optimizer step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.optim.swa_utils import get_ema_multi_avg_fn

_Owner = TypeVar("_Owner", bound=nn.Module)


@torch.no_grad()
def ema_update(averages: Iterable[Tensor], values: Iterable[Tensor], momentum: float) -> None:
    """Set each average to ``momentum * average + (1 - momentum) * value``, in place.

    Args:
        averages: The tensors to change.
        values: Tensors of the same shapes, of any dtype.
        momentum: In [0, 1].
    """
    averages = list(averages)
    ends = [value.detach().to(average.dtype) for average, value in zip(averages, values, strict=True)]
    get_ema_multi_avg_fn(momentum)(averages, ends, 0)


def after_optimizer_step(owner: _Owner, action: Callable[[_Owner], object]) -> None:
    """Call ``action(owner)`` after each update of ``owner.model``. Losses call this in each training forward.

    An update is a step of an optimizer that holds a trained weight of the encoder, or of ``owner`` if the
    whole encoder is frozen. It counts once for any number of micro-batches, in any training loop. A step that
    a gradient scaler skips does not count. If several optimizers share the encoder's weights, one step of
    each is one update.

    A loss cannot reach its optimizer, so this function uses a global hook of torch. The hook does not keep
    ``owner`` alive.

    Args:
        owner: The module that ``action`` changes. A copy of the module must call this function itself.
        action: Must not hold ``owner``.
    """
    _install_hook()
    _actions[owner] = (action, weakref.WeakSet())


# For each owner: its action, and the optimizers that have stepped since the action last ran.
_actions: weakref.WeakKeyDictionary[nn.Module, tuple[Callable, weakref.WeakSet]] = weakref.WeakKeyDictionary()


@cache
def _install_hook() -> None:
    """Register one hook for all owners. Each owner's own hook would stay after the owner is gone."""
    register_optimizer_step_post_hook(_run_actions)


def _run_actions(optimizer: torch.optim.Optimizer, *_: object) -> None:
    # A fused optimizer skips a step with infinite gradients by itself, and the hook runs all the same.
    skipped = getattr(optimizer, "found_inf", None)
    if skipped is not None and skipped.item():
        return
    for owner, (action, stepped) in list(_actions.items()):
        if stepped and optimizer not in stepped:
            stepped.add(optimizer)  # another optimizer of the same update
        elif _has_moved(owner, optimizer):
            stepped.clear()
            action(owner)
            stepped.add(optimizer)


def _has_moved(owner: nn.Module, optimizer: torch.optim.Optimizer) -> bool:
    """Return whether the optimizer trains the encoder, or the owner if the encoder is frozen."""
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    encoder = owner.get_submodule("model")
    trained = [parameter for parameter in encoder.parameters() if parameter.requires_grad]
    if not trained:
        trained = [parameter for parameter in owner.parameters() if parameter.requires_grad]
    return any(id(parameter) in held for parameter in trained)
