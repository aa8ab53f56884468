"""The one way in which losses meet the model: columns in, passes out; what several losses ask for alike is made once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from torch import Tensor, nn

from .balance import GradientTap, outputs_tapped
from .distributed import is_training, unwrap, without_ddp
from .dropout import dropout_off
from .passes import encoder_tokens_kept
from .views import VIEWS, View, viewed

Column = dict[str, Any]


@dataclass(frozen=True)
class Pass:
    """What the encoder gave for one column, and how it saw the sentences.

    A merged pass holds the rows of further columns, too, and may be wider than this one's: ``all_`` names what it gave.
    """

    all_vectors: Tensor  # (R, S), the sentence vectors
    all_tokens: Tensor | None  # (R, T, D), as the first module made them: a mask template sets all but one to 0 later
    all_attended: Tensor | None  # (R, T), the attention mask; None for flattened batches
    rows: slice
    view: View | None = None
    dropout: bool = True  # as the encoder's mode had it

    @property
    def vectors(self) -> Tensor:
        """(B, S), of this column."""
        return self.all_vectors[self.rows]

    @property
    def tokens(self) -> Tensor | None:
        """(B, T, D), of this column; None from a model without token embeddings."""
        return None if self.all_tokens is None else self.all_tokens[self.rows]

    def require_tokens(self) -> Tensor:
        """Return :attr:`tokens`.

        Raises:
            ValueError: If the model gives none.
        """
        if self.tokens is None:
            raise ValueError("this loss reads token embeddings, got a model that gives none: begin it with a Transformer.")
        return self.tokens

    @property
    def attended(self) -> Tensor | None:
        """(B, T), of this column."""
        return None if self.all_attended is None else self.all_attended[self.rows]

    def read_through(self, tap: GradientTap | None) -> Pass:
        """Return the same values behind a tap, if there is one."""
        if tap is None:
            return self
        return replace(
            self,
            all_vectors=tap(self.all_vectors),
            all_tokens=None if self.all_tokens is None else tap(self.all_tokens),
        )


class Encoder:
    """The passes of one forward of a loss; it remembers them by the column that they read.

    Args:
        model: The encoder, wrapped by DistributedDataParallel or torch.compile or not.
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
        beside_ddp: bool = False,
    ) -> list[Pass]:
        """Embed columns, in one forward where they allow it. They stay as they are: the model writes into copies.

        Args:
            columns: Features of each. One that stands twice is seen twice, as two dropout views.
            views: What is cut off or shuffled in each; none by default.
            dropout: Whether the encoder's dropout stays as its mode has it, or is off.
            tokens: Whether the token embeddings are read that the first module makes: those at the end may be weighted.
            beside_ddp: For passes that not every process runs: not through DistributedDataParallel, which would wait.
        """
        passes = self._passes(columns, views, _each(dropout, columns), tokens, beside_ddp)
        self._made += zip(columns, passes, strict=True)
        return passes

    def any_pass(self, column: Column) -> Pass:
        """Return a pass over a column for a loss to which all views are alike: here, its own."""
        return self([column])[0]

    @contextmanager
    def seen_from_outside(self) -> Iterator[None]:
        """Inside the block, a loss that calls the model itself reads its passes as one that asks this would."""
        yield

    def over(self, column: Column) -> list[Pass]:
        """Return the passes over a column, in their order."""
        return [one for seen, one in self._made if seen is column]

    def _passes(
        self, columns: Sequence[Column], views: Sequence[View] | None, dropout: list[bool], tokens: bool, beside_ddp: bool
    ) -> list[Pass]:
        model = without_ddp(self.model) if beside_ddp else self.model
        merged = _merged(columns, views, dropout)
        if merged is not None:
            return _pass(model, merged, views, dropout[0], tokens, len(columns))
        drawn = [None] * len(columns) if views is None else [[view] for view in views]
        parts = zip(columns, drawn, dropout, strict=True)
        return [one for column, view, on in parts for one in _pass(model, dict(column), view, on, tokens, 1)]


