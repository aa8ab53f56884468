"""A function that a loss calls after each optimizer step."""

import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook


def after_optimizer_step(owner: nn.Module, action: Callable[[Any], object]) -> None:
    """Call ``action(owner)`` after each update of ``owner.model``, in any training loop.

    An update is a step of an optimizer that holds a trained weight of the encoder. If the encoder is frozen,
    it is a step of an optimizer that holds a weight of ``owner``. Micro-batches do not count, nor do steps
    that a gradient scaler skips. If several optimizers share the encoder's weights, one step of each makes
    one update. Losses call this function in each training forward, which changes nothing after the first.

    A loss cannot reach its optimizer, so this function uses a global hook of torch. The hook does not keep
    ``owner`` alive.

    Args:
        owner: The module that ``action`` changes. A copy of the module must call this function itself.
        action: Function of the owner. It must not hold a reference to it.
    """
    _register_once(_run_actions)
    _actions[owner] = (action, weakref.WeakSet())


# For each owner: its action, and the optimizers that have stepped since the action last ran.
_actions: weakref.WeakKeyDictionary[nn.Module, tuple[Callable, weakref.WeakSet]] = weakref.WeakKeyDictionary()


# One hook for all owners: an owner's own hook would stay after the owner is gone.
_register_once = cache(register_optimizer_step_post_hook)


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
    trained = [each for each in encoder.parameters() if each.requires_grad] or [
        each for each in owner.parameters() if each.requires_grad
    ]
    return any(id(parameter) in held for parameter in trained)
