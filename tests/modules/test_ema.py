import copy
import gc
import math
import pickle
import weakref

import pytest
import torch
from torch import nn

from sbert_plugins.modules import after_optimizer_step, ema_update


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("momentum", [0.0, 0.885, 0.99, 1.0])
def test_after_k_updates_it_is_the_closed_form(dtype, momentum):
    """average_k = momentum^k * average_0 + (1 - momentum^k) * value."""
    start = [torch.randn(3, 4), torch.randn(5)]
    averages = [tensor.clone().to(dtype) for tensor in start]
    values = [torch.randn(3, 4, requires_grad=True), torch.randn(5)]
    for _ in range(7):
        ema_update(averages, values, momentum)
    tolerance = 1e-6 if dtype == torch.float32 else 0.05
    for average, first, value in zip(averages, start, values, strict=True):
        expected = momentum**7 * first + (1 - momentum**7) * value.detach()
        torch.testing.assert_close(average.float(), expected, rtol=tolerance, atol=tolerance)


class Copy(nn.Module):
    """Counts the updates of ``model``."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.head = nn.Linear(2, 2)
        self.steps = 0

    def count(self):
        self.steps += 1

    def forward(self, x):
        after_optimizer_step(self, Copy.count)
        return self.head(self.model(x)).sum()


def encoder():
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


def step(copy, *optimizers):
    copy(torch.randn(4, 3)).backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


def trained(module):
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


@pytest.mark.parametrize("fused", [True, False])
def test_once_a_step_of_the_right_optimizer(fused):
    counted, other = Copy(encoder()), nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(counted.parameters(), fused=fused)
    elsewhere = torch.optim.AdamW(other.parameters(), fused=fused)
    for micro_batch in range(8):
        counted(torch.randn(4, 3)).backward()
        other(torch.randn(4, 3)).sum().backward()
        elsewhere.step()
        if micro_batch % 4 == 3:
            optimizer.step()
    assert counted.steps == 2


@pytest.mark.parametrize("fused", [True, False])
def test_a_step_that_a_gradient_scaler_skips_is_none(fused):
    """A fused optimizer is called all the same, and skips by itself."""
    counted = Copy(encoder())
    optimizer, scaler = torch.optim.AdamW(counted.parameters(), fused=fused), torch.amp.GradScaler("cpu", init_scale=2.0)
    for factor in (1.0, math.inf, 1.0):
        before = counted.head.weight.clone()
        optimizer.zero_grad()
        scaler.scale(factor * counted(torch.ones(4, 3))).backward()
        scaler.unscale_(optimizer)  # as accelerate does, to clip
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(counted.head.weight, before) == math.isinf(factor)
    assert counted.steps == 2


@pytest.mark.parametrize("frozen", [0, 1])
def test_layers_that_are_frozen_later(frozen):
    """Whichever they are: any weight that is trained tells the optimizer."""
    counted = Copy(encoder())
    counted.model[frozen].requires_grad_(False)
    optimizer = torch.optim.SGD(trained(counted))
    step(counted, optimizer)
    assert counted.steps == 1
    counted.model.requires_grad_(False)  # the loss itself is trained
    step(counted, torch.optim.SGD(trained(counted)))
    assert counted.steps == 2


def test_weights_that_are_added_later():
    """As an adapter's, the others being frozen."""
    counted = Copy(encoder())
    step(counted, torch.optim.SGD(trained(counted)))
    counted.model.requires_grad_(False)
    counted.model.append(nn.Linear(2, 2))
    step(counted, torch.optim.SGD(trained(counted)))
    assert counted.steps == 2


@pytest.mark.parametrize("after_a_step", [False, True])
def test_a_copy_counts_for_itself(after_a_step):
    original = Copy(encoder())
    if after_a_step:
        step(original, torch.optim.SGD(original.parameters()))
    copied = copy.deepcopy(original)
    step(copied, torch.optim.SGD(copied.parameters()))
    assert (original.steps, copied.steps) == ((1, 2) if after_a_step else (0, 1))
    assert copy.deepcopy(pickle.loads(pickle.dumps(copied))).steps == copied.steps


def test_two_losses_round_one_model():
    first = Copy(encoder())
    second = Copy(first.model)
    optimizer = torch.optim.SGD([*first.parameters(), *second.head.parameters()])
    (first(torch.ones(1, 3)) + second(torch.ones(1, 3))).backward()
    optimizer.step()
    assert (first.steps, second.steps) == (1, 1)


def test_an_optimizer_of_the_head_alone_is_not_the_encoders():
    counted = Copy(encoder())
    of_head, of_encoder = torch.optim.SGD(counted.head.parameters()), torch.optim.SGD(counted.model.parameters())
    step(counted, of_head, of_head)
    assert counted.steps == 0
    step(counted, of_head, of_encoder)
    assert counted.steps == 1
    step(counted, of_encoder, of_head, of_head)
    assert counted.steps == 2
    of_head.step()
    of_encoder.step()
    assert counted.steps == 3


def test_optimizers_that_share_the_encoder_make_one_update():
    """One for matrices and one for the rest; later ones take over, also with batches of other losses in between."""
    counted = Copy(encoder())
    both = [torch.optim.SGD(layer.parameters()) for layer in counted.model]
    for _ in range(3):
        step(counted, *both)
    assert counted.steps == 3
    later = torch.optim.SGD(counted.model.parameters())
    step(counted, later)
    assert counted.steps == 4
    later.step()
    assert counted.steps == 5


def test_the_hook_keeps_nothing_alive():
    model = encoder()
    counted = Copy(model)
    step(counted, torch.optim.SGD(model.parameters()))
    alive = weakref.ref(counted)
    del counted
    gc.collect()
    assert alive() is None
    model(torch.randn(4, 3)).sum().backward()
    torch.optim.SGD(model.parameters()).step()  # nobody to call any more


def test_optimizers_that_share_the_encoder_without_a_forward_between():
    counted = Copy(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)))
    both = [torch.optim.SGD(layer.parameters()) for layer in counted.model]
    counted(torch.randn(4, 3)).sum().backward()
    for optimizer in (*both, *both, *both):
        optimizer.step()
    assert counted.steps == 3
