"""The loss inside a loss: which one it may be, what it gives, and its passes over the first column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses import uses_gradient_cache
from torch import Tensor, nn

from sbert_plugins.contract import asks_for_passes, value_of
from sbert_plugins.encoder import Encoder, FirstPass, MemberEncoder, Pass, is_training


def check_inner(argument: str, loss: object, model: SentenceTransformer) -> None:
    """Refuse what is no loss around ``model``, wherever it keeps it: the host's have model, model2, encoder, or others."""
    if not isinstance(loss, nn.Module) or all(part is not model for part in loss.modules()):
        raise ValueError(f"{argument} must be a loss around the same model, got {type(loss).__name__} without it.")


def check_uncached(argument: str, loss: nn.Module) -> None:
    """Refuse a loss that embeds its columns in pieces, where gradients are read at what the encoder gives."""
    # The innermost: MatryoshkaLoss says so for what is in it.
    if cached := [type(part).__name__ for part in loss.modules() if uses_gradient_cache(part)]:
        without = cached[-1].removeprefix("Cached")
        way_out = f"use {without}" if without != cached[-1] else "build it without its cache (use_mini_batched_version=False),"
        raise ValueError(
            f"{argument} must embed its columns with gradients, got {cached[-1]}, which embeds them in pieces without, and "
            f"again later: {way_out} with a smaller batch."
        )


def inner_settings(loss: Any) -> dict[str, Any]:
    """Return the settings of a loss, where it tells them."""
    return loss.get_config_dict() if hasattr(loss, "get_config_dict") else {}


class InnerLoss:
    """Computes a loss, and finds its passes over the first column: asked of it, or the first seen by hooks."""

    def __init__(self) -> None:
        self._first_pass = FirstPass()

    def __call__(
        self, loss: nn.Module, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None
    ) -> tuple[Tensor | Mapping[str, Tensor], list[Pass]]:
        """Return the value of ``loss``, and the passes, the first of which is there.

        Raises:
            ValueError: If it does not embed the first column through its model, or does so without gradients.
        """
        if asks_for_passes(loss):
            member = MemberEncoder(encode, tokens=True)
            value, found = value_of(loss, member, columns, labels), member.over(columns[0])
        else:
            with encode.seen_from_outside():
                value, first = self._first_pass(encode.model, loss, columns, labels)
            found = [first]
        name = type(loss).__name__
        if not found:
            raise ValueError(
                f"the base loss must embed the first column through its model, which {name} did not: its columns may be in "
                "another order, or a member that embeds the column itself stands in a sum (build this loss round that member)."
            )
        if torch.is_grad_enabled() and is_training(encode.model) and not found[0].all_vectors.requires_grad:
            raise ValueError(
                f"the base loss must embed the first column with gradients, {name} did without "
                "(it caches gradients, or the encoder is frozen): use the loss without cache."
            )
        return value, found
