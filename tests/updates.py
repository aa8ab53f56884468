"""A few updates on one batch, for the tests that a loss learns."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def losses_of_updates(loss: nn.Module, columns: list[dict[str, Tensor]], *, learning_rate: float, count: int) -> list[float]:
    """Train on one batch; return the sum of the loss's terms before each update."""
    trained = [parameter for parameter in loss.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=learning_rate, fused=True)
    values = []
    for _ in range(count):
        total = sum(loss(columns).values())
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        values.append(total.item())
    return values
