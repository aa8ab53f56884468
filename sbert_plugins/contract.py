"""What a loss is to those who train it: what it returns and may be asked, how it begins a forward, what it was built with."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Protocol, runtime_checkable

import torch
from sentence_transformers.base.model import BaseModel
from sentence_transformers.sentence_transformer import losses as host_losses
from sentence_transformers.sentence_transformer.losses.adaptive_layer import TransformerDecorator
from sentence_transformers.sentence_transformer.losses.matryoshka import ForwardDecorator
from torch import Tensor, nn

from sbert_plugins.encoder import (
    Encoder,
    freeze_mask_template,
    is_training,
    require_sentence_encoder,
    rows_of_other_ranks,
    unwrap,
    without_ddp,
)

logger = logging.getLogger(__name__)
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


class Terms(dict[str, Tensor]):
    """Named terms of a loss, to be summed, that can be added and scaled like their sum: term by term.

    The trainer takes a dict of terms, to log each; sentence-transformers' losses round a loss take a number, which they
    weight and add (``MatryoshkaLoss``: ``loss = 0.0``, then ``loss += weight * self.loss(...)``). This is both.
    """

    def __add__(self, other: Terms | float) -> Terms:
        """Add the terms of the same name; 0, where a sum begins, changes nothing."""
        if isinstance(other, Terms):
            both = {name: self[name] + other[name] for name in self.keys() & other.keys()}
            return Terms({name: both.get(name, part) for name, part in {**self, **other}.items()})
        return self if _is_weight(other) and other == 0 else NotImplemented

    __radd__ = __add__

    def __mul__(self, weight: float | Tensor) -> Terms:
        """Scale each term."""
        return Terms({name: weight * term for name, term in self.items()}) if _is_weight(weight) else NotImplemented

    __rmul__ = __mul__


@runtime_checkable
class Loss(Protocol):
    """A loss of this library, an ``nn.Module`` round ``model``: what trainers, and losses round it, may ask of it.

    Of any other loss they ask the same where it is there. Where there are any they use ``diagnostics`` (detached scalars of
    the last batch, logged and never summed; NaN where it had nothing to judge), ``state_is_kept`` (whether somebody saves
    what it owns; set by who does), ``training_steps`` (updates of the whole training; set by who knows) and
    ``begin_training(resumed=...)`` (called by them).
    """

    @property
    def model(self) -> Any:
        """The encoder, which a trainer may wrap."""

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Mapping[str, Tensor]:
        """Compute the weighted terms of one batch: ``compute_loss_from_passes`` with an encoder of its own."""

    def compute_loss_from_passes(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Terms:
        """Compute the weighted terms, each pass asked of ``encode``: a loss round this one shares, reads or replaces them.

        ``encode(columns, ...)`` makes passes, ``encode.any_pass(column)`` takes one that is there, however seen.
        """

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings: for the model card, and for a resumed training, which must have the same."""

    @property
    def citation(self) -> str:
        """BibTeX for the model card."""


# Weights of what is left out of a loss that is built with 0.
_WITH_PARTS = {"adversarial_weight", "denoising_weight", "filtering_weight", "mlm_weight", "triplet_weight"}


