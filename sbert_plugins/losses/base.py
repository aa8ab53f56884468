"""The base class of the losses, and how a loss computes another loss inside it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.model import BaseModel
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer import losses as st_losses
from sentence_transformers.sentence_transformer.losses.adaptive_layer import TransformerDecorator
from sentence_transformers.sentence_transformer.losses.matryoshka import ForwardDecorator
from torch import Tensor, nn

from sbert_plugins.encoder import Encoder, freeze_token_weights, is_training, unwrap


class Terms(dict[str, Tensor]):
    """Named terms of a loss. The trainer logs each and adds them up.

    ``MatryoshkaLoss`` multiplies the value of the loss inside it and adds up the products. Terms therefore
    support ``+`` and ``*``, term by term.
    """

    def __add__(self, other: Any) -> Terms:
        """Add the terms of the same names, or the number 0, with which a sum begins."""
        return Terms({name: self[name] + other[name] for name in {**self, **other}}) if other else self

    __radd__ = __add__

    def __rmul__(self, weight: float) -> Terms:
        """Scale each term."""
        return Terms({name: weight * term for name, term in self.items()})


class Loss(nn.Module):
    """A loss for sentence-transformers' trainers that returns named terms.

    Subclasses set :attr:`columns`, build their parts in ``__init__`` and write :meth:`compute`. Modules that
    a loss owns (heads, decoders) are attributes; they are trained with the encoder, saved in checkpoints by
    :class:`training.SentenceTransformerTrainer` and never part of the saved model.

    Args:
        model: The encoder that is trained.

    Raises:
        ValueError: If ``model`` is a Router of several encoders.

    Example:
        >>> from sbert_plugins.losses.base import Loss
        >>> class NormLoss(Loss):
        ...     def compute(self, encode, columns, labels):
        ...         (vectors,) = (one.vectors for one in encode(columns))
        ...         return {"norm": vectors.norm(dim=1).mean()}
    """

    citation: ClassVar[str] = ""
    """BibTeX for the model card."""

    columns: ClassVar[tuple[str, ...]] = ("anchor",)
    """Names of the text columns, which are taken by their order."""

    optional_columns: ClassVar[int] = 0
    """Number of the last columns that may be missing."""

    works_in_matryoshka: bool = True
    """True if ``MatryoshkaLoss``, which cuts the sentence vectors, may wrap this loss."""

    state_is_kept: bool = False
    """True if checkpoints hold the weights that this loss owns. The trainer sets it."""

    model: Any

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        inside = unwrap(model)
        if any(isinstance(module, Router) for module in inside.modules()):
            raise ValueError(
                "The model must have one encoder, got a Router. Build the loss on one of its routes."
            )
        freeze_token_weights(inside)  # they are trainable when the model is loaded
        self.model = model
        self._tokenizer = getattr(inside, "tokenizer", None)
        self.diagnostics: dict[str, Tensor] = {}
        """Detached scalars of the last batch, which are logged and never added to the loss."""

    def compute(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None
    ) -> Mapping[str, Tensor]:
        """Return the weighted terms of one batch.

        Args:
            encode: Runs the encoder. A loss around this one may share its passes with other losses.
            columns: Features of each text column.
            labels: Labels, where the dataset has some.
        """
        raise NotImplementedError

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card and for the check of a resumed training."""
        return {}

    def begin_training(self, *, steps: int, resumed: bool) -> None:
        """Prepare for a training of ``steps`` updates in all. The trainer calls this method."""

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Terms:
        """Return the weighted terms of one batch."""
        return self.compute_terms(Encoder(self.model), list(sentence_features), labels)

    def compute_terms(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None
    ) -> Terms:
        """Check the batch, put the loss's own modules into the encoder's mode, and call :meth:`compute`."""
        self.check_columns(columns)
        name, inside = type(self).__name__, unwrap(self.model)
        if isinstance(inside[0].forward, TransformerDecorator):
            raise ValueError(f"{name} does not work inside AdaptiveLayerLoss or Matryoshka2dLoss.")
        if isinstance(self.model.forward, ForwardDecorator) and not self.works_in_matryoshka:
            raise ValueError(
                f"{name} does not work inside MatryoshkaLoss with these settings, because it owns weights "
                "for full vectors or reads tokens."
            )
        if hasattr(self, "tokens") and self._tokenizer is not inside.tokenizer:
            raise ValueError(
                f"The model has another tokenizer than when {name} was built, for instance with a mask "
                "template. Change the model first, then build the loss."
            )
        training = is_training(self.model)
        if training and not self.state_is_kept:
            self._warn_if_not_saved()
        for child, module in self.named_children():
            # Losses inside this one set the mode of their own modules. The encoder keeps its mode.
            is_own = child not in ("model", "loss", "losses") and not isinstance(module, BaseModel)
            if is_own and module.training != training:
                module.train(training)
        return Terms(self.compute(encode, columns, labels))

    def check_columns(self, columns: Sequence[dict[str, Tensor]]) -> None:
        """Raise ``ValueError`` for another number of columns than the loss reads."""
        least = len(self.columns) - self.optional_columns
        if not least <= len(columns) <= len(self.columns):
            optional = f", the last {self.optional_columns} optional" if self.optional_columns else ""
            raise ValueError(
                f"{type(self).__name__} reads the text columns {', '.join(self.columns)}{optional}, "
                f"got {len(columns)} columns. Choose them with dataset.select_columns([...])."
            )

    def _warn_if_not_saved(self) -> None:
        for part in self.modules():
            if isinstance(part, Loss):
                part.state_is_kept = True  # one warning is enough
        encoder = {id(parameter) for parameter in unwrap(self.model).parameters()}
        if any(id(parameter) not in encoder for parameter in self.parameters()):
            warnings.warn(
                f"{type(self).__name__} owns weights that sentence-transformers' checkpoints do not hold, so "
                "a resumed training would start them anew. Train with "
                "sbert_plugins.training.SentenceTransformerTrainer, or add "
                "callbacks=[sbert_plugins.training.LossStateCallback(loss)].",
                stacklevel=6,
            )


