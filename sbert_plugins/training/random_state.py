"""The generators that a training draws from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from sbert_plugins import host


def read_random_state(model: nn.Module) -> tuple[Any, ...]:
    """Return the states of Python's, numpy's and torch's generators, and of that of the model's device."""
    on_device = host.generator_state(next(model.parameters()).device)
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), on_device  # noqa: NPY002  as others draw


def restore_random_state(model: nn.Module, state: tuple[Any, ...]) -> None:
    """Set the generators back to what ``read_random_state`` returned."""
    of_python, of_numpy, of_torch, on_device = state
    random.setstate(of_python)
    np.random.set_state(of_numpy)  # noqa: NPY002
    torch.set_rng_state(of_torch)
    host.set_generator_state(next(model.parameters()).device, on_device)


@contextmanager
def kept_random_state(model: nn.Module) -> Iterator[None]:
    """Leave the generators as they were, whatever is drawn inside."""
    state = read_random_state(model)
    try:
        yield
    finally:
        restore_random_state(model, state)