class LossModule(nn.Module):
    """What the losses of this library are: of a built one a keyword that it reads no more cannot be set.

    It would be shown, in the model card and to a training that resumes, and would change nothing.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        """Set what is read.

        Raises:
            AttributeError: For a keyword that only decides how the loss is built, or a weight that was 0, without its parts.
        """
        settings = self.__dict__.get("settings", {})
        if name in settings and "state_is_kept" in self.__dict__:  # which comes last
            is_read = name in {**vars(self), **dict(self.named_children())}
            is_read = is_read or isinstance(getattr(type(self), name, None), property)
            kind, was = type(self).__name__, settings[name]
            lacks_parts = name in _WITH_PARTS and was == 0
            if value != was and (lacks_parts or not is_read):
                raise AttributeError(
                    f"{name} decides how {kind} is built, which was with {was!r}: build {kind}(model, {name}={value!r})."
                )
        super().__setattr__(name, value)


# Of the host, with what else has their forward: it embeds each column once, the first by itself, and reads the vectors.
_EMBEDS_EACH_COLUMN = (
    host_losses.ContrastiveLoss,
    host_losses.CoSENTLoss,
    host_losses.CosineSimilarityLoss,
    host_losses.DistillKLDivLoss,
    host_losses.GlobalOrthogonalRegularizationLoss,
    host_losses.MarginMSELoss,
    host_losses.MultipleNegativesRankingLoss,
    host_losses.OnlineContrastiveLoss,
    host_losses.TripletLoss,
)


def asks_for_passes(loss: Any) -> bool:
    """Whether a loss takes its passes from who calls it, or embeds its columns in a ``forward`` that nobody can look into."""
    own = _definer(loss, "compute_loss_from_passes")
    if own is not None:  # a subclass with a forward of its own wants that to be called
        return issubclass(own, _definer(loss, "forward") or nn.Module)
    return type(loss).forward in [each.forward for each in _EMBEDS_EACH_COLUMN]


def value_of(
    loss: Any, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None
) -> Tensor | Mapping[str, Tensor]:
    """Compute a loss inside another one, whose encoder answers its passes where it asks for them."""
    if not asks_for_passes(loss):
        with encode.seen_from_outside():  # copies: the model writes its outputs into the dicts that it is given
            value = loss([dict(column) for column in columns], labels)
    elif hasattr(loss, "compute_loss_from_passes"):
        value = loss.compute_loss_from_passes(encode, columns, labels)
    else:
        passes = [*encode(columns[:1]), *encode(columns[1:])]
        value = loss.compute_loss_from_embeddings([one.vectors for one in passes], labels)
    check_value(loss, value)
    return value


def check_value(loss: object, value: object) -> None:
    """Refuse what no trainer can sum or train by, which is said far from the mistake otherwise.

    Raises:
        ValueError: If ``value`` is neither a tensor without dimensions nor a dict of them by name.
    """
    rule = f"{type(loss).__name__}.forward must return a scalar tensor, or a dict of them by name"
    if isinstance(value, Mapping):
        if not value:
            raise ValueError(f"{rule}, got an empty dict.")
        for name, term in value.items():
            if not isinstance(name, str) or not _is_scalar(term):
                raise ValueError(f"{rule}, got {_described(term)} under {name!r}.")
    elif not _is_scalar(value):
        raise ValueError(f"{rule}, got {_described(value)}.")


def _is_scalar(value: object) -> bool:
    return isinstance(value, Tensor) and value.ndim == 0


def _described(value: object) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)


def prefixed(name: str, value: Tensor | Mapping[str, Tensor]) -> Terms:
    """Name the terms of a loss inside another one: ``name/term``, or ``name`` for one that returns a number."""
    return Terms({f"{name}/{term}": part for term, part in value.items()} if isinstance(value, Mapping) else {name: value})


def one_or_two(loss: nn.Module, columns: Sequence[dict[str, Tensor]]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return anchor and positive of a contrastive loss, which are one where there is one column.

    Raises:
        ValueError: For another number of columns.
    """
    if len(columns) not in (1, 2):
        raise ValueError(
            f"{type(loss).__name__} reads one text column (anchor) or two (anchor, positive), got {len(columns)}: "
            "drop the others with dataset.select_columns(['anchor'])."
        )
    return columns[0], columns[-1]


def begin_forward(loss: Any, *, bypasses_ddp: bool = False, reads_tokens: bool = False) -> None:
    """Refuse wrappers and a tokenizer that the loss was not built with; in training say where nothing is saved or trained."""
    refuse_wrappers(loss, bypasses_ddp=bypasses_ddp, reads_tokens=reads_tokens)
    if (roles := getattr(loss, "tokens", None)) is not None:
        roles.check(unwrap(loss.model).tokenizer)
    if is_training(loss.model):
        freeze_mask_template(loss.model)
        warn_unless_kept(loss)
        require_trained(loss)
    else:
        warn_of_eval_mode(loss)


