"""Further objectives that may not drown the main one: their gradients are bounded where both reach the encoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from sentence_transformers.util import get_world_size
from torch import Tensor, nn

from sbert_plugins import functional

from .distributed import is_compiled, unwrap
from .passes import ENCODER_TOKENS


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
    """What an objective reads of the encoder's outputs: the same values, a gradient that is scaled by a factor set later."""

    def __init__(self) -> None:
        self.factor: Tensor | None = None  # 1
        self.tensors: list[tuple[Tensor, Tensor]] = []  # an output, and what the objective reads in its place
        self.rows: slice | None = None  # all

    def __call__(self, x: Tensor) -> Tensor:
        """Return ``x``, seen through this tap."""
        if not (torch.is_grad_enabled() and x.requires_grad):
            return x
        seen = _Scaled.apply(x, self)
        self.tensors.append((_untapped(x), seen))
        return seen

    def watch(self, *outputs: Tensor, rows: slice | None = None) -> None:
        """Measure gradients at outputs, or these rows of them, that the objective reads as they are: they are not scaled."""
        self.rows = rows
        originals = [_untapped(x) for x in outputs if torch.is_grad_enabled() and x.requires_grad]
        self.tensors += zip(originals, originals, strict=True)


def _untapped(x: Tensor) -> Tensor:
    """Return the output that is seen through taps: of a pass it is one tensor, where each reader has its own behind a tap."""
    while (output := getattr(x.grad_fn, "seen_of", None)) is not None:
        x = output
    return x


def refuse_compiled(model: nn.Module) -> None:
    """Refuse an encoder that torch.compile has wrapped: hooks do nothing inside, tokens and vectors come out side by side."""
    if is_compiled(model):
        raise ValueError(
            "balance reads gradients at the encoder's outputs, got an encoder that torch.compile has wrapped: train without "
            "torch_compile, or with balance=None."
        )


@contextmanager
def outputs_tapped(model: nn.Module, tap: GradientTap) -> Iterator[None]:
    """Let what each pass gives be read through a tap, inside the block: for losses that do not ask an :class:`Encoder`.

    The tap is behind the last module, not behind the model: what ``MatryoshkaLoss`` makes of a pass, cut and normalised, once
    for each of its dimensions, it makes of what was read through the tap.

    Raises:
        ValueError: For a compiled encoder, which would leave the tap out.
    """
    refuse_compiled(model)

    def read(module: nn.Module, arguments: object, output: dict[str, Any]) -> None:
        for key in ("token_embeddings", "sentence_embedding", ENCODER_TOKENS):
            if key in output:
                output[key] = tap(output[key])

    hook = unwrap(model)[-1].register_forward_hook(read)
    try:
        yield
    finally:
        hook.remove()


def bound_gradients(
    main: tuple[Tensor, GradientTap], others: Mapping[str, tuple[Tensor, GradientTap]], *, balance: float | None
) -> dict[str, Tensor]:
    """Set the factors of the other objectives' taps: :func:`functional.balance_factor`, at all outputs that each reads.

    To be called between forward and backward. The gradients at the taps are computed here and, for the encoder's sake, once
    more in the backward pass: that costs the way from a loss to the vectors twice (a contrast, a decoder), never the
    encoder. Of several processes all take the same factor.

    Args:
        main: Value of the main objective, and the tap through which it read.
        others: Value and tap of each other one, by name.
        balance: Most that another gradient's norm may be, as a multiple of the main one's; None for no bound.

    Returns:
        Diagnostics, by ``name_`` where there are several: ``balance_factor``, ``balance_share`` (of the bounded gradient in
        the sum of the norms) and ``balance_cosine`` (of both gradients over all outputs that either reads: an objective's is
        0 at an output that it does not read).

    Raises:
        ValueError: If some read the encoder through their taps and others did not: these would not be bounded. If the main
            objective has no gradient at any of these outputs: the bound would be 0.
    """
    taps = [main[1], *(tap for _, tap in others.values())]
    read = [bool(tap.tensors) for tap in taps]
    if any(read) and not all(read):
        blind = [name for name, has_read in zip(("the main loss", *others), read, strict=True) if not has_read]
        raise ValueError(
            f"balance bounds gradients where losses read the encoder, got none for {' and '.join(blind)}, which embeds its "
            "columns later, or reads what an earlier call has kept: put MatryoshkaLoss round the member and not round the "
            "sum, or leave balance out."
        )
    try:
        return _bounded(main, others, balance) if any(read) and balance is not None else {}  # none: an evaluation
    finally:
        for tap in taps:
            tap.tensors.clear()  # each is held by its own graph, and would stay until Python looks for cycles


def bound_gradients_at(
    output: Tensor,
    main: Tensor,
    others: Mapping[str, tuple[Tensor, GradientTap]],
    *,
    balance: float | None,
    rows: slice | None = None,
) -> dict[str, Tensor]:
    """Bound as :func:`bound_gradients` does, at one output that the main objective reads as it is.

    Args:
        output: What all read. Where it has no gradient, as the tokens of a frozen transformer, there is nothing to bound.
        main: Value of the main objective.
        others: Value and tap of each other one, by name.
        balance: As there.
        rows: Those of the output at which gradients are measured; None for all.
    """
    if not output.requires_grad:
        for _, tap in others.values():
            tap.tensors.clear()  # what else the pass gave
        return {}
    watching = GradientTap()
    watching.watch(output, rows=rows)
    return bound_gradients((main, watching), others, balance=balance)


def _bounded(
    main: tuple[Tensor, GradientTap], others: Mapping[str, tuple[Tensor, GradientTap]], balance: float
) -> dict[str, Tensor]:
    leading = _gradients(*main)
    if not leading and main[0].requires_grad:
        raise ValueError(
            "balance bounds gradients by those of the main loss, got one that has none where the other reads the encoder (as "
            "one that detaches what this pass gave): use balance=None."
        )
    found = {name: _gradients(*other) for name, other in others.items()}
    norms = [_squared_norm(leading)]
    for gradients in found.values():
        norms += [_squared_norm(gradients), _product(leading, gradients)]
    sums = torch.stack([torch.as_tensor(value, device=main[1].tensors[0][0].device, dtype=torch.float32) for value in norms])
    if get_world_size() > 1:
        dist.all_reduce(sums)
    own, *pairs = sums.unbind()
    diagnostics: dict[str, Tensor] = {}
    tiny = torch.finfo(sums.dtype).tiny
    for place, (name, (_, tap)) in enumerate(others.items()):
        squared, product = pairs[2 * place], pairs[2 * place + 1]
        factor = functional.balance_factor(own.sqrt(), squared.sqrt(), balance=balance)
        tap.factor = factor
        prefix = f"{name}_" if len(others) > 1 else ""
        bounded = factor * squared.sqrt()
        diagnostics |= {
            f"{prefix}balance_factor": factor,
            f"{prefix}balance_share": bounded / (own.sqrt() + bounded).clamp(min=tiny),
            f"{prefix}balance_cosine": product / (own * squared).sqrt().clamp(min=tiny),
        }
    return diagnostics


def _gradients(value: Tensor, tap: GradientTap) -> dict[int, Tensor]:
    """Return the gradient of ``value`` at each output behind a tap, by the output's id."""
    if not value.requires_grad:
        return {}
    found = torch.autograd.grad(value, [seen for _, seen in tap.tensors], retain_graph=True, allow_unused=True)
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
