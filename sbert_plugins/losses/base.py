"""The base class of the losses, and how a loss computes another loss inside it."""

import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.model import BaseModel
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer import losses as st_losses
from sentence_transformers.sentence_transformer.losses.adaptive_layer import TransformerDecorator
from sentence_transformers.sentence_transformer.losses.matryoshka import ForwardDecorator
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import DEFAULT_CALLBACKS

from sbert_plugins.encoder import (
    Encoder,
    TokenRoles,
    freeze_token_weights,
    is_training,
    transformer_of,
    unwrap,
)


class Terms(dict[str, Tensor]):
    """Named terms of a loss. The trainer logs each and adds them up.

    ``MatryoshkaLoss`` multiplies the value of the loss inside it and adds up the products. Terms therefore
    support ``+`` and ``*``, term by term.
    """

    def __add__(self, other: Any) -> "Terms":
        """Add the terms of the same names, or the number 0, with which a sum begins."""
        return Terms({name: self[name] + other[name] for name in {**self, **other}}) if other else self

    __radd__ = __add__

    def __rmul__(self, weight: float) -> "Terms":
        """Scale each term."""
        return Terms({name: weight * term for name, term in self.items()})


class Loss(nn.Module):
    """A loss for sentence-transformers' trainers that returns named terms.

    Subclasses set :attr:`columns`, build their parts in ``__init__`` and write :meth:`compute`. Modules that
    a loss owns (heads, decoders) are attributes; they are trained with the encoder, saved in checkpoints by
    :class:`training.SentenceTransformerTrainer` and never part of the saved model.

    Args:
        model: The encoder that is trained.
        **settings: Keywords of the subclass. Each becomes an attribute and is part of its settings.

    Raises:
        ValueError: If ``model`` is a Router of several encoders, or does not begin with a transformer.

    Example:
        >>> from sbert_plugins.losses.base import Loss
        >>> class NormLoss(Loss):
        ...     def compute(self, encode, columns, labels):
        ...         (vectors,) = (one.vectors for one in encode(columns))
        ...         return {"norm": vectors.norm(dim=1).mean()}
    """

    #: BibTeX for the model card.
    citation: ClassVar[str] = ""

    #: Names of the text columns, which are taken by their order.
    columns: ClassVar[tuple[str, ...]] = ("anchor",)

    #: Number of the last columns that may be missing.
    optional_columns: ClassVar[int] = 0

    #: True if ``MatryoshkaLoss``, which cuts the sentence vectors, may wrap this loss.
    works_in_matryoshka: bool = True

    #: False if a batch is computed without the other processes. They could compute another dataset's loss.
    waits_for_other_ranks: bool = True

    #: True if checkpoints hold the weights that this loss owns. The trainer sets it.
    state_is_kept: bool = False

    #: Tokens that each text of a batch is truncated to; None for the model's limit. The trainer sets it.
    max_length: int | None = None

    model: Any

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return a setting or a buffer, which no assignment declares."""

    def __init__(self, model: SentenceTransformer, **settings: Any) -> None:
        super().__init__()
        inside = unwrap(model)
        if any(isinstance(module, Router) for module in inside.modules()):
            raise ValueError(
                "The model must have one encoder, got a Router. Build the loss on one of its routes."
            )
        transformer_of(inside)
        freeze_token_weights(inside)  # they are trainable when the model is loaded
        self.model = model
        self._settings = tuple(settings)
        for name, value in settings.items():
            setattr(self, name, value)
        #: Detached scalars of the last batch, which are logged and never added to the loss.
        self.diagnostics: dict[str, Tensor] = {}
        _losses.add(self)
        if _Observer not in DEFAULT_CALLBACKS:
            DEFAULT_CALLBACKS.append(_Observer)  # type: ignore[arg-type]

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
        """Return the settings as they are now, for the model card and for the check of a resumed training."""
        return {name: getattr(self, name) for name in self._settings}

    def begin_training(self, *, steps: int, resumed: bool) -> None:
        """Prepare for a training of ``steps`` updates in all. Any trainer calls this method."""

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
        roles = [part for part in self.children() if isinstance(part, TokenRoles)]
        if any(part.tokenizer is not inside.tokenizer for part in roles):
            raise ValueError(
                f"The model has another tokenizer than when {name} was built, for instance with a mask "
                "template. Change the model first, then build the loss."
            )
        training = is_training(self.model)
        for module in self.children():
            # An encoder keeps its mode. A part that holds one, such as an inner loss, sets the mode itself.
            holds_encoder = any(isinstance(part, BaseModel) for part in module.modules())
            if not holds_encoder and module.training != training:
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


# The losses in this process, which the callback below searches for those of a training.
_losses: weakref.WeakSet[Loss] = weakref.WeakSet()


class _Observer(TrainerCallback):
    """Informs losses of a training by a trainer that does not know them, such as that of ``fit``.

    It is one of the callbacks that transformers gives to each trainer, because ``fit`` takes none. This
    library's trainer and callback have set ``state_is_kept``, so it leaves their losses to them.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        for loss in _unkept_losses(**kwargs):
            loss.begin_training(steps=state.max_steps, resumed=state.global_step > 0)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        found = [] if args.save_only_model else _unkept_losses(**kwargs)
        parts = {part for loss in found for part in loss.modules() if part is not loss}
        for loss in found:
            loss.state_is_kept = True  # one warning is enough
            if loss not in parts:
                warnings.warn(
                    f"{type(loss).__name__} owns weights that this checkpoint does not hold, so a resumed "
                    "training would start them anew. Train with "
                    "sbert_plugins.training.SentenceTransformerTrainer, or give the trainer "
                    "callbacks=[sbert_plugins.training.LossStateCallback(loss)].",
                    stacklevel=2,
                )


def _unkept_losses(model: nn.Module, optimizer: torch.optim.Optimizer, **_: Any) -> list[Loss]:
    """Return the losses with weights of their own that a trainer trains, and does not save."""
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    encoder = {id(parameter) for parameter in model.parameters()}
    found = []
    for loss in list(_losses):
        own = [one for one in loss.parameters() if id(one) not in encoder]
        is_held = all(id(one) in held for one in own if one.requires_grad)
        if own and is_held and not loss.state_is_kept and unwrap(loss.model) is unwrap(model):
            found.append(loss)
    return found


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
        # The first column has a pass of its own, as in sentence-transformers, and two views of it share one.
        first = 1 if any(column is not columns[0] for column in columns) else 0
        passes = [*encode(columns[:first]), *encode(columns[first:])]
        value = loss.compute_loss_from_embeddings([one.outputs for one in passes], labels)
    diagnostics = {f"{name}/{key}": part for key, part in getattr(loss, "diagnostics", {}).items()}
    if isinstance(value, Mapping):
        return Terms({f"{name}/{term}": part for term, part in value.items()}), diagnostics
    return Terms({name: value}), diagnostics


def describe_loss(loss: Any) -> dict[str, Any]:
    """Return the class and the settings of a loss inside another one, for the outer loss's settings."""
    return {"class": type(loss).__name__, "settings": loss.get_config_dict()}
