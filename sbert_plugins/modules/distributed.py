"""Several processes: rows of the others as negatives, passes that not every process runs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from sentence_transformers.util import all_gather, all_gather_with_grad, get_rank, get_world_size
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def rows_of_other_ranks(rows: Tensor) -> Tensor | None:
    """Gather the rows of all other processes, with gradients; None in a single process.

    Batches may differ in size from rank to rank (the last ones of an epoch do): the sizes are gathered first, the rows
    padded to the largest and cut again. Every rank has to call this in the same step.

    Args:
        rows: (B, D), B of this rank.

    Returns:
        (N, D), in the order of the ranks.
    """
    if get_world_size() == 1:
        return None
    sizes = all_gather(torch.tensor([len(rows)], device=rows.device)).tolist()
    padded = all_gather_with_grad(F.pad(rows, (0, 0, 0, max(sizes) - len(rows))))
    blocks = padded.split(max(sizes))
    return torch.cat(
        [block[:size] for rank, (block, size) in enumerate(zip(blocks, sizes, strict=True)) if rank != get_rank()]
    )


def without_ddp(model: nn.Module) -> nn.Module:
    """Return the module inside a DistributedDataParallel wrapper, for a pass that not every rank runs.

    A wrapper's forward may talk to the other ranks and would wait for those that skip the pass. Gradients are averaged all
    the same, as long as every rank also runs one pass through the wrapper in the same step.
    """
    return model.module if isinstance(model, DistributedDataParallel) else model


def unwrap(model: nn.Module) -> nn.Module:
    """Return the SentenceTransformer inside DistributedDataParallel and torch.compile, for its parts; never to call it."""
    model = getattr(model, "module", model)
    return getattr(model, "_orig_mod", model)
