import gc
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
    def __init__(self, model):
        super().__init__()
        self.steps = 0
        after_optimizer_step(self, next(model.parameters()), Copy.count)

    def count(self):
        self.steps += 1


@pytest.mark.parametrize("fused", [True, False])
def test_once_a_step_of_the_right_optimizer(fused):
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    copy = Copy(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    elsewhere = torch.optim.AdamW(other.parameters(), fused=fused)
    for micro_batch in range(8):
        model(torch.randn(4, 3)).sum().backward()
        other(torch.randn(4, 3)).sum().backward()
        elsewhere.step()
        if micro_batch % 4 == 3:
            optimizer.step()
    assert copy.steps == 2


def test_the_hook_keeps_nothing_alive():
    model = nn.Linear(3, 2)
    copy = Copy(model)
    alive = weakref.ref(copy)
    del copy
    gc.collect()
    assert alive() is None
    model(torch.randn(4, 3)).sum().backward()
    torch.optim.SGD(model.parameters()).step()  # nobody to call any more
