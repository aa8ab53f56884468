"""The generators that a training draws from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn


def read_random_state(model: nn.Module) -> tuple[Any, ...]:
    """Return the states of Python's, numpy's and torch's generators, and of that of the model's GPU."""
    device = next(model.parameters()).device
    on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), on_device  # noqa: NPY002  as others draw


def restore_random_state(model: nn.Module, state: tuple[Any, ...]) -> None:
    """Set the generators back to what ``read_random_state`` returned."""
    of_python, of_numpy, of_torch, on_device = state
    random.setstate(of_python)
    np.random.set_state(of_numpy)  # noqa: NPY002
    torch.set_rng_state(of_torch)
    if on_device is not None:
        torch.cuda.set_rng_state(on_device, next(model.parameters()).device)


@contextmanager
def kept_random_state(model: nn.Module) -> Iterator[None]:
    """Leave the generators as they were, whatever is drawn inside."""
    state = read_random_state(model)
    try:
        yield
    finally:
        restore_random_state(model, state)
