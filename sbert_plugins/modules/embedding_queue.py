"""A queue of sentence vectors as further negatives (MoCo)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class EmbeddingQueue(nn.Module):
    """The last ``size`` vectors that came in, in a ring buffer: state that is saved, and no list on the host.

    The slots fill from the first; when all are full the newest vectors replace the oldest. Nothing here waits for the device.

    Args:
        size: Vectors to keep.
        dimension: Their width D.

    Raises:
        ValueError: If ``size`` is below 1.
    """

    rows: Tensor
    seen: Tensor

    def __init__(self, size: int, dimension: int) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"queue_size must be at least 1, got {size}. The paper uses 256.")
        self.register_buffer("rows", torch.zeros(size, dimension))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))  # vectors that ever came in

    @property
    def filled(self) -> Tensor:
        """(Q,) bool: slots that hold a vector."""
        return self._slots() < self.seen

    def after(self, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what :meth:`enqueue` would lead to, and change nothing.

        Args:
            keys: (N, D), N of any size: of more than the queue holds the last ones stay.

        Returns:
            The rows (Q, D); which of them hold a vector (Q,) bool; the slot of each key (N,), -1 if it did not stay.
        """
        size, count = len(self.rows), len(keys)
        slots = (self.seen + torch.arange(count, device=keys.device)) % size
        rows = self.rows.index_copy(0, slots[-size:], keys[-size:].detach().to(self.rows.dtype))
        slots[: max(count - size, 0)] = -1
        return rows, self._slots() < self.seen + count, slots

    def candidates(self, keys: Tensor, first: int, count: int, *, enqueue_first: bool) -> tuple[Tensor, Tensor]:
        """Return what a batch is scored against, and change nothing.

        Args:
            keys: (N, D), those of the batch, on several ranks of all batches.
            first: Number of the first key that is this rank's.
            count: B, rows of this rank: row i's own key is number ``first + i``.
            enqueue_first: Whether the keys take the places that they will have in the queue, where they push older ones
                out, or stand beside it.

        Returns:
            The candidates (C, D), and where one is a negative of a row (B, C) bool: not its own key, nor an empty slot.
        """
        if enqueue_first:
            rows, filled, slots = self.after(keys)
        else:
            rows = torch.cat([keys, self.rows.to(keys.dtype)])
            slots = torch.arange(len(rows), device=keys.device)
            filled = torch.cat([torch.ones_like(slots[: len(keys)], dtype=torch.bool), self.filled])
        own = slots[first : first + count].unsqueeze(1)
        return rows, filled & (own != torch.arange(len(rows), device=keys.device))

    @torch.no_grad()
    def enqueue(self, keys: Tensor) -> None:
        """Let (N, D) vectors in; on several ranks the same ones in the same order."""
        self.rows.copy_(self.after(keys)[0])
        self.seen += len(keys)

    def _slots(self) -> Tensor:
        return torch.arange(len(self.rows), device=self.rows.device)
