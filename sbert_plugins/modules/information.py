"""Does a decoder read the vector that it is given, or does it know the answer without?"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

EVERY = 50


@torch.no_grad()
def probe_information(loss: Callable[[Tensor], Tensor], memory: Tensor, *, scored: int) -> dict[str, Tensor]:
    """Measure, now and then, the nats that a decoder's loss rises when each text is given another one's vector.

    A decoder that sees most of a sentence restores it without the vector: its loss falls, and the encoder learns nothing.
    Measured where the number of scored tokens is a multiple of 50, about one batch in fifty: that is known without asking
    the device, needs no counter, and comes out the same after a resume. Both values have the same draws of dropout, which
    are then taken back: a training is the same with it and without.

    Args:
        loss: Of a memory, everything else as in this batch.
        memory: (B, ...), one row a text.
        scored: Tokens that the loss is the mean over.

    Returns:
        The diagnostic ``information``, or nothing.
    """
    if scored % EVERY or not scored or len(memory) < 2:
        return {}
    values = []
    for rows in (memory, memory.roll(1, dims=0)):
        with torch.random.fork_rng(devices=[memory.device] if memory.is_cuda else []):
            values.append(loss(rows))
    right, wrong = values
    return {"information": wrong - right}
