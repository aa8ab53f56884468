"""Does a decoder read the vector that it is given, or does it know the answer without?"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class InformationProbe:
    """Nats that a decoder's loss rises when each text is given another one's vector, now and then.

    A decoder that sees most of a sentence restores it without the vector: its loss falls, and the encoder learns nothing.
    Measured on every 50th batch that it is asked for, on the same draws of dropout for both, which are then taken back: a
    training with the probe is the one without.
    """

    every = 50

    def __init__(self) -> None:
        self._asked = 0

    @torch.no_grad()
    def __call__(self, loss: Callable[[Tensor], Tensor], memory: Tensor) -> dict[str, Tensor]:
        """Return the diagnostic ``information``, or nothing on a batch that is not probed.

        Args:
            loss: Of a memory, everything else as in this batch.
            memory: (B, ...), one row a text.
        """
        self._asked += 1
        if self._asked % self.every != 1 or len(memory) < 2:
            return {}
        values = []
        for rows in (memory, memory.roll(1, dims=0)):
            with torch.random.fork_rng(devices=[memory.device] if memory.is_cuda else []):
                values.append(loss(rows))
        right, wrong = values
        return {"information": wrong - right}
