"""Limits for the gradients of further objectives, at the encoder's outputs that they read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from sentence_transformers.util import get_world_size
from torch import Tensor

from sbert_plugins import functional


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, tap: GradientTap) -> Tensor:
        ctx.tap = tap  # its factor is set between forward and backward
        ctx.seen_of = x
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        factor = ctx.tap.factor
        return gradient if factor is None else gradient * factor.to(gradient.dtype), None


class GradientTap:
    """A place between the encoder's outputs and an objective, where the gradient can be scaled later."""

    def __init__(self) -> None:
        self.factor: Tensor | None = None
        self.tensors: list[
            tuple[Tensor, Tensor]
        ] = []  # an output, and the tensor that the objective reads instead
        self.rows: slice | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Return ``x`` behind this tap."""
        if not (torch.is_grad_enabled() and x.requires_grad):
            return x
        seen = _Scaled.apply(x, self)
        self.tensors.append((_without_taps(x), seen))
        return seen

    def watch(self, *outputs: Tensor, rows: slice | None = None) -> None:
        """Measure gradients at outputs that the objective reads directly, or at some of their rows."""
        self.rows = rows
        originals = [_without_taps(x) for x in outputs if torch.is_grad_enabled() and x.requires_grad]
        self.tensors += zip(originals, originals, strict=True)


def _without_taps(x: Tensor) -> Tensor:
    while (output := getattr(x.grad_fn, "seen_of", None)) is not None:
        x = output
    return x


def bound_gradients(
    main: tuple[Tensor, GradientTap], others: Mapping[str, tuple[Tensor, GradientTap]], *, balance: float
) -> dict[str, Tensor]:
    """Set the factors of the other objectives' taps by :func:`functional.balance_factor`.

    Call it between forward and backward. The gradients at the taps are computed here, and once more in the
    backward pass: the way from a loss to the vectors is computed twice, the encoder never. All processes use
    the same factor.

    Args:
        main: Value of the main objective, and the tap through which it read.
        others: Value and tap of each other objective, by name.
        balance: Largest norm of another gradient, as a multiple of the main one's.

    Returns:
        Diagnostics, with the prefix ``name_`` if there are several others: ``balance_factor``,
        ``balance_share`` (share of the limited gradient in the sum of both norms) and ``balance_cosine``
        (cosine of the two gradients).
    """
    taps = [main[1], *(tap for _, tap in others.values())]
    if not any(tap.tensors for tap in taps):  # an evaluation
        return {}
    leading = _gradients(*main)
    norms = [_squared_norm(leading)]
    for other in others.values():
        gradients = _gradients(*other)
        norms += [_squared_norm(gradients), _product(leading, gradients)]
    device = next(tap.tensors[0][0].device for tap in taps if tap.tensors)
    sums = torch.stack([torch.as_tensor(norm, device=device, dtype=torch.float32) for norm in norms])
    if get_world_size() > 1:
        dist.all_reduce(sums)
    own, *pairs = sums.unbind()
    diagnostics: dict[str, Tensor] = {}
    tiny = torch.finfo(sums.dtype).tiny
    for i, (name, (_, tap)) in enumerate(others.items()):
        squared, product = pairs[2 * i], pairs[2 * i + 1]
        factor = functional.balance_factor(own.sqrt(), squared.sqrt(), balance=balance)
        tap.factor = factor
        limited = factor * squared.sqrt()
        prefix = f"{name}_" if len(others) > 1 else ""
        diagnostics |= {
            f"{prefix}balance_factor": factor,
            f"{prefix}balance_share": limited / (own.sqrt() + limited).clamp(min=tiny),
            f"{prefix}balance_cosine": product / (own * squared).sqrt().clamp(min=tiny),
        }
    for tap in taps:
        tap.tensors.clear()  # each is held by its own graph, and would stay until Python looks for cycles
    return diagnostics


def _gradients(value: Tensor, tap: GradientTap) -> dict[int, Tensor]:
    """Return the gradient of ``value`` at each output behind a tap, by the output's id."""
    if not value.requires_grad or not tap.tensors:
        return {}
    found = torch.autograd.grad(
        value, [seen for _, seen in tap.tensors], retain_graph=True, allow_unused=True
    )
    sums: dict[int, Tensor] = {}
    for (output, _), gradient in zip(tap.tensors, found, strict=True):
        if gradient is not None:
            read = gradient.float()
            if tap.rows is not None:
                read = torch.zeros_like(read)
                read[tap.rows] = gradient[tap.rows].float()
            sums[id(output)] = sums.get(id(output), 0) + read
    return sums


def _squared_norm(gradients: Mapping[int, Tensor]) -> Tensor | float:
    return sum((gradient.pow(2).sum() for gradient in gradients.values()), start=0.0)


def _product(first: Mapping[int, Tensor], second: Mapping[int, Tensor]) -> Tensor | float:
    return sum(((first[key] * second[key]).sum() for key in first.keys() & second.keys()), start=0.0)
