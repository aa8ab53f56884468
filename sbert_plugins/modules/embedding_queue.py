"""A queue of sentence vectors as additional negatives (MoCo)."""

import torch
from torch import Tensor, nn


class EmbeddingQueue(nn.Module):
    """The last ``size`` vectors, in a ring buffer that is saved with the loss.

    Args:
        size: Number of vectors.
        dimension: Their width D.
    """

    rows: Tensor
    seen: Tensor

    def __init__(self, size: int, dimension: int) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(size, dimension))
        # The number of vectors that were ever added.
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    @property
    def filled(self) -> Tensor:
        """(Q,) bool, the slots that hold a vector."""
        return torch.arange(len(self.rows), device=self.rows.device) < self.seen

    def after(self, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the queue as :meth:`enqueue` would leave it, without changing it.

        Args:
            keys: (N, D). If N is larger than the queue, only the last ones stay.

        Returns:
            The rows (Q, D); which of them hold a vector, (Q,) bool; the slot of each key, (N,), -1 if it does
            not stay.
        """
        size, count = len(self.rows), len(keys)
        slots = (self.seen + torch.arange(count, device=keys.device)) % size
        rows = self.rows.index_copy(0, slots[-size:], keys[-size:].detach().to(self.rows.dtype))
        slots[: max(count - size, 0)] = -1
        filled = torch.arange(size, device=keys.device) < self.seen + count
        return rows, filled, slots

    def candidates(
        self, keys: Tensor, first: int, count: int, *, enqueue_first: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the vectors that a batch is scored against, without changing the queue.

        Args:
            keys: (N, D), the keys of the batch, of all ranks.
            first: Index of the first key of this rank.
            count: B, number of rows of this rank. The key of row i is ``first + i``.
            enqueue_first: Whether the keys enter the queue first. Otherwise the batch is scored against the
                keys and the queue before them.

        Returns:
            The candidates (C, D), and (B, C) bool: whether a candidate is a negative of a row. The row's own
            key and empty slots are not.
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
        """Add (N, D) vectors. Several ranks must add the same ones in the same order."""
        self.rows.copy_(self.after(keys)[0])
        self.seen += len(keys)