# Losses of sentence-transformers whose forward is: embed each column, then compute_loss_from_embeddings.
_PLAIN_FORWARDS = {
    loss.forward
    for loss in (
        st_losses.ContrastiveLoss,
        st_losses.CoSENTLoss,
        st_losses.CosineSimilarityLoss,
        st_losses.DistillKLDivLoss,
        st_losses.GlobalOrthogonalRegularizationLoss,
        st_losses.MarginMSELoss,
        st_losses.MultipleNegativesRankingLoss,
        st_losses.OnlineContrastiveLoss,
        st_losses.TripletLoss,
    )
}


def check_inner_loss(argument: str, loss: Any, model: SentenceTransformer) -> None:
    """Raise ``ValueError`` unless ``loss`` can be computed inside another loss and trains ``model``."""
    if not isinstance(loss, Loss) and getattr(type(loss), "forward", None) not in _PLAIN_FORWARDS:
        raise ValueError(
            f"{argument} must be a loss of sbert_plugins, or one of sentence-transformers that only reads "
            f"the vectors of its columns (such as MultipleNegativesRankingLoss), got {type(loss).__name__}."
        )
    if unwrap(loss.model) is not unwrap(model):
        raise ValueError(
            f"{argument} must train the same model, got a {type(loss).__name__} with another one."
        )


def compute_inner_loss(
    name: str, loss: Any, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None
) -> tuple[Terms, dict[str, Tensor]]:
    """Compute a loss inside another one, with the passes of ``encode``.

    Returns:
        Its terms as ``name/term``, or a term ``name`` if the loss returns one number; and its diagnostics as
        ``name/key``.
    """
    if isinstance(loss, Loss):
        value: Any = loss.compute_terms(encode, columns, labels)
    else:
        # The first column has a pass of its own, as in sentence-transformers.
        passes = [*encode(columns[:1]), *encode(columns[1:])]
        value = loss.compute_loss_from_embeddings([one.vectors for one in passes], labels)
    diagnostics = {f"{name}/{key}": part for key, part in getattr(loss, "diagnostics", {}).items()}
    if isinstance(value, Mapping):
        return Terms({f"{name}/{term}": part for term, part in value.items()}), diagnostics
    return Terms({name: value}), diagnostics


def describe_loss(loss: Any) -> dict[str, Any]:
    """Return the class and the settings of a loss inside another one, for the outer loss's settings."""
    return {"class": type(loss).__name__, "settings": loss.get_config_dict()}
