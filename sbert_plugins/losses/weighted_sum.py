"""Several losses on one dataset, as one loss."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor, nn

from sbert_plugins import functional
from sbert_plugins.encoder import (
    Encoder,
    GradientTap,
    MemberEncoder,
    bound_gradients,
    is_compiled,
    require_dropout,
)
from sbert_plugins.losses.base import (
    Loss,
    Terms,
    check_inner_loss,
    compute_inner_loss,
    describe_loss,
)
from sbert_plugins.losses.simcse import SimCSELoss


class WeightedSumLoss(Loss):
    r"""A weighted sum of losses that read the same batches.

    .. math:: L = \sum_k w_k L_k

    Losses that read the same column share the encoder's passes over it: the first pass of each loss is one
    dropout view, the second pass of each is another. Passes over changed columns (masked, in a view, without
    dropout) and those of a compiled encoder are not shared. :class:`BagOfWordsLoss` and
    :class:`SelfDistillationLoss` read, in training, the first pass of a loss before them.
    sentence-transformers itself can train several losses only on several datasets, in turn.

    Inputs:
        +---------------------------------------------+------------------------+
        | Columns                                     | Labels                 |
        +=============================================+========================+
        | any; each loss reads those that it is given | passed on to each loss |
        +---------------------------------------------+------------------------+

    Returns from ``forward``: a dict with the weighted terms of each loss, ``"name/term"``, or ``"name"`` for
    a loss that returns one number. ``diagnostics`` holds those of the losses as ``"name/key"`` and, with
    ``balance``, three numbers for each further loss.

    Args:
        model: The encoder that all losses train.
        losses: A dict from a name to (loss, weight) or (loss, weight, columns). ``columns`` are the indices,
            from 0, of the dataset's columns that the loss reads, in its order; without them it reads all. An
            index may be given twice: ``[0, 0]`` makes ``MultipleNegativesRankingLoss`` on one column of
            sentences SimCSE.
        balance: Limits the gradient of each further loss, at the outputs of the encoder that it reads, to
            this multiple of the first loss's gradient (:func:`functional.balance_factor`). The limit follows
            the first loss: a contrastive loss converges within some updates, and its gradient shrinks.
            Weights that a loss owns, and word embeddings that score words, are not limited. None sets no
            limit.

    Raises:
        ValueError: If ``balance`` is not above 0, a weight is negative, a loss trains another model or cannot
            be computed inside another loss, a batch has too few columns or one that no loss reads, or a
            ranking loss reads a column twice and the encoder has no dropout.

    Relations:
        ``recipes.PASER_SUPERVISED`` is this loss with ``MultipleNegativesRankingLoss`` and
        :class:`PaSeRLoss`.

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
    ) -> None:
        super().__init__(model, balance=balance)
        functional.check_balance(balance)
        self.waits_for_other_ranks = balance is not None
        self.losses = nn.ModuleDict()
        self.weights: dict[str, float] = {}
        self.columns_of: dict[str, list[int] | None] = {}
        for name, entry in losses.items():
            loss, weight, columns = (*entry, None)[:3]
            check_inner_loss(f"losses[{name!r}]", loss, model)
            functional.check_weights(**{f"losses[{name!r}]": weight})
            self.losses[name] = loss
            self.weights[name] = weight
            self.columns_of[name] = None if columns is None else list(columns)

    @property
    def works_in_matryoshka(self) -> bool:  # type: ignore[override]
        """True if all of its losses work inside ``MatryoshkaLoss``."""
        return all(getattr(loss, "works_in_matryoshka", True) for loss in self.losses.values())

    def check_columns(self, columns: Sequence[dict[str, Tensor]]) -> None:
        """Raise ``ValueError`` for a column that the batch lacks, and for one that no loss reads."""
        unread = set(range(len(columns)))
        for name, indices in self.columns_of.items():
            if indices is not None and max(indices) >= len(columns):
                raise ValueError(
                    f"losses[{name!r}] reads the columns {indices}, got a batch with {len(columns)} columns."
                )
            unread -= unread if indices is None else set(indices)
        if unread:
            raise ValueError(
                f"No loss of the sum reads the columns {sorted(unread)} of {len(columns)}, counted from 0. "
                "Give them to a loss, or leave them out with dataset.select_columns([...])."
            )

    def compute(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Terms:
        """Return the weighted terms of all losses."""
        shares = len(self.losses) > 1 and not is_compiled(self.model)
        balance = self.balance if len(self.losses) > 1 else None
        self.diagnostics = {}
        found: dict[str, Terms] = {}
        taps = {name: GradientTap() for name in self.losses}
        for name, loss in self.losses.items():
            indices = self.columns_of[name]
            if self._is_simcse(name):
                require_dropout(self.model, f"losses[{name!r}], which reads a column twice,")
            read = list(columns) if indices is None else [columns[i] for i in indices]
            member = MemberEncoder(encode, shares=shares, tap=None if balance is None else taps[name])
            terms, diagnostics = compute_inner_loss(name, loss, member, read, labels)
            found[name] = self.weights[name] * terms
            self.diagnostics |= diagnostics
        if balance is not None:
            further = {
                name: (sum(each.values(), torch.zeros(())), taps[name]) for name, each in found.items()
            }
            first = further.pop(next(iter(found)))
            self.diagnostics |= bound_gradients(first, further, balance=balance)
        return Terms({name: term for terms in found.values() for name, term in terms.items()})

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, with those of the losses."""
        losses = {
            name: {"weight": self.weights[name], "columns": self.columns_of[name], **describe_loss(loss)}
            for name, loss in self.losses.items()
        }
        return super().get_config_dict() | {"losses": losses}

    @property
    def citation(self) -> str:  # type: ignore[override]
        """BibTeX entries of the losses, each once. A ranking loss that reads a column twice is SimCSE."""
        entries = [
            SimCSELoss.citation if self._is_simcse(name) else getattr(loss, "citation", "")
            for name, loss in self.losses.items()
        ]
        return "\n\n".join(filter(None, dict.fromkeys(entry.strip() for entry in entries)))

    def _is_simcse(self, name: str) -> bool:
        """Return whether a member is a ranking loss that reads a column twice."""
        indices = self.columns_of[name] or []
        is_ranking = isinstance(self.losses[name], MultipleNegativesRankingLoss)
        return is_ranking and len(set(indices)) < len(indices)
