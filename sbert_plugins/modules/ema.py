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
    """Move each average towards its value in place: ``average = momentum * average + (1 - momentum) * value``.

    Args:
        averages: The tensors to move.
        values: Tensors of the same shapes; another dtype is converted.
        momentum: In [0, 1].
    """
    averages = list(averages)
    ends = [value.detach().to(average.dtype) for average, value in zip(averages, values, strict=True)]
    get_ema_multi_avg_fn(momentum)(averages, ends, 0)  # the number of averages so far is not looked at


def after_optimizer_step(owner: _Owner, action: Callable[[_Owner], object]) -> None:
    """Call ``action(owner)`` after each update of the encoder ``owner.model``; to be called in each training forward.

    An update is a step of an optimizer that holds any weight of the encoder that is trained at that moment (of ``owner``,
    where the whole encoder is frozen): layers may be frozen, adapters added and the owner copied at any time. Once an update
    whatever the number of micro-batches, with any optimizer and any loop; a step that a gradient scaler skips does not
    count, and where several optimizers share the encoder's weights, one step of each is one update. A loss cannot reach its
    optimizer, so this is torch's global hook; it does not keep ``owner`` alive.

    Args:
        owner: The module that ``action`` changes. A copy of it is another owner, and says so by its own forward.
        action: Must not itself hold ``owner``.
    """
    global _handle
    if _handle is None:
        _handle = register_optimizer_step_post_hook(_run_actions)
    _actions[owner] = (action, weakref.WeakSet())


# One hook for all owners: hooks that come and go while torch iterates over them would break its loop. Beside each action the
# optimizers that have stepped since it last ran, that one's first; none since the last forward until it runs.
_actions: weakref.WeakKeyDictionary[nn.Module, tuple[Callable, weakref.WeakSet]] = weakref.WeakKeyDictionary()
_handle: RemovableHandle | None = None


def _run_actions(optimizer: torch.optim.Optimizer, *_: object) -> None:
    # A fused optimizer skips a step itself whose gradients are not finite, as the scaler tells it; the hook runs all the same.
    skipped = getattr(optimizer, "found_inf", None)
    if skipped is not None and skipped.item():
        return
    for owner, (action, stepped) in list(_actions.items()):
        if stepped and optimizer not in stepped:
            stepped.add(optimizer)  # nothing to do now: whether it holds the encoder is asked when it steps again
        elif _has_moved(owner, optimizer):
            stepped.clear()
            action(owner)
            stepped.add(optimizer)


def _has_moved(owner: nn.Module, optimizer: torch.optim.Optimizer) -> bool:
    """Whether it holds anything that is trained in the encoder now, or in the owner where nothing of the encoder is.

    Of the encoder it looks no further than the first, which most often it holds: this runs at each update.
    """
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    of_encoder = (parameter for parameter in owner.get_submodule("model").parameters() if parameter.requires_grad)
    first = next(of_encoder, None)
    if first is not None:
        return id(first) in held or any(id(parameter) in held for parameter in of_encoder)
    return any(id(parameter) in held for parameter in owner.parameters() if parameter.requires_grad)
