"""ConSERT's views of a sentence: changes inside the encoder's embeddings."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from .model import is_compiled, transformer_of, unwrap
from .tokens import random_subset

VIEW_PARTS = ("feature_cutoff", "token_cutoff", "token_shuffling", "dropout")


class View:
    """One random view of a batch, which can be applied again to other tokens of the same shape.

    Args:
        parts: Names from :data:`VIEW_PARTS`. The encoder itself applies ``"dropout"``.
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
        self.shape = content.shape
        # (B, L), for each place the old place of its new token.
        self.order = _shuffle(content) if "token_shuffling" in parts else None
        self.cut_tokens = random_subset(content, token_cutoff_rate) if "token_cutoff" in parts else None
        self._feature_cutoff_rate = feature_cutoff_rate if "feature_cutoff" in parts else None
        self._cut_features: Tensor | None = None  # drawn when the width of the embeddings is known

    @property
    def is_plain(self) -> bool:
        """Return whether the view changes nothing itself."""
        return self.order is None and self.cut_tokens is None and self._feature_cutoff_rate is None

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
        """Return (B, L) bool: the new places of the ``marked`` (B, L) tokens, without those that are cut."""
        moved = marked if self.order is None else marked.gather(1, self.order)
        return moved if self.cut_tokens is None else moved & ~self.cut_tokens


@contextmanager
def apply_views(model: nn.Module, *views: View) -> Iterator[None]:
    """Apply views to each pass inside the block. With several views, each gets an equal block of the rows.

    Forward hooks change the word embeddings (shuffling) and the input of the first layer (cutoffs). Ids,
    masks and positions stay as they are.

    Raises:
        ValueError: If hooks cannot change the encoder's embeddings (XLNet), or torch.compile has wrapped the
            model, where hooks do nothing.
    """
    if all(view.is_plain for view in views):
        yield
        return
    if is_compiled(model):
        raise ValueError("Views of ConSERTLoss do not work with torch.compile: train without it.")
    encoder = transformer_of(model)
    unsupported = ValueError(
        f"ConSERTLoss changes embeddings, which does not work for {type(encoder).__name__}. Use another "
        'encoder, or first_view=second_view=("dropout",).'
    )
    changed: set[object] = set()

    def hook_for(change: Callable[[View, Tensor], Tensor]) -> Callable[..., Tensor]:
        def hook(module: nn.Module, arguments: object, output: Tensor) -> Tensor:
            changed.add(change)
            blocks = []
            for view, rows in zip(views, output.chunk(len(views)), strict=True):
                count, length = view.shape
                if rows.ndim != 3 or len(rows) != count or rows.shape[1] < length:
                    raise unsupported
                # Longformer adds padding behind the tokens, to fill its attention window.
                blocks.append(torch.cat([change(view, rows[:, :length]), rows[:, length:]], dim=1))
            return torch.cat(blocks)

        return hook

    def check(*_: object) -> None:
        if len(changed) < 2:
            raise unsupported

    table = encoder.get_input_embeddings()
    # T5 holds its table in two modules, and reads the one that this method does not return.
    words = [each for each in encoder.modules() if type(each) is type(table) and each.weight is table.weight]
    # Without a module for all embeddings, the word embeddings are the first layer's input.
    embeddings = getattr(encoder, "embeddings", None)
    inputs = words if embeddings is None else [embeddings]
    handles = [module.register_forward_hook(hook_for(View.change_words)) for module in words]
    handles += [module.register_forward_hook(hook_for(View.change_inputs)) for module in inputs]
    # After the encoder, if it runs: MatryoshkaLoss takes its later passes from a cache.
    handles.append(unwrap(model)[0].register_forward_hook(check))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _shuffle(content: Tensor) -> Tensor:
    """Return (B, L), for each place the old place of its new token. Only content tokens move."""
    places = torch.arange(content.shape[1], device=content.device).expand_as(content)
    behind = places + content.shape[1]
    in_order = torch.where(content, places, behind).argsort(dim=1)  # content first, then the others
    draws = torch.rand(content.shape, device=content.device)
    at_random = torch.where(content, draws, behind.to(draws.dtype) + 1).argsort(dim=1)
    return places.scatter(1, in_order, at_random)
