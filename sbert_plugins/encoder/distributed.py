"""Several processes: rows of the others as negatives, passes that not every process runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import all_gather, all_gather_with_grad, get_rank, get_world_size
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from transformers import PreTrainedModel

from sbert_plugins import host


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
    return torch.cat([block for rank, block in enumerate(_blocks(rows, all_gather_with_grad)) if rank != get_rank()])


@torch.no_grad()
def rows_of_all_ranks(rows: Tensor) -> tuple[Tensor, int]:
    """Gather the rows of all processes, without gradients: the same rows in the same order on every rank.

    Args:
        rows: (B, D), B of this rank; sizes may differ, as in :func:`rows_of_other_ranks`.

    Returns:
        (N, D), in the order of the ranks, and the number of the first one that is of this rank.
    """
    if get_world_size() == 1:
        return rows.detach(), 0
    blocks = _blocks(rows.detach(), all_gather)
    return torch.cat(blocks), sum(map(len, blocks[: get_rank()]))


def _blocks(rows: Tensor, gather: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Return the rows of each rank, their number gathered first."""
    sizes = all_gather(torch.tensor([len(rows)], device=rows.device)).tolist()
    padded = gather(F.pad(rows, (0, 0, 0, max(sizes) - len(rows))))
    return [block[:size] for block, size in zip(padded.split(max(sizes)), sizes, strict=True)]


def without_ddp(model: nn.Module) -> nn.Module:
    """Return the module inside a DistributedDataParallel wrapper, for a pass that not every rank runs.

    A wrapper's forward may talk to the other ranks and would wait for those that skip the pass. Gradients are averaged all
    the same, as long as every rank also runs one pass through the wrapper in the same step.
    """
    return next((each.module for each in _wrapped(model) if isinstance(each, DistributedDataParallel)), model)


def refuse_bypass(loss: Any, *members: nn.Module) -> None:
    """Refuse, in several processes, losses inside ``loss`` that all call the encoder beside DistributedDataParallel.

    The trainer puts the wrapper in the place of each attribute ``model``. Some losses of the host keep the encoder under
    another name; beside one that does not, the gradients of both are averaged.

    Raises:
        ValueError: If no member calls the wrapper: each process would train an encoder of its own.
    """
    is_wrapped = without_ddp(loss.model) is not loss.model
    if is_wrapped and not any(part is loss.model for member in members for part in member.modules()):
        names = ", ".join(dict.fromkeys(type(member).__name__ for member in members))
        raise ValueError(
            f"gradients are averaged over processes where a loss calls its encoder as self.model, which {names} inside "
            f"{type(loss).__name__} does not: train in one process, or add a loss that does to the sum."
        )


def unwrap(model: Any) -> SentenceTransformer:
    """Return the SentenceTransformer inside DistributedDataParallel and torch.compile, for its parts; never to call it."""
    return list(_wrapped(model))[-1]


def is_training(model: Any) -> bool:
    """Whether the encoder trains. Its wrapper may say otherwise: to evaluate, the host sets the mode of what is inside."""
    return unwrap(model).training


def transformer_of(model: nn.Module) -> PreTrainedModel:
    """Return the transformers encoder of a model that is known to have one."""
    encoder = unwrap(model).transformers_model
    assert encoder is not None, "losses that look into the encoder refuse others when they are built"
    return encoder


def is_compiled(model: nn.Module) -> bool:
    """Whether torch.compile has wrapped the model: hooks that are set later then do nothing, and nobody says so."""
    return any(host.inside_compiled(each) is not None for each in _wrapped(model))


def _wrapped(model: Any) -> Iterator[Any]:
    """Yield a model and what is inside it, one wrapper after the other: accelerate compiles last, people first."""
    inside = model
    while inside is not None:
        yield inside
        compiled = host.inside_compiled(inside)
        inside = getattr(inside, "module", None) if compiled is None else compiled
