"""Several losses on one dataset, as one loss."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import (
    CachedGISTEmbedLoss,
    CachedMultipleNegativesRankingLoss,
    GISTEmbedLoss,
    MegaBatchMarginLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.sentence_transformer.losses.matryoshka import ForwardDecorator
from torch import Tensor, nn

from sbert_plugins import functional
from sbert_plugins.contract import Terms, prefixed, refuse_wrappers, require_trained, value_of
from sbert_plugins.encoder import (
    Encoder,
    GradientTap,
    MemberEncoder,
    SharedPasses,
    bound_gradients,
    freeze_mask_template,
    is_compiled,
    is_training,
    refuse_bypass,
    require_dropout,
    require_sentence_encoder,
    unwrap,
)
from sbert_plugins.losses.inner import check_inner, check_uncached, inner_settings

# Of one column twice they are SimCSE, whose views are of dropout; other losses may make views of their own.
_RANKING = (
    MultipleNegativesRankingLoss,
    CachedMultipleNegativesRankingLoss,
    GISTEmbedLoss,
    CachedGISTEmbedLoss,
    MegaBatchMarginLoss,
)


class WeightedSumLoss(nn.Module):
    r"""A weighted sum of losses that read the same batches: the vehicle of supervised PaSeR (eq. 5) and of any other mix.

    .. math:: L = \sum_k w_k L_k

    Losses that read one column share the encoder's passes over it: the first pass of each is one dropout view, the second of
    each another. Passes over changed columns (masked, in a view, without dropout) are each loss's own, but
    :class:`BagOfWordsLoss` reads, in training, the first of a loss before it, in whatever view. sentence-transformers trains
    several losses on several datasets in turn; this is several losses on one dataset, at once.

    Inputs:
        +---------------------------------------------+------------------------------+
        | Columns                                     | Labels                       |
        +=============================================+==============================+
        | any; each loss reads those that it is given | handed to every loss         |
        +---------------------------------------------+------------------------------+

    Returns from ``forward``: a dict with the weighted terms of each loss, ``"name/term"`` for a loss that returns a dict and
    ``"name"`` for one that returns a tensor, to be summed. ``diagnostics`` collects the losses' own as ``"name/key"``.

    Args:
        model: The encoder that all the losses train.
        losses: A dict from a name to (loss, weight) or (loss, weight, columns). ``columns`` are the indices of the dataset's
            columns that this loss reads, in its order, from 0; without them it reads all. Losses take columns by their
            place: a ranking loss would take every further text for a hard negative. An index may stand twice: ``[0, 0]`` makes
            of a ranking loss on one column of sentences SimCSE.
        balance: Most that the gradient of any further loss may be where the encoder's outputs are read, as a multiple of the
            first loss's (:func:`functional.balance_factor`): the first leads, the others help. A constant weight cannot say
            that, for a contrast solves itself within some updates and its gradient falls with it. What a loss owns (a
            decoder) learns at full speed, and so do word embeddings that score words. None leaves the gradients as they are.
        share_passes: Whether losses share passes. Without, each makes all of its own, with its own dropout.

    Raises:
        ValueError: Without a loss, on a name that is empty or holds a dot or slash, a weight that is not a finite number above
            0, a loss built around another model, indices that are no columns, a batch with fewer columns, and in training a
            column that a ranking loss reads twice where the encoder has no dropout. Inside ``AdaptiveLayerLoss``; and with
            ``balance``, or inside ``MatryoshkaLoss``, on a cached loss of the host's; with both if a loss embeds its columns
            itself: put ``MatryoshkaLoss`` round the members.

    Relations:
        - ``recipes.PASER_SUPERVISED`` is this over ``MultipleNegativesRankingLoss`` and :class:`PaSeRLoss`.
        - With one loss and weight 1 it is that loss.

    Deviations:
        No paper's: eq. 5 of PaSeR is one use.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
        >>> from sbert_plugins import losses
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> ranking, phrases = MultipleNegativesRankingLoss(model), losses.PaSeRLoss(model, mlm_weight=0)
        >>> loss = losses.WeightedSumLoss(  # columns: anchor, positive, negative, masked, phrase
        ...     model, {"contrastive": (ranking, 1.0, [0, 1, 2]), "paser": (phrases, 0.1, [0, 3, 4])}
        ... )
    """

    def __init__(
        self,
        model: SentenceTransformer,
        losses: Mapping[str, Sequence[Any]],
        *,
        balance: float | None = None,
        share_passes: bool = True,
    ) -> None:
        super().__init__()
        functional.check_balance(balance)
        if not losses:
            raise ValueError("losses must hold at least one loss, got none.")
        require_sentence_encoder(model)
        freeze_mask_template(model)
        self.model = model
        self.balance = balance
        self.share_passes = share_passes
        self.diagnostics: dict[str, Tensor] = {}
        self.losses = nn.ModuleDict()
        self.weights: dict[str, float] = {}
        self.columns: dict[str, list[int] | None] = {}
        for name, entry in losses.items():
            if not isinstance(name, str) or not name or "." in name or "/" in name:
                raise ValueError(f"the name of a loss must be a word without dot or slash, got {name!r}.")
            if name in ("balance", "share_passes"):
                raise ValueError(f"the name of a loss must not be that of a keyword, got {name!r}.")
            if hasattr(self.losses, name):
                raise ValueError(f"the name of a loss must be none that torch's ModuleDict has for itself, got {name!r}.")
            if not isinstance(entry, Sequence) or len(entry) not in (2, 3):
                raise ValueError(f"losses[{name!r}] must be (loss, weight) or (loss, weight, columns), got {entry!r}.")
            loss, weight, columns = (*entry, None)[:3]
            check_inner(f"losses[{name!r}]", loss, model)
            if balance is not None and len(losses) > 1:
                check_uncached(f"with balance losses[{name!r}]", loss)
            if not isinstance(weight, (int, float)) or not 0 < weight < math.inf:
                raise ValueError(
                    f"the weight of losses[{name!r}] must be a finite number above 0, got {weight!r}: leave a loss out at 0."
                )
            if columns is not None and (not columns or not all(type(i) is int and i >= 0 for i in columns)):
                raise ValueError(f"the columns of losses[{name!r}] must be indices from 0, got {columns!r}.")
            self.losses[name] = loss
            self.weights[name] = weight
            self.columns[name] = None if columns is None else list(columns)
        self._in_two_views = [name for name, read in self.columns.items() if read and _ranks_twice(self.losses[name], read)]

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Terms:
        """Compute the weighted terms of all losses on one batch."""
        return self.compute_loss_from_passes(Encoder(self.model), list(sentence_features), labels)

    def compute_loss_from_passes(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Terms:
        """Compute them from passes that ``encode`` makes."""
        refuse_wrappers(self)
        forward: Any = self.model.forward
        if isinstance(forward, ForwardDecorator):
            for name, loss in self.losses.items():
                check_uncached(f"inside MatryoshkaLoss losses[{name!r}]", loss)
        if is_training(self.model):
            require_trained(self)
            refuse_bypass(self, *self.losses.values())
            for name in self._in_two_views:
                require_dropout(unwrap(self.model), f"losses[{name!r}], which reads a column twice,")
        is_balanced = self.balance is not None and len(self.losses) > 1
        shared = SharedPasses() if self._shares() else None
        terms: dict[str, Terms] = {}
        self.diagnostics = {}
        taps: dict[str, GradientTap] = {}
        for name, loss in self.losses.items():
            taps[name] = GradientTap()
            member = MemberEncoder(encode, shared=shared, tap=taps[name] if is_balanced else None)
            terms[name] = self.weights[name] * prefixed(name, value_of(loss, member, self._read(name, columns), labels))
            # Now: a loss that stands here twice has those of its last batch.
            self.diagnostics |= {f"{name}/{key}": value for key, value in getattr(loss, "diagnostics", {}).items()}
        if is_balanced:
            main, *others = ((name, (sum(parts.values(), torch.zeros(())), taps[name])) for name, parts in terms.items())
            self.diagnostics = bound_gradients(main[1], dict(others), balance=self.balance) | self.diagnostics
        return Terms({term: part for parts in terms.values() for term, part in parts.items()})

    def _shares(self) -> bool:
        """Whether two losses read a column; the passes of a compiled encoder are left alone."""
        read = [column for columns in self.columns.values() for column in set(columns or ())]
        apart = len(self.losses) == 1 or (None not in self.columns.values() and len(set(read)) == len(read))
        return self.share_passes and not apart and not is_compiled(self.model)

    def _read(self, name: str, columns: Sequence[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        """Return the columns that a loss reads."""
        indices = self.columns[name]
        if indices is None:
            return list(columns)
        if max(indices) >= len(columns):
            raise ValueError(
                f"losses[{name!r}] reads the columns {indices}, got a batch with {len(columns)}, the last of which "
                f"is {len(columns) - 1}."
            )
        return [columns[i] for i in indices]

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings that the model card shows, those of the losses among them."""
        members = {
            name: {
                "loss": type(loss).__name__,
                "weight": self.weights[name],
                "columns": self.columns[name],
                "settings": inner_settings(loss),
            }
            for name, loss in self.losses.items()
        }
        own = {"balance": self.balance, "share_passes": self.share_passes}
        defaults = {"balance": None, "share_passes": True}
        return {key: value for key, value in own.items() if value != defaults[key]} | members

    @property
    def citation(self) -> str:
        """BibTeX entries of the losses, each once."""
        entries = [str(getattr(loss, "citation", None) or "").strip() for loss in self.losses.values()]
        return "\n\n".join(filter(None, dict.fromkeys(entries))) + "\n"


def _ranks_twice(loss: nn.Module, read: Sequence[int]) -> bool:
    """Whether a ranking loss in ``loss``, which is given these columns, reads one of them twice."""
    if isinstance(loss, WeightedSumLoss):
        given = {name: range(len(read)) if columns is None else columns for name, columns in loss.columns.items()}
        return any(
            _ranks_twice(loss.losses[name], [read[i] for i in places if i < len(read)]) for name, places in given.items()
        )
    return len(set(read)) < len(read) and any(isinstance(part, _RANKING) for part in loss.modules())
