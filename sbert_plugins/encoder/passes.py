"""Passes of the encoder: what they give, kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from .distributed import is_compiled, transformer_of, unwrap
from .dropout import dropout_off
from .mask_template import has_mask_template

ENCODER_TOKENS = "encoder_token_embeddings"


def sentence_width(model: SentenceTransformer) -> int:
    """Return the width of the sentence vectors that a pass gives; ``truncate_dim`` cuts only those of ``encode``."""
    truncate_dim, model.truncate_dim = model.truncate_dim, None
    try:
        width = model.get_embedding_dimension()
    finally:
        model.truncate_dim = truncate_dim
    if width is None:
        raise ValueError(
            "the model must know the width of its sentence vectors, got None of get_embedding_dimension: end it with Pooling "
            "or another module that knows."
        )
    return width


@torch.no_grad()
def input_embeddings(model: nn.Module, ids: Tensor) -> Tensor:
    """Return (B, L, E), what the encoder's first layer reads of (B, L) ids: words, positions, norm; without dropout."""
    encoder = transformer_of(model)
    embeddings = getattr(encoder, "embeddings", None) or encoder.get_input_embeddings()
    with dropout_off(embeddings):
        return embeddings(ids)


@contextmanager
def encoder_tokens_kept(model: nn.Module) -> Iterator[list[Tensor]]:
    """Add to what each pass gives, as :data:`ENCODER_TOKENS`, the token embeddings as the first module made them.

    Those that come out at the end may be weighted for the pooling: a mask template sets all but one to 0.

    Yields:
        Those of each pass, as it ends; none of a compiled encoder.

    Raises:
        ValueError: For a compiled encoder with a mask template, which gives those alone.
    """
    if is_compiled(model) and has_mask_template(unwrap(model)):
        raise ValueError(
            "an encoder with a mask template must not be compiled, got one that torch.compile has wrapped: its token "
            "embeddings come out weighted for the pooling, all but one 0. Train without torch_compile."
        )

    kept: list[Tensor] = []

    def keep(module: nn.Module, arguments: object, output: dict[str, Any]) -> None:
        if "token_embeddings" in output:
            output[ENCODER_TOKENS] = output["token_embeddings"]
            kept.append(output["token_embeddings"])

    hook = unwrap(model)[0].register_forward_hook(keep)
    try:
        yield kept
    finally:
        hook.remove()
