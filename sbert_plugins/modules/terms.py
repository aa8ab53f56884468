"""What a loss returns, and which of the host's losses round a loss may call it."""

from __future__ import annotations

from numbers import Real

from sentence_transformers.sentence_transformer.losses.adaptive_layer import TransformerDecorator
from sentence_transformers.sentence_transformer.losses.matryoshka import ForwardDecorator
from torch import Tensor, nn

from .distributed import unwrap, without_ddp


class Terms(dict[str, Tensor]):
    """Named terms of a loss, to be summed, that can be added and scaled like their sum: term by term.

    The trainer takes a dict of terms, to log each; sentence-transformers' losses round a loss take a number, which they
    weight and add (``MatryoshkaLoss``: ``loss = 0.0``, then ``loss += weight * self.loss(...)``). This is both.
    """

    def __add__(self, other: Terms | Real) -> Terms:
        """Add the terms of the same name; 0, where a sum begins, changes nothing."""
        if isinstance(other, Terms):
            return Terms({name: _sum(self.get(name), other.get(name)) for name in {**self, **other}})
        return self if isinstance(other, Real) and other == 0 else NotImplemented

    __radd__ = __add__

    def __mul__(self, weight: Real | Tensor) -> Terms:
        """Scale each term."""
        return Terms({name: weight * term for name, term in self.items()}) if _is_weight(weight) else NotImplemented

    __rmul__ = __mul__


def refuse_wrappers(loss: nn.Module, *, bypasses_ddp: bool = False) -> None:
    """Refuse the host's losses round a loss that would go wrong round this one; to be called in each forward.

    Args:
        loss: A loss around ``loss.model``.
        bypasses_ddp: Whether it makes passes beside a DistributedDataParallel wrapper, where ``MatryoshkaLoss`` cuts none.

    Raises:
        ValueError: Inside ``AdaptiveLayerLoss``, which hands layers from one call to the next in the dicts of the columns: a
            loss that passes a column twice, or changed, gives the model dicts of its own. Inside ``MatryoshkaLoss`` in
            several processes, if ``bypasses_ddp``.
    """
    name = type(loss).__name__
    if isinstance(unwrap(loss.model)[0].forward, TransformerDecorator):
        raise ValueError(
            f"{name} cannot be trained inside AdaptiveLayerLoss or Matryoshka2dLoss, which read the layers of one pass over "
            f"each column, and {name} makes passes of its own: train without them, or with MatryoshkaLoss."
        )
    if bypasses_ddp and without_ddp(loss.model) is not loss.model and isinstance(loss.model.forward, ForwardDecorator):
        raise ValueError(
            f"{name} makes passes that MatryoshkaLoss does not cut in several processes: train it in one process, or leave "
            "out the term that makes them."
        )


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    return first if second is None else second if first is None else first + second


def _is_weight(value: object) -> bool:
    return isinstance(value, Real) or (isinstance(value, Tensor) and value.ndim == 0)
