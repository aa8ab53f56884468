"""The one way in which losses run the model: columns in, passes out. Several losses may share a pass."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from sentence_transformers.sentence_transformer.losses.matryoshka import ForwardDecorator
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import Tensor, nn

from sbert_plugins import host

from .balance import GradientTap
from .dropout import dropout_off
from .mask_template import has_token_weights
from .model import is_compiled, is_training, transformer_of, unwrap, without_ddp
from .views import View, apply_views

Column = dict[str, Any]


@dataclass(frozen=True)
class Pass:
    """The encoder's outputs for one column.

    Several columns may pass the encoder as one merged batch. The fields ``all_...`` hold all of its rows, and
    the properties those of this column. If the model ends with a ``Normalize`` module, ``vectors`` are the
    vectors before it: heads and decoders learn less from vectors of length 1, and cosines are the same.
    ``outputs`` are the vectors that the model returns.
    """

    all_vectors: Tensor  # (R, S) sentence vectors, before a final Normalize module
    all_tokens: Tensor | None  # (R, T, D) token embeddings, before the pooling weighs them
    all_attended: Tensor | None  # (R, T) attention mask, None for flattened batches
    rows: slice
    view: View | None = None
    dropout: bool = True  # whether dropout was on
    has_gradients: bool = True  # whether torch recorded the pass for a backward pass
    autocast: torch.dtype | None = None  # the dtype of autocast inside the encoder, None without autocast
    normalize: bool = False  # whether the model ends with a Normalize module

    @property
    def vectors(self) -> Tensor:
        """(B, S) sentence vectors."""
        return self.all_vectors[self.rows]

    @property
    def outputs(self) -> Tensor:
        """(B, S) sentence vectors, as the model returns them."""
        return nn.functional.normalize(self.vectors, dim=-1) if self.normalize else self.vectors

    @property
    def tokens(self) -> Any:
        """(B, T, D) token embeddings, or None if the model has none."""
        return None if self.all_tokens is None else self.all_tokens[self.rows]

    @property
    def attended(self) -> Tensor | None:
        """(B, T) attention mask."""
        return None if self.all_attended is None else self.all_attended[self.rows]

    def read_through(self, tap: GradientTap | None) -> "Pass":
        """Return the same values behind a tap, which can scale their gradient."""
        if tap is None:
            return self
        tokens = None if self.all_tokens is None else tap(self.all_tokens)
        return replace(self, all_vectors=tap(self.all_vectors), all_tokens=tokens)


class Encoder:
    """A callable that encodes columns during one forward of a loss, and remembers its passes.

    Args:
        model: The model, which DistributedDataParallel or torch.compile may wrap.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._made: list[tuple[Column, Pass]] = []

    def __call__(
        self,
        columns: Sequence[Column],
        *,
        views: Sequence[View] | None = None,
        dropout: bool | Sequence[bool] = True,
        tokens: bool = False,
        bypass_ddp: bool = False,
    ) -> list[Pass]:
        """Encode columns, in one forward if possible. The columns stay unchanged.

        Args:
            columns: Features of each column. A column that is given twice passes twice, with different
                dropout.
            views: Changes of the embeddings, one for each column.
            dropout: False switches the encoder's dropout off, for all columns or for each.
            tokens: Keeps the token embeddings of the first module.
            bypass_ddp: Runs the passes without DistributedDataParallel's forward. Needed for passes that not
                every rank makes.
        """
        on = [dropout] * len(columns) if isinstance(dropout, bool) else list(dropout)
        passes = self._run(columns, views, on, tokens, bypass_ddp)
        self._made += zip(columns, passes, strict=True)
        return passes

    def any_pass(self, column: Column) -> Pass:
        """Return a pass over a column for a loss that accepts any view. A sum of losses may share one."""
        return self([column])[0]

    def passes_over(self, column: Column) -> list[Pass]:
        """Return the passes over a column so far, in their order."""
        return [one for seen, one in self._made if seen is column]

    def _run(
        self,
        columns: Sequence[Column],
        views: Sequence[View] | None,
        dropout: list[bool],
        tokens: bool,
        bypass_ddp: bool,
    ) -> list[Pass]:
        model = without_ddp(self.model) if bypass_ddp else self.model
        if model is not self.model and isinstance(self.model.forward, ForwardDecorator):
            raise ValueError(
                "MatryoshkaLoss cannot cut the vectors of passes that not every process makes: train in one "
                "process, or with triplet_weight=0."
            )
        # A view has the shape of its own column, so different columns with views pass separately. Columns
        # of one length do so, too: each rank must make the same number of forwards.
        mergeable = views is None or all(column["input_ids"] is columns[0]["input_ids"] for column in columns)
        if len(columns) > 1 and len(set(dropout)) == 1 and mergeable:
            merged = merge_feature_batches(list(columns))
            if merged is not None:
                return _run_once(model, merged, views, dropout[0], tokens, len(columns))
        passes: list[Pass] = []
        for i, column in enumerate(columns):
            view = None if views is None else [views[i]]
            passes += _run_once(model, dict(column), view, dropout[i], tokens, 1)
        return passes


