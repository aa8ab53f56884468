"""Passes of the encoder: what they give, kept; one for several losses that would each make the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.merged_forward import column_merging_disabled
from torch import Tensor, nn

from .distributed import is_compiled, unwrap
from .mask_template import has_mask_template
from .views import active_view

ENCODER_TOKENS = "encoder_token_embeddings"


def sentence_width(model: SentenceTransformer) -> int:
    """Return the width of the sentence vectors that a pass gives; ``truncate_dim`` cuts only those of ``encode``."""
    truncate_dim, model.truncate_dim = model.truncate_dim, None
    try:
        return model.get_embedding_dimension()
    finally:
        model.truncate_dim = truncate_dim


@contextmanager
def encoder_tokens_kept(model: nn.Module) -> Iterator[None]:
    """Add to what each pass gives, as :data:`ENCODER_TOKENS`, the token embeddings as the first module made them.

    Those that come out at the end may be weighted for the pooling: a mask template sets all but one to 0.

    Raises:
        ValueError: For a compiled encoder with a mask template, which gives those alone.
    """
    if is_compiled(model) and has_mask_template(unwrap(model)):
        raise ValueError(
            "an encoder with a mask template must not be compiled, got one that torch.compile has wrapped: its token "
            "embeddings come out weighted for the pooling, all but one 0. Train without torch_compile."
        )

    def keep(module: nn.Module, arguments: object, output: dict[str, Any]) -> None:
        if "token_embeddings" in output:
            output[ENCODER_TOKENS] = output["token_embeddings"]

    hook = unwrap(model)[0].register_forward_hook(keep)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def shared_passes(model: nn.Module) -> Iterator[Callable[[], None]]:
    """Answer a pass over the same tensors as one before from memory, inside the block.

    Yields a function to call before each loss. The first pass of a loss over a column is answered by the first pass of the
    losses before it, its second by their second: two passes of one loss stay two dropout views. Passes are the same if they
    read the same tensors (not copies of them) in the same mode; columns are not merged, since a merged batch is a copy.
    Passes with a :class:`View` are made anew.
    """
    encoder = unwrap(model)
    forward = encoder.forward
    made: dict[tuple, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    asked: dict[tuple, int] = {}

    def remembered(features: dict[str, Any], **keywords: Any) -> dict[str, Any]:
        if active_view(encoder) is not None:
            return forward(features, **keywords)
        tensors = tuple((name, id(value) if isinstance(value, Tensor) else repr(value)) for name, value in features.items())
        key = (tensors, repr(keywords), encoder.training, torch.is_grad_enabled())
        passes, number = made.setdefault(key, []), asked.get(key, 0)
        asked[key] = number + 1
        if number == len(passes):
            # The input is kept, too: the id of a tensor that is gone may be another's.
            passes.append((dict(features), dict(forward(features, **keywords))))
        features.update(passes[number][1])  # as the encoder does: the caller's dict is filled and returned
        return features

    encoder.forward = remembered
    try:
        with column_merging_disabled(), encoder_tokens_kept(model):
            yield asked.clear
    finally:
        del encoder.forward
        if encoder.forward != forward:  # a block inside another block
            encoder.forward = forward
