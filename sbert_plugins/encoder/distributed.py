"""Rows of other processes, as further negatives."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from sentence_transformers.util import all_gather, all_gather_with_grad, get_rank, get_world_size
from torch import Tensor


def rows_of_other_ranks(rows: Tensor) -> Tensor | None:
    """Gather the rows of all other processes, with gradients. Every rank has to call this in the same step.

    Batches may differ in size from rank to rank, as the last ones of an epoch do.

    Args:
        rows: (B, D) of this rank.

    Returns:
        (N, D) in the order of the ranks, or None in a single process.
    """
    if get_world_size() == 1:
        return None
    return torch.cat(
        [block for rank, block in enumerate(_gather(rows, all_gather_with_grad)) if rank != get_rank()]
    )


@torch.no_grad()
def rows_of_all_ranks(rows: Tensor) -> tuple[Tensor, int]:
    """Gather the rows of all processes, without gradients, in the same order on every rank.

    Args:
        rows: (B, D) of this rank; sizes may differ.

    Returns:
        (N, D), and the index of the first row of this rank.
    """
    if get_world_size() == 1:
        return rows.detach(), 0
    blocks = _gather(rows.detach(), all_gather)
    return torch.cat(blocks), sum(map(len, blocks[: get_rank()]))


def _gather(rows: Tensor, gather: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Return the rows of each rank. Smaller batches are padded to the largest, and cut again."""
    sizes = all_gather(torch.tensor([len(rows)], device=rows.device)).tolist()
    padded = gather(F.pad(rows, (0, 0, 0, max(sizes) - len(rows))))
    return [block[:size] for block, size in zip(padded.split(max(sizes)), sizes, strict=True)]
