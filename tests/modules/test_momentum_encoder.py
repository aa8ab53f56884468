import copy
import gc
import math
import weakref

import numpy as np
import pytest
import reference
import torch
from torch import nn

from sbert_plugins.modules import EmbeddingQueue, MomentumEncoder, ProjectionHead, after_optimizer_step


class Head(ProjectionHead):
    """A module that reads a pass."""

    def forward(self, seen):
        return super().forward(seen.vectors)


@pytest.fixture
def parts(tiny_encoder):
    return tiny_encoder(), Head(32)


@pytest.mark.parametrize(("dropout", "training"), [(True, True), (True, False), (False, True)])
def test_the_momentum_encoder_starts_as_a_frozen_copy(parts, dropout, training):
    slow, features = (
        MomentumEncoder(*parts, momentum=0.9, dropout=dropout),
        parts[0].preprocess(["A dog.", "Rain."]),
    )
    expected = parts[1].linear(parts[0].eval()(dict(features))["sentence_embedding"]).tanh()
    assert torch.equal(slow(features, training=training), expected) != (dropout and training)
    for own, original in zip(slow.parameters(), nn.ModuleList(parts).parameters(), strict=True):
        assert own is not original and torch.equal(own, original) and not own.requires_grad


def test_updates_of_the_momentum_encoder(parts):
    # In half precision most updates would be lost, so the copies stay in float32.
    model, fast = parts[0], nn.ModuleList(parts)
    slow = MomentumEncoder(*parts, momentum=0.885)
    for part in (slow, fast):
        part.bfloat16()
    slow.encode(model.preprocess(["It is raining."]), training=False)
    expected = [parameter.numpy().copy() for parameter in slow.parameters()]
    nn.init.normal_(next(fast.parameters()))
    for _ in range(5):
        slow.update(*parts)
        values = [parameter.detach().float().numpy() for parameter in fast.parameters()]
        expected = reference.momentum_update(expected, values, m=0.885)
    for own, other in zip(slow.parameters(), expected, strict=True):
        np.testing.assert_allclose(own.numpy(), other, atol=1e-5)
    model.append(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="other parameters"):
        slow.update(*parts)


@pytest.mark.parametrize("sizes", [[3, 3], [4, 4, 3, 1, 4, 4], [25], [7, 25, 2], [10] * 3, [1] * 23], ids=str)
def test_the_queue_holds_the_last_rows(sizes):
    # Filling, wrapping around, partial last batches, batches larger than the queue.
    queue, batches = EmbeddingQueue(10, 2), [torch.randn(size, 2, requires_grad=True) for size in sizes]
    for batch in batches:
        rows, filled, slots = queue.after(batch)
        assert not torch.equal(queue.rows, rows)  # not changed yet
        queue.enqueue(batch)
        assert torch.equal(queue.rows, rows) and torch.equal(queue.filled, filled)
        assert torch.equal(rows[slots[slots >= 0]], batch[slots >= 0])
    order = torch.arange(sum(sizes) - queue.filled.sum(), sum(sizes)) % 10
    expected = reference.last([batch.detach().numpy() for batch in batches], 10)
    np.testing.assert_array_equal(queue.rows[order].numpy(), expected)
    assert {*queue.state_dict()} == {"rows", "seen"} and not queue.rows.requires_grad


@pytest.mark.parametrize("enqueue_first", [True, False])
def test_negatives_are_neither_the_own_key_nor_empty_slots(enqueue_first):
    # Before the batch the queue holds 2 of 5.
    queue, keys = EmbeddingQueue(5, 2), torch.randn(4, 2)
    queue.enqueue(torch.randn(2, 2))
    candidates, is_negative = queue.candidates(keys, 1, 2, enqueue_first=enqueue_first)
    assert is_negative.sum(dim=1).tolist() == ([4, 4] if enqueue_first else [5, 5])
    for key, negative in zip(keys[1:3], is_negative, strict=True):
        assert not (candidates[negative] == key).all(dim=1).any() and candidates[negative].any(dim=1).all()


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
    assert counter.step(sgd(counter.model), head) == 5


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