class MemberEncoder(Encoder):
    """The passes of a loss inside another one, which asks the outer one's encoder.

    Args:
        whole: The outer loss's.
        shared: What the members of a sum share: the n-th pass of each over a column, seen alike, is one pass. Two passes of
            one member stay two dropout views.
        tap: What the member's objective reads the passes through.
        tokens: Whether each pass keeps the token embeddings of the first module.
    """

    def __init__(
        self,
        whole: Encoder,
        *,
        shared: SharedPasses | None = None,
        tap: GradientTap | None = None,
        tokens: bool = False,
    ) -> None:
        super().__init__(whole.model)
        self._whole = whole
        self._shared = shared
        self._tap = tap
        self._tokens = tokens or shared is not None
        self._asked = SharedPasses()

    def any_pass(self, column: Column) -> Pass:
        """Return the first that a member before this one made, if they share passes, in whatever view; else its own.

        Views are drawn: what is measured in evaluation is of the text as it is.
        """
        made = self._whole.over(column) if self._shared is not None and is_training(self.model) else []
        learning = [one for one in made if one.all_vectors.requires_grad or not torch.is_grad_enabled()]
        if not learning:
            return super().any_pass(column)
        self._made.append((column, learning[0].read_through(self._tap)))
        return self._made[-1][1]

    @contextmanager
    def seen_from_outside(self) -> Iterator[None]:
        """As the outer encoder has it, and then through the tap."""
        with self._whole.seen_from_outside(), outputs_tapped(self.model, self._tap) if self._tap else nullcontext():
            yield

    def _passes(
        self, columns: Sequence[Column], views: Sequence[View] | None, dropout: list[bool], tokens: bool, beside_ddp: bool
    ) -> list[Pass]:
        tokens = tokens or self._tokens
        if self._shared is None or views is not None:
            passes = self._whole(columns, views=views, dropout=dropout, tokens=tokens, beside_ddp=beside_ddp)
        else:
            passes = self._in_turn(self._shared, columns, dropout, tokens, beside_ddp)
        return [one.read_through(self._tap) for one in passes]

    def _in_turn(
        self, shared: SharedPasses, columns: Sequence[Column], dropout: list[bool], tokens: bool, beside_ddp: bool
    ) -> list[Pass]:
        """Return for each column the first pass that this member has not had yet; what nobody made is made in one forward."""
        made, had = (
            [known.over(column, on) for column, on in zip(columns, dropout, strict=True)] for known in (shared, self._asked)
        )
        # A column that stands twice is asked for twice.
        places = [len(had[i]) + sum(other is had[i] for other in had[:i]) for i in range(len(columns))]
        new = [i for i, place in enumerate(places) if place >= len(made[i])]
        if new:
            unseen, on = [columns[i] for i in new], [dropout[i] for i in new]
            for i, one in zip(new, self._whole(unseen, dropout=on, tokens=tokens, beside_ddp=beside_ddp), strict=True):
                made[i].append(one)
        passes = [known[place] for known, place in zip(made, places, strict=True)]
        for known, one in zip(had, passes, strict=True):
            known.append(one)
        return passes


class SharedPasses:
    """Passes by the column that they read, and how: the same dict, dropout alike, with gradients or without."""

    def __init__(self) -> None:
        self._made: list[tuple[Column, tuple[bool, bool], list[Pass]]] = []

    def over(self, column: Column, dropout: bool) -> list[Pass]:
        """Return the list of passes over a column, to be read and extended."""
        how = (dropout, torch.is_grad_enabled())
        for seen, as_seen, passes in self._made:
            if seen is column and as_seen == how:
                return passes
        self._made.append((column, how, []))
        return self._made[-1][2]


def _each(dropout: bool | Sequence[bool], columns: Sequence[Column]) -> list[bool]:
    return [dropout] * len(columns) if isinstance(dropout, bool) else list(dropout)


def _merged(columns: Sequence[Column], views: Sequence[View] | None, dropout: list[bool]) -> Column | None:
    """Return one batch of all columns; None where they must pass one by one."""
    # A view fits its own column only, not the wider rows of a pass over columns of two lengths. Where two have one length by
    # chance they pass one by one, too: processes that make different numbers of forwards would wait for each other.
    fits = views is None or all(column["input_ids"] is columns[0]["input_ids"] for column in columns)
    return merge_feature_batches(list(columns)) if len(columns) > 1 and len(set(dropout)) == 1 and fits else None


def _pass(
    model: nn.Module, features: Column, views: Sequence[View] | None, dropout: bool, tokens: bool, count: int
) -> list[Pass]:
    """Return what one forward over ``count`` columns gives for each."""
    with ExitStack() as stack:
        if views is not None:
            stack.enter_context(viewed(model, *views))
            features[VIEWS] = tuple(views)  # for who sees the pass from outside
        if not dropout:
            stack.enter_context(dropout_off(unwrap(model)))
        kept = stack.enter_context(encoder_tokens_kept(model)) if tokens else []
        on = is_training(model)
        output = model(features)
    # Not what a wrapper hands on: of DistributedDataParallel these are copies, which the sentence vectors do not come from.
    vectors, found = output["sentence_embedding"], kept[-1] if kept else output.get("token_embeddings")
    size = len(vectors) // count
    drawn: Sequence[View | None] = views or [None] * count
    return [
        Pass(vectors, found, output.get("attention_mask"), slice(i * size, (i + 1) * size), drawn[i], on) for i in range(count)
    ]