def refuse_wrappers(loss: Any, *, bypasses_ddp: bool = False, reads_tokens: bool = False) -> None:
    """Refuse the host's losses round a loss that would go wrong round this one; to be called in each forward.

    Args:
        loss: A loss around ``loss.model``.
        bypasses_ddp: Whether it makes passes beside a DistributedDataParallel wrapper, where ``MatryoshkaLoss`` cuts none.
        reads_tokens: Whether it reads the tokens of a pass, and what they were drawn to be.

    Raises:
        ValueError: Inside ``AdaptiveLayerLoss``, which hands layers from one call to the next in the dicts of the columns: a
            loss that passes a column twice, or changed, gives the model dicts of its own. Inside ``MatryoshkaLoss`` in
            several processes, if ``bypasses_ddp``; in one, too, if ``reads_tokens``, for it hands out its first pass again
            where another one was drawn.
    """
    name = type(loss).__name__
    if isinstance(unwrap(loss.model)[0].forward, TransformerDecorator):
        raise ValueError(
            f"{name} cannot be trained inside AdaptiveLayerLoss or Matryoshka2dLoss, which read the layers of one pass over "
            f"each column, and {name} makes passes of its own: train without them, or with MatryoshkaLoss."
        )
    if reads_tokens and isinstance(loss.model.forward, ForwardDecorator):
        raise ValueError(
            f"{name} reads the tokens of a pass, which MatryoshkaLoss makes once for all widths: put {name} round "
            "MatryoshkaLoss, not inside."
        )
    if bypasses_ddp and without_ddp(loss.model) is not loss.model and isinstance(loss.model.forward, ForwardDecorator):
        raise ValueError(
            f"{name} makes passes that MatryoshkaLoss does not cut in several processes: train it in one process, or leave "
            "out the term that makes them."
        )


def warn_unless_kept(loss: Any) -> None:
    """Warn, once a loss, that nobody saves its state; to be called in each training forward.

    ``loss.state_is_kept`` is set by ``training.SentenceTransformerTrainer`` and ``training.LossStateCallback``.
    """
    if not getattr(loss, "state_is_kept", True):
        loss.state_is_kept = True
        warnings.warn(
            f"{type(loss).__name__} owns weights that checkpoints of sentence-transformers' trainer do not hold: a resumed "
            "training would start them anew. Train with sbert_plugins.training.SentenceTransformerTrainer, or add "
            "callbacks=[sbert_plugins.training.LossStateCallback(loss)]. In a loop of your own, give the optimizer "
            "loss.parameters(), which are the encoder's and these, save loss.state_dict() and set loss.state_is_kept = True.",
            stacklevel=4,
        )


def warn_of_eval_mode(loss: Any) -> None:
    """Warn, once a loss, that a loop goes on in eval mode, in which ``encode`` and evaluators leave the encoder."""
    if getattr(loss, "has_warned_of_mode", False) or not torch.is_grad_enabled():
        return
    if any(parameter.requires_grad for parameter in loss.model.parameters()):
        loss.has_warned_of_mode = True
        logger.warning(
            "%s is computed with gradients while the encoder is in eval mode, as encode() and evaluators leave it: in a loop "
            "of your own call model.train() before you go on, and evaluate a loss under torch.no_grad().",
            type(loss).__name__,
        )


def talks_to_others(loss: nn.Module) -> bool:
    """Return whether a loss gathers or averages over processes in its forward: all must then compute it in the same step."""
    return any(
        getattr(part, "gather_across_devices", False) or getattr(part, "balance", None) is not None or hasattr(part, "queue")
        for part in loss.modules()
    )


def follow_mode(loss: Any) -> None:
    """Put the modules that a loss owns in its encoder's mode: a trainer and ``model.eval()`` reach the encoder only.

    Another encoder, and a teacher that a subclass holds, are in the mode that they were given.
    """
    training = is_training(loss.model)
    followed = loss.__dict__.setdefault("_followed", set())  # frozen parts, too, that an evaluation has put into eval mode
    for name, module in loss.named_children():
        if name != "model" and module.training != training and (name in followed or not keeps_its_mode(module)):
            module.train(training)
            followed.add(name)


def keeps_its_mode(module: nn.Module, *, of_model: Collection[int] = ()) -> bool:
    """Return whether a part of a loss is another encoder or, by its own parameters, frozen and in eval mode: a teacher."""
    own = [parameter for parameter in module.parameters() if id(parameter) not in of_model]
    is_frozen = bool(own) and not any(parameter.requires_grad for parameter in own)
    return isinstance(module, BaseModel) or (is_frozen and not module.training)