class MemberEncoder(Encoder):
    """The encoder that an inner loss gets. It passes the columns on to the outer loss's encoder.

    Args:
        outer: The outer loss's encoder.
        shares: Shares passes with the other members of a sum. The n-th pass of each member over a column,
            with the same dropout, is one pass. Two passes of one member stay two dropout views.
        tap: Tap through which this member reads the passes.
        tokens: Keeps the token embeddings in each pass.
    """

    def __init__(
        self, outer: Encoder, *, shares: bool = False, tap: GradientTap | None = None, tokens: bool = False
    ) -> None:
        super().__init__(outer.model)
        self._outer = outer
        self._shares = shares
        self._tap = tap
        self._tokens = tokens or shares

    def any_pass(self, column: Column) -> Pass:
        """Return an earlier pass of a sum over the column, in any view, or make a pass if there is none.

        An evaluation makes a pass in any case: it measures the text as it is, without altered views.
        """
        made = self._outer.passes_over(column) if self._shares and is_training(self.model) else []
        usable = [one for one in made if one.has_gradients or not torch.is_grad_enabled()]
        if not usable:
            return super().any_pass(column)
        found = usable[0].read_through(self._tap)
        self._made.append((column, found))
        return found

    def _run(
        self,
        columns: Sequence[Column],
        views: Sequence[View] | None,
        dropout: list[bool],
        tokens: bool,
        bypass_ddp: bool,
    ) -> list[Pass]:
        found: list[Pass | None] = [None] * len(columns)
        if self._shares and views is None:
            found = self._find_shared(columns, dropout)
        missing = [i for i, one in enumerate(found) if one is None]
        new = iter(
            self._outer(
                [columns[i] for i in missing],
                views=views,
                dropout=[dropout[i] for i in missing],
                tokens=tokens or self._tokens,
                bypass_ddp=bypass_ddp,
            )
        )
        return [(next(new) if one is None else one).read_through(self._tap) for one in found]

    def _find_shared(self, columns: Sequence[Column], dropout: list[bool]) -> list[Pass | None]:
        """Return for each column the first pass that this member has not read yet. None if there is none."""
        found: list[Pass | None] = []
        for i, (column, on) in enumerate(zip(columns, dropout, strict=True)):
            made, read = (_plain_passes(each, column, on) for each in (self._outer, self))
            # A column that is given twice needs two passes.
            earlier = [other for other in range(i) if columns[other] is column and dropout[other] == on]
            turn = len(read) + len(earlier)
            found.append(made[turn] if turn < len(made) else None)
        return found


def _plain_passes(encode: Encoder, column: Column, dropout: bool) -> list[Pass]:
    """Return the passes over a column without a view, as they would be made now."""
    key = (dropout and is_training(encode.model), torch.is_grad_enabled())
    passes = encode.passes_over(column)
    return [one for one in passes if one.view is None and (one.dropout, one.has_gradients) == key]


def _run_once(
    model: nn.Module, features: Column, views: Sequence[View] | None, dropout: bool, tokens: bool, count: int
) -> list[Pass]:
    """Run one forward over ``count`` merged columns and return the pass of each."""
    inside = unwrap(model)
    if tokens and is_compiled(model) and has_token_weights(inside):
        raise ValueError(
            "Token embeddings of a compiled model with a mask template or token weights cannot be read: "
            "train without torch.compile."
        )
    kept: dict[str, Any] = {"tokens": None, "autocast": None, "vectors": None}

    def keep(module: nn.Module, arguments: object, output: Column) -> None:
        if tokens:
            kept["tokens"] = output.get("token_embeddings")
        device = inside.device.type
        if torch.is_autocast_enabled(device):
            kept["autocast"] = torch.get_autocast_dtype(device)

    def keep_vectors(module: nn.Module, arguments: tuple[Column]) -> None:
        kept["vectors"] = arguments[0]["sentence_embedding"]

    with ExitStack() as stack:
        if views is not None:
            stack.enter_context(apply_views(model, *views))
        if not dropout:
            stack.enter_context(dropout_off(inside))
        hook = inside[0].register_forward_hook(keep)
        stack.callback(hook.remove)
        if isinstance(inside[-1], Normalize) and not isinstance(model.forward, ForwardDecorator):
            hook = inside[-1].register_forward_pre_hook(keep_vectors)
            stack.callback(hook.remove)
        output = model(features)
    # The outputs are later than the hook's tokens: token weights have changed them, and
    # DistributedDataParallel returns copies from which the vectors are not computed.
    found = output.get("token_embeddings") if kept["tokens"] is None else kept["tokens"]
    before = kept["vectors"]
    vectors = output["sentence_embedding"] if before is None else before
    size = len(vectors) // count
    return [
        Pass(
            vectors,
            found,
            output.get("attention_mask"),
            rows=slice(i * size, (i + 1) * size),
            view=None if views is None else views[i],
            dropout=dropout and is_training(model),
            has_gradients=torch.is_grad_enabled(),
            autocast=kept["autocast"],
            normalize=before is not None,
        )
        for i in range(count)
    ]


@torch.no_grad()
def input_embeddings(model: nn.Module, ids: Tensor) -> Tensor:
    """Return (B, L, E), the input of the encoder's first layer for (B, L) ids, without dropout."""
    encoder = transformer_of(model)
    embeddings = getattr(encoder, "embeddings", None) or encoder.get_input_embeddings()
    with dropout_off(embeddings):
        return embeddings(ids)


@torch.no_grad()
def first_token_is_blind(model: SentenceTransformer) -> bool:
    """Return whether a change of the last token leaves the vector of a text as it is.

    With [CLS] pooling that shows a causal model. The texts are made of ids, because a vocabulary may hold no
    word that could be written here (DNA, proteins).
    """
    tokenizer: Any = model.tokenizer
    ordinary = sorted({*tokenizer.get_vocab().values()} - {*tokenizer.all_special_ids})
    first, last = ordinary[0], ordinary[-1]
    ids = torch.tensor([[first, first], [first, last]], device=model.device)
    features = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with dropout_off(model), host.half_for_flash(model.transformers_model):
        one, other = model(features)["sentence_embedding"]
    return bool((one - other).abs().max() <= 1e-6 * one.abs().max())
