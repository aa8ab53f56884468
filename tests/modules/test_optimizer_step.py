import copy
import gc
import math
import weakref

import pytest
import torch
from torch import nn

from sbert_plugins.modules import after_optimizer_step


class Counter(nn.Module):
    """A loss that counts the updates of ``model``."""

    def __init__(self, model=None):
        super().__init__()
        self.model = model or nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        self.head = nn.Linear(2, 2)
        self.steps = 0

    def count(self):
        self.steps += 1

    def forward(self, x):
        after_optimizer_step(self, Counter.count)
        return self.head(self.model(x)).sum()

    def step(self, *optimizers):
        self(torch.randn(4, 3)).backward()
        for optimizer in optimizers:
            optimizer.step()
        return self.steps


def sgd(module):
    return torch.optim.SGD([parameter for parameter in module.parameters() if parameter.requires_grad])


@pytest.mark.parametrize("fused", [True, False])
def test_skipped_steps_and_accumulated_batches(fused):
    # A fused optimizer is called and skips the step itself.
    counter = Counter()
    optimizer = torch.optim.AdamW(counter.parameters(), fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for factor in (1.0, math.inf, 1.0):
        optimizer.zero_grad()
        for _ in range(4):
            scaler.scale(factor * counter(torch.ones(4, 3))).backward()
        scaler.unscale_(optimizer)  # as accelerate does before clipping
        scaler.step(optimizer)
        scaler.update()
    assert counter.steps == 2


def test_several_optimizers():
    # Those that share the encoder make one update together. One of other weights makes none.
    counter = Counter()
    both, head = [sgd(layer) for layer in counter.model], sgd(counter.head)
    assert [counter.step(*both, head), counter.step(head, *both, head), counter.step(head)] == [1, 2, 2]
    for optimizer in (*both, *both):  # without a forward in between
        optimizer.step()
    assert counter.steps == 4
    later = sgd(counter.model)
    assert counter.step(later, head) == 5


def test_weights_that_are_frozen_or_added_later():
    counter = Counter()
    for layer in counter.model:
        layer.requires_grad_(False)
        counter.step(sgd(counter))  # in the second round the whole encoder is frozen
    counter.model.append(nn.Linear(2, 2))  # as an adapter
    assert counter.step(sgd(counter.model[2])) == 3


def test_copies_and_several_losses_count_for_themselves():
    original = Counter()
    original.step(sgd(original))
    copied = copy.deepcopy(original)
    assert (copied.step(sgd(copied)), original.steps) == (2, 1)
    second = Counter(copied.model)
    second(torch.ones(1, 3)).backward()
    assert (copied.step(sgd(copied)), second.steps) == (3, 1)


def test_the_hook_keeps_nothing_alive():
    counter = Counter()
    optimizer = sgd(counter)
    counter.step(optimizer)
    alive = weakref.ref(counter)
    del counter
    gc.collect()
    assert alive() is None
    optimizer.step()
