"""Exponential moving averages of parameters, moved after each optimizer step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.optim.swa_utils import get_ema_multi_avg_fn
from torch.utils.hooks import RemovableHandle

_Owner = TypeVar("_Owner", bound=nn.Module)


@torch.no_grad()
def ema_update(averages: Iterable[Tensor], values: Iterable[Tensor], momentum: float) -> None:
    """Set each average to ``momentum * average + (1 - momentum) * value``, in place.

    Args:
        averages: The tensors to move.
        values: Tensors of the same shapes; another dtype is converted.
        momentum: In [0, 1].
    """
    averages = list(averages)
    ends = [value.detach().to(average.dtype) for average, value in zip(averages, values, strict=True)]
    get_ema_multi_avg_fn(momentum)(averages, ends, 0)


def after_optimizer_step(owner: _Owner, action: Callable[[_Owner], object]) -> None:
    """Call ``action(owner)`` after each update of ``owner.model``. To be called in each training forward.

    An update is a step of an optimizer that holds a trained weight of the encoder (or of ``owner``, if the
    whole encoder is frozen), whatever the number of micro-batches, in any training loop. A step that a
    gradient scaler skips does not count. If several optimizers share the encoder's weights, one step of each
    is one update. A loss cannot reach its optimizer, so this is a global hook of torch. It does not keep
    ``owner`` alive.

    Args:
        owner: The module that ``action`` changes. A copy of it has to call this itself.
        action: Must not hold ``owner``.
    """
    global _handle
    if _handle is None:
        _handle = register_optimizer_step_post_hook(_run_actions)
    _actions[owner] = (action, weakref.WeakSet())


# One hook for all owners, because torch iterates over its hooks. With each action: the optimizers that have
# stepped since it last ran.
_actions: weakref.WeakKeyDictionary[nn.Module, tuple[Callable, weakref.WeakSet]] = weakref.WeakKeyDictionary()
_handle: RemovableHandle | None = None


def _run_actions(optimizer: torch.optim.Optimizer, *_: object) -> None:
    # A fused optimizer itself skips a step with gradients that are not finite, but the hook runs.
    skipped = getattr(optimizer, "found_inf", None)
    if skipped is not None and skipped.item():
        return
    for owner, (action, stepped) in list(_actions.items()):
        if stepped and optimizer not in stepped:
            stepped.add(optimizer)
        elif _has_moved(owner, optimizer):
            stepped.clear()
            action(owner)
            stepped.add(optimizer)


def _has_moved(owner: nn.Module, optimizer: torch.optim.Optimizer) -> bool:
    """Return whether the optimizer trains the encoder, or the owner if the encoder is frozen."""
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    of_encoder = (
        parameter for parameter in owner.get_submodule("model").parameters() if parameter.requires_grad
    )
    first = next(of_encoder, None)
    if first is not None:
        return id(first) in held or any(id(parameter) in held for parameter in of_encoder)
    return any(id(parameter) in held for parameter in owner.parameters() if parameter.requires_grad)
