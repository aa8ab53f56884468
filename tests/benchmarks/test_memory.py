"""What a forward keeps, against bytes that were counted by hand."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import memory


@pytest.mark.parametrize("times", [1, 3])
def test_kept_bytes(times):
    """Each linear map keeps its input of 5 x 4 numbers, and its weight, which is there anyway; an input is kept once."""
    layer, x = nn.Linear(4, 4), torch.randn(5, 4, requires_grad=True)

    def forward():
        y = x
        for _ in range(times):
            y = layer(y)
        return y.sum()

    assert memory.kept_bytes(forward, memory.places_of(layer)) == times * 5 * 4 * 4
    assert memory.kept_bytes(lambda: layer(x).sum() + layer(x).sum(), memory.places_of(layer)) == 5 * 4 * 4
    assert memory.kept_bytes(forward) == times * 5 * 4 * 4 + 4 * 4 * 4


def test_each_method_is_a_step_of_the_speed_table():
    assert set(memory.METHODS.values()) <= set(memory.STEPS)