def require_trained(loss: Any) -> None:
    """Say where the encoder is not trained; to be called in each training forward.

    Raises:
        ValueError: If nothing is: encoder frozen, and no weight of the loss's own.
    """
    if not torch.is_grad_enabled() or any(parameter.requires_grad for parameter in loss.model.parameters()):
        return
    name = type(loss).__name__
    if not any(parameter.requires_grad for parameter in loss.parameters()):
        raise ValueError(
            f"{name} trains the encoder, got one whose parameters are all frozen: set requires_grad on those that shall "
            "learn, or add adapters, before training."
        )
    warnings.warn(
        f"the encoder is frozen: {name} trains only what it owns, and sentence vectors stay as they are. Set requires_grad on "
        "the encoder's parameters that shall learn.",
        stacklevel=4,
    )


def negatives_of(loss: Any, anchors: Tensor, positives: Tensor) -> Tensor | None:
    """Return the positives of other ranks where a contrastive loss gathers them, and check that there are negatives at all."""
    negatives = rows_of_other_ranks(positives) if loss.gather_across_devices else None
    check_negatives(loss, len(anchors) + (0 if negatives is None else len(negatives)))
    return negatives


def check_negatives(loss: Any, batch_size: int) -> None:
    """Refuse a first training batch of one sentence, warn of a later one (the rest of an epoch).

    Args:
        loss: A contrastive loss around ``loss.model``. It remembers in ``has_learned`` that a batch had some, and so does
            one that is resumed.
        batch_size: Sentences that are contrasted, those of other processes among them.

    Raises:
        ValueError: If the first training batch holds one sentence.
    """
    if not is_training(loss.model):
        return
    if not has_learned(loss, lambda: batch_size > 1):
        raise ValueError(
            f"{type(loss).__name__} takes the other sentences of a batch as negatives, got a batch of 1: "
            "raise per_device_train_batch_size to at least 2."
        )
    if batch_size < 2:
        logger.warning("A batch of one sentence has no negatives and gives no contrastive gradient.")


def has_learned(loss: Any, teaches: Callable[[], bool]) -> bool:
    """Whether a batch taught ``loss`` something, this one, which is asked until one did, or an earlier one of the training.

    It remembers that in ``has_learned``; what an evaluation has shown is of evaluations only.
    """
    trains = is_training(loss.model)
    found = getattr(loss, "has_learned", False) or (not trains and getattr(loss, "has_shown", False)) or teaches()
    setattr(loss, "has_learned" if trains else "has_shown", found)
    return found


def begin_init(loss: Any, given: Mapping[str, Any]) -> None:
    """Keep what a loss is built with, for :func:`settings_of`; called by its ``__init__`` with ``locals()``.

    A model without sentence vectors is refused. A mask template of its encoder is frozen: loading makes the 0-1 weights
    trainable.
    """
    require_sentence_encoder(given["model"])
    freeze_mask_template(given["model"])
    build = given["__class__"].__init__  # not that of a subclass
    names = [parameter.name for parameter in inspect.signature(build).parameters.values() if parameter.kind is _KEYWORD]
    loss.settings = {name: given[name] for name in names}


def settings_of(loss: Any) -> dict[str, Any]:
    """Return each keyword of a loss with its value: that of the attribute or property of the same name, which may change.

    What has a ``source`` (counts of tokens) is named by it and by its ``mark``: other counts may be from the same place.
    """
    # A part of the loss may have the name of the keyword that asks for it: a module is not among vars().
    values = {
        name: getattr(loss, name) if name in vars(loss) or isinstance(getattr(type(loss), name, None), property) else value
        for name, value in loss.settings.items()
    }
    return {name: _named(value) if hasattr(value, "source") else value for name, value in values.items()}


def _named(counts: Any) -> str:
    return f"{counts.source} [{counts.mark}]" if counts.source else counts.mark


def _is_weight(value: object) -> bool:
    return isinstance(value, Real) or _is_scalar(value)


def _definer(loss: nn.Module, name: str) -> type | None:
    return next((each for each in type(loss).__mro__ if name in vars(each)), None)
