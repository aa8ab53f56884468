"""Limits on the gradients of additional objectives, at the encoder's outputs that they read."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from sentence_transformers.util import get_world_size
from torch import Tensor

from sbert_plugins import functional


class _Scaled(torch.autograd.Function):
    """The identity, with a gradient that is multiplied by the factor of a tap."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tap: "GradientTap") -> Tensor:
        ctx.tap = tap  # not its factor, which is set between forward and backward
        ctx.original = x
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        factor = ctx.tap.factor
        return gradient if factor is None else gradient * factor.to(gradient.dtype), None


class GradientTap:
    """A point between the encoder's outputs and one objective, at which the gradient can be scaled later.

    The objective reads ``tap(output)`` instead of ``output``. Both have the same values.
    """

    def __init__(self) -> None:
        self.factor: Tensor | None = None
        # Pairs: an output of the encoder, and its copy behind this tap, which the objective reads.
        self.tensors: list[tuple[Tensor, Tensor]] = []
        self.rows: slice | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Return ``x`` behind this tap."""
        if not (torch.is_grad_enabled() and x.requires_grad):
            return x
        behind = _Scaled.apply(x, self)
        self.tensors.append((_without_taps(x), behind))
        return behind

    def watch(self, output: Tensor, rows: slice) -> None:
        """Measure the gradient at some rows of an output that the objective reads without a tap."""
        self.rows = rows
        output = _without_taps(output)
        self.tensors.append((output, output))


def _without_taps(x: Tensor) -> Tensor:
    while (original := getattr(x.grad_fn, "original", None)) is not None:
        x = original
    return x


def bound_gradients(
    main: tuple[Tensor, GradientTap], others: Mapping[str, tuple[Tensor, GradientTap]], *, balance: float
) -> dict[str, Tensor]:
    """Limit the gradient of each other objective to a multiple of the main objective's gradient.

    Call this function between forward and backward. It sets the factors of the taps by
    :func:`functional.balance_factor`, the same in all processes. For that it computes the gradients at the
    taps, from the losses to the encoder's outputs. The backward pass computes them again, and goes on through
    the encoder.

    Args:
        main: Value of the main objective, and the tap through which it read.
        others: Value and tap of each other objective, by name.
        balance: Largest norm of another gradient, as a multiple of the main one's.

    Returns:
        Diagnostics: ``balance_factor``, ``balance_share`` (share of the limited gradient in the sum of both
        norms) and ``balance_cosine`` (cosine of the two gradients). With several others their keys begin
        with ``name_``.
    """
    taps = [main[1], *(tap for _, tap in others.values())]
    if not any(tap.tensors for tap in taps):  # an evaluation
        return {}
    leading = _gradients(*main)
    products = [_dot(leading, leading)]
    for other in others.values():
        gradients = _gradients(*other)
        products += [_dot(gradients, gradients), _dot(leading, gradients)]
    device = next(tap.tensors[0][0].device for tap in taps if tap.tensors)
    sums = torch.stack([torch.as_tensor(each, device=device, dtype=torch.float32) for each in products])
    if get_world_size() > 1:
        dist.all_reduce(sums)
    tiny = torch.finfo(sums.dtype).tiny
    own = sums[0]
    diagnostics: dict[str, Tensor] = {}
    for (name, (_, tap)), (squared, product) in zip(others.items(), sums[1:].view(-1, 2), strict=True):
        tap.factor = functional.balance_factor(own.sqrt(), squared.sqrt(), balance=balance)
        limited = tap.factor * squared.sqrt()
        prefix = f"{name}_" if len(others) > 1 else ""
        diagnostics |= {
            f"{prefix}balance_factor": tap.factor,
            f"{prefix}balance_share": limited / (own.sqrt() + limited).clamp(min=tiny),
            f"{prefix}balance_cosine": product / (own * squared).sqrt().clamp(min=tiny),
        }
    for tap in taps:
        tap.tensors.clear()  # a tap and its graph hold each other, until Python's cycle collector runs
    return diagnostics


def _gradients(value: Tensor, tap: GradientTap) -> dict[int, Tensor]:
    """Return the gradient of ``value`` at each output behind a tap, by the output's id."""
    if not value.requires_grad or not tap.tensors:
        return {}
    found = torch.autograd.grad(
        value, [behind for _, behind in tap.tensors], retain_graph=True, allow_unused=True
    )
    sums: dict[int, Tensor] = {}
    for (output, _), gradient in zip(tap.tensors, found, strict=True):
        if gradient is not None:
            gradient = gradient.float()
            if tap.rows is not None:
                rows = torch.zeros_like(gradient)
                rows[tap.rows] = gradient[tap.rows]
                gradient = rows
            sums[id(output)] = sums.get(id(output), 0) + gradient
    return sums


def _dot(first: Mapping[int, Tensor], second: Mapping[int, Tensor]) -> Tensor | float:
    return sum(((first[key] * second[key]).sum() for key in first.keys() & second.keys()), start=0.0)
