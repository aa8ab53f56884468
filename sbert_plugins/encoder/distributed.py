"""Rows of other processes, as additional negatives."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from sentence_transformers.util import all_gather, all_gather_with_grad, get_rank, get_world_size
from torch import Tensor


def rows_of_other_ranks(rows: Tensor) -> Tensor | None:
    """Gather the rows of all other processes, with gradients. Every rank must call this in the same step.

    Ranks may have batches of different sizes, as at the end of an epoch.

    Args:
        rows: (B, D) of this rank.

    Returns:
        (N, D) in the order of the ranks, or None in a single process.
    """
    if get_world_size() == 1:
        return None
    everyone, first = _gather(rows, all_gather_with_grad)
    return torch.cat([everyone[:first], everyone[first + len(rows) :]])


@torch.no_grad()
def rows_of_all_ranks(rows: Tensor) -> tuple[Tensor, int]:
    """Gather the rows of all processes, without gradients, in the same order on every rank.

    Args:
        rows: (B, D) of this rank. Sizes may differ between ranks.

    Returns:
        (N, D), and the index of the first row of this rank.
    """
    return (rows.detach(), 0) if get_world_size() == 1 else _gather(rows.detach(), all_gather)


def _gather(rows: Tensor, gather: Callable[[Tensor], Tensor]) -> tuple[Tensor, int]:
    """Return the rows of all ranks, and the index of the first row of this rank."""
    sizes = all_gather(torch.tensor([len(rows)], device=rows.device)).tolist()
    # Smaller batches travel padded to the size of the largest.
    padded = gather(F.pad(rows, (0, 0, 0, max(sizes) - len(rows)))).split(max(sizes))
    everyone = torch.cat([block[:size] for block, size in zip(padded, sizes, strict=True)])
    return everyone, sum(sizes[: get_rank()])
