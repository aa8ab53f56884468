"""Exponential moving averages of parameters, moved after each optimizer step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook


@torch.no_grad()
def ema_update(averages: Iterable[Tensor], values: Iterable[Tensor], momentum: float) -> None:
    """Move each average towards its value in place: ``average = momentum * average + (1 - momentum) * value``.

    Args:
        averages: The tensors to move.
        values: Tensors of the same shapes; another dtype is converted.
        momentum: In [0, 1].
    """
    averages = list(averages)
    values = [value.detach().to(average.dtype) for average, value in zip(averages, values, strict=True)]
    torch._foreach_lerp_(averages, values, 1 - momentum)


def after_optimizer_step(owner: nn.Module, parameter: nn.Parameter, action: Callable[[nn.Module], None]) -> None:
    """Call ``action(owner)`` after each step of an optimizer that holds ``parameter``.

    Once an update whatever the number of micro-batches, with any optimizer and any loop; a step that a gradient scaler skips
    does not count. A loss cannot reach its optimizer, so this is torch's global hook; it does not keep ``owner`` alive.

    Args:
        owner: The module that ``action`` changes.
        parameter: A trained parameter that tells the right optimizer.
        action: Must not itself hold ``owner``.
    """
    global _handle
    if _handle is None:
        _handle = register_optimizer_step_post_hook(_run_actions)
    _actions[owner] = (weakref.ref(parameter), action)


# One hook for all owners: hooks that come and go while torch iterates over them would break its loop.
_actions: weakref.WeakKeyDictionary[nn.Module, tuple[weakref.ref, Callable]] = weakref.WeakKeyDictionary()
_handle = None


def _run_actions(optimizer: torch.optim.Optimizer, *_: object) -> None:
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]} if _actions else set()
    for owner, (reference, action) in list(_actions.items()):
        parameter = reference()
        if parameter is not None and id(parameter) in held:
            action(owner)
