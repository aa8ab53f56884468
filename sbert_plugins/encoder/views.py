"""ConSERT's views of a sentence: what is cut off or shuffled inside the encoder's embeddings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from transformers import PreTrainedModel

from sbert_plugins import host

from .distributed import is_compiled, transformer_of
from .dropout import dropout_off
from .tokens import random_subset

VIEWS = "views"  # the key under which a pass in views tells them
VIEW_PARTS = ("feature_cutoff", "token_cutoff", "token_shuffling", "dropout")


class View:
    """One drawn view of a batch, which can be applied again to other tokens of the same shape.

    Args:
        parts: Names of :data:`VIEW_PARTS`; ``"dropout"`` is the encoder's own and does nothing here.
        content: (B, L) bool, the tokens that may be cut or moved.
        feature_cutoff_rate: Share of a sentence's embedding features set to 0, the same ones at all its tokens.
        token_cutoff_rate: Share of its tokens whose embedding is set to 0.
    """

    def __init__(
        self, parts: Sequence[str], content: Tensor, *, feature_cutoff_rate: float = 0.2, token_cutoff_rate: float = 0.15
    ) -> None:
        self.length = content.shape[1]
        self.order = _shuffled_order(content) if "token_shuffling" in parts else None
        self.cut_tokens = random_subset(content, token_cutoff_rate) if "token_cutoff" in parts else None
        self._feature_cutoff_rate = feature_cutoff_rate if "feature_cutoff" in parts else None
        self._cut_features: Tensor | None = None  # drawn when the width is met: it is not the hidden size in ELECTRA

    def words(self, embeddings: Tensor) -> Tensor:
        """Shuffle (B, L, E) word embeddings, before positions are added to them."""
        return embeddings if self.order is None else embeddings.take_along_dim(self.order.unsqueeze(2), dim=1)

    def shown(self, marked: Tensor) -> Tensor:
        """Return at which places, (B, L) bool, it shows tokens that are marked so: moved with the others, and not cut off."""
        moved = marked if self.order is None else marked.gather(1, self.order)
        return moved if self.cut_tokens is None else moved & ~self.cut_tokens

    def inputs(self, embeddings: Tensor) -> Tensor:
        """Cut off features and tokens of what enters the first layer, (B, L, E)."""
        if self.cut_tokens is not None:
            embeddings = embeddings.masked_fill(self.cut_tokens.unsqueeze(2), 0.0)
        if self._feature_cutoff_rate is not None:
            if self._cut_features is None:
                everything = torch.ones_like(embeddings[:, 0], dtype=torch.bool)
                self._cut_features = random_subset(everything, self._feature_cutoff_rate)
            embeddings = embeddings.masked_fill(self._cut_features.unsqueeze(1), 0.0)
        return embeddings


@contextmanager
def viewed(model: nn.Module, *views: View) -> Iterator[None]:
    """Apply views to each pass inside the block; several views share its rows in equal blocks.

    Hooks on the encoder's embeddings, so that ids, masks and positions are the encoder's own: shuffling acts on the word
    embeddings, the cutoffs on the sum with positions that enters the first layer (where the encoder has such a module; on
    the word embeddings where not).

    Raises:
        ValueError: For a compiled encoder.
    """
    if is_compiled(model):
        raise ValueError(
            "the encoder must not be compiled, got one that torch.compile has wrapped: it would leave out the cutoffs and the "
            "shuffling that make a view. Train without torch_compile."
        )
    encoder = transformer_of(model)

    def tokens(change: Callable[[View, Tensor], Tensor], view: View, rows: Tensor) -> Tensor:
        if rows.shape[1] == view.length:
            return change(view, rows)
        # Behind a view's own tokens there is more padding: Longformer fills its attention's window.
        return torch.cat([change(view, rows[:, : view.length]), rows[:, view.length :]], dim=1)

    def applying(change: Callable[[View, Tensor], Tensor]) -> Callable[..., Tensor]:
        def hook(module: nn.Module, arguments: object, output: Tensor) -> Tensor:
            blocks = [tokens(change, view, rows) for view, rows in zip(views, output.chunk(len(views)), strict=True)]
            return blocks[0] if len(blocks) == 1 else torch.cat(blocks)

        return hook

    words, inputs = _embedding_modules(encoder)
    handles = [module.register_forward_hook(applying(View.words)) for module in words]
    handles += [module.register_forward_hook(applying(View.inputs)) for module in inputs]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def require_views(model: SentenceTransformer, needed_by: str) -> None:
    """Raise ``ValueError`` for an encoder whose embeddings a :class:`View` would miss or mistake, seen in a pass."""
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
    # Once the words, once what enters the first layer; there may be padding behind the tokens.
    if len(shapes) != 2 or any(len(shape) != 3 or shape[0] != rows or shape[1] < length for shape in shapes):
        raise ValueError(
            f"{needed_by} changes embeddings, which must come once a pass as (sentences, tokens, width), got "
            f"{' and '.join(map(str, dict.fromkeys(shapes))) or 'none'} from {type(encoder).__name__} for {rows} sentence of "
            f'{length} tokens: use an encoder of another family, or first_view=second_view=("dropout",).'
        )


def _embedding_modules(encoder: PreTrainedModel) -> tuple[list[nn.Module], list[nn.Module]]:
    """Return the modules that look up words, of which one runs in a pass, and those that give the first layer's input."""
    table = encoder.get_input_embeddings()
    # T5 has its table twice, and reads the one that it does not name.
    tables = [module for module in host.modules_of(encoder) if type(module) is type(table)]
    words = [module for module in tables if module.weight is table.weight]
    inputs = getattr(encoder, "embeddings", None)
    return words, words if inputs is None else [inputs]


def _shuffled_order(content: Tensor) -> Tensor:
    """Return (B, L), the place from which each place takes its token: content tokens permuted, all others where they were."""
    places = torch.arange(content.shape[1], device=content.device).expand_as(content)
    behind = places + content.shape[1]
    in_order = torch.where(content, places, behind).argsort(dim=1)  # content first, then the others
    draws = torch.rand(content.shape, device=content.device)
    at_random = torch.where(content, draws, behind.to(draws.dtype) + 1).argsort(dim=1)
    return places.scatter(1, in_order, at_random)
