"""ConSERT's views of a sentence: changes inside the encoder's embeddings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from transformers import PreTrainedModel

from sbert_plugins import host

from .dropout import dropout_off
from .model import is_compiled, transformer_of
from .tokens import random_subset

VIEW_PARTS = ("feature_cutoff", "token_cutoff", "token_shuffling", "dropout")


class View:
    """One random view of a batch, which can be applied again to other tokens of the same shape.

    Args:
        parts: Names from :data:`VIEW_PARTS`; ``"dropout"`` is the encoder's own and does nothing here.
        content: (B, L) bool, the tokens that may be set to 0 or moved.
        feature_cutoff_rate: Share of the embedding features that are set to 0, the same for all tokens of a
            sentence.
        token_cutoff_rate: Share of a sentence's tokens whose embeddings are set to 0.
    """

    def __init__(
        self,
        parts: Sequence[str],
        content: Tensor,
        *,
        feature_cutoff_rate: float = 0.2,
        token_cutoff_rate: float = 0.15,
    ) -> None:
        self.length = content.shape[1]
        self.order = _shuffle(content) if "token_shuffling" in parts else None
        self.cut_tokens = random_subset(content, token_cutoff_rate) if "token_cutoff" in parts else None
        self._feature_cutoff_rate = feature_cutoff_rate if "feature_cutoff" in parts else None
        self._cut_features: Tensor | None = (
            None  # drawn later: the embeddings may be narrower than the hidden size
        )

    def change_words(self, embeddings: Tensor) -> Tensor:
        """Shuffle (B, L, E) word embeddings, before positions are added to them."""
        return embeddings if self.order is None else embeddings.take_along_dim(self.order.unsqueeze(2), dim=1)

    def change_inputs(self, embeddings: Tensor) -> Tensor:
        """Set features and tokens of the first layer's (B, L, E) input to 0."""
        if self.cut_tokens is not None:
            embeddings = embeddings.masked_fill(self.cut_tokens.unsqueeze(2), 0.0)
        if self._feature_cutoff_rate is not None:
            if self._cut_features is None:
                everything = torch.ones_like(embeddings[:, 0], dtype=torch.bool)
                self._cut_features = random_subset(everything, self._feature_cutoff_rate)
            embeddings = embeddings.masked_fill(self._cut_features.unsqueeze(1), 0.0)
        return embeddings

    def shown(self, marked: Tensor) -> Tensor:
        """Return (B, L) bool: the places where the view shows tokens that are marked in (B, L)."""
        moved = marked if self.order is None else marked.gather(1, self.order)
        return moved if self.cut_tokens is None else moved & ~self.cut_tokens


@contextmanager
def apply_views(model: nn.Module, *views: View) -> Iterator[None]:
    """Apply views to each pass inside the block. Several views share its rows in equal blocks.

    Forward hooks change the word embeddings (shuffling) and the input of the first layer (cutoffs), so ids,
    masks and positions stay the encoder's.

    Raises:
        ValueError: If torch.compile has wrapped the model, where hooks do nothing.
    """
    if is_compiled(model):
        raise ValueError("Views of ConSERTLoss do not work with torch.compile: train without it.")

    def change_tokens(change: Callable[[View, Tensor], Tensor], view: View, rows: Tensor) -> Tensor:
        if rows.shape[1] == view.length:
            return change(view, rows)
        # Longformer adds padding behind the tokens, to fill its attention window.
        return torch.cat([change(view, rows[:, : view.length]), rows[:, view.length :]], dim=1)

    def hook_for(change: Callable[[View, Tensor], Tensor]) -> Callable[..., Tensor]:
        def hook(module: nn.Module, arguments: object, output: Tensor) -> Tensor:
            pairs = zip(views, output.chunk(len(views)), strict=True)
            blocks = [change_tokens(change, view, rows) for view, rows in pairs]
            return blocks[0] if len(blocks) == 1 else torch.cat(blocks)

        return hook

    words, inputs = _embedding_modules(transformer_of(model))
    handles = [module.register_forward_hook(hook_for(View.change_words)) for module in words]
    handles += [module.register_forward_hook(hook_for(View.change_inputs)) for module in inputs]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def require_views(model: SentenceTransformer, needed_by: str) -> None:
    """Run one pass, and raise ``ValueError`` if hooks cannot change the encoder's embeddings."""
    encoder = transformer_of(model)
    ids = model.tokenizer("a few words", return_tensors="pt")["input_ids"].to(model.device)
    words, inputs = _embedding_modules(encoder)
    shapes: list[tuple[int, ...]] = []
    hooks = [
        module.register_forward_hook(lambda module, arguments, output: shapes.append(tuple(output.shape)))
        for module in (*words, *inputs)
    ]
    try:
        with torch.no_grad(), dropout_off(encoder), host.half_for_flash(encoder):
            encoder(input_ids=ids)
    finally:
        for hook in hooks:
            hook.remove()
    rows, length = ids.shape
    # Expected: the words once, and the first layer's input once, maybe with padding behind the tokens.
    fit = [len(shape) == 3 and shape[0] == rows and shape[1] >= length for shape in shapes]
    if len(shapes) != 2 or not all(fit):
        raise ValueError(
            f"{needed_by} changes embeddings, which does not work for {type(encoder).__name__}. Use another "
            "encoder, or "
            'first_view=second_view=("dropout",).'
        )


def _embedding_modules(encoder: PreTrainedModel) -> tuple[list[nn.Module], list[nn.Module]]:
    """Return the modules that embed words, and those that return the first layer's input."""
    table = encoder.get_input_embeddings()
    # T5 holds its table twice, and reads the one that it does not name.
    tables = [module for module in host.modules_of(encoder) if type(module) is type(table)]
    words = [module for module in tables if module.weight is table.weight]
    inputs = getattr(encoder, "embeddings", None)
    return words, words if inputs is None else [inputs]


def _shuffle(content: Tensor) -> Tensor:
    """Return (B, L), for each place the place of its new token. Only content tokens move."""
    places = torch.arange(content.shape[1], device=content.device).expand_as(content)
    behind = places + content.shape[1]
    in_order = torch.where(content, places, behind).argsort(dim=1)  # content first, then the others
    draws = torch.rand(content.shape, device=content.device)
    at_random = torch.where(content, draws, behind.to(draws.dtype) + 1).argsort(dim=1)
    return places.scatter(1, in_order, at_random)
