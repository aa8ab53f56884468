"""ConSERT: contrast of two views made inside the encoder's embeddings. The backbone of SLT-FAI."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sbert_plugins import functional
from sbert_plugins.contract import LossModule, Terms, begin_forward, begin_init, check_negatives, one_or_two, settings_of
from sbert_plugins.encoder import (
    VIEW_PARTS,
    Encoder,
    TokenRoles,
    View,
    require_dropout,
    require_one_encoder,
    require_views,
    sentence_width,
    unwrap,
)
from sbert_plugins.losses.citations import CITATIONS
from sbert_plugins.modules import ProjectionHead


class ConSERTLoss(LossModule):
    r"""ConSERT (Yan et al., ACL 2021, https://aclanthology.org/2021.acl-long.393): learns from single sentences or pairs.

    Each sentence passes the encoder twice, each time in another view: features cut off, tokens cut off, tokens shuffled, the
    encoder's dropout, or several of these. The two views are a positive pair, all views of the other sentences negatives.
    With two columns the first view is of the first, the second of the second.

    .. math::
        L = -\frac{1}{2B}\sum_i \log\frac{e^{\cos(r_i, r_{i^*})/\tau}}{\sum_{k \ne i} e^{\cos(r_i, r_k)/\tau}}

    (its eq. 1: :func:`functional.nt_xent`, which says how SLT-FAI prints it).

    Inputs:
        +-----------------------------------------------------------------------------+--------+
        | Columns                                                                     | Labels |
        +=============================================================================+========+
        | anchor (one sentence)                                                       | unused |
        +-----------------------------------------------------------------------------+--------+
        | anchor, positive (:func:`data.crop_pairs` of documents, or any other pairs) | unused |
        +-----------------------------------------------------------------------------+--------+

    Returns from ``forward``: a dict with the scalar ``nt_xent``.

    Args:
        model: Any transformers encoder that sentence-transformers loads.
        first_view: What makes the first view, any of ``"feature_cutoff"``, ``"token_cutoff"``, ``"token_shuffling"`` and
            ``"dropout"``; ``()`` is the sentence as it is, for both with two columns only. The defaults are the authors'
            unsupervised setting, in which the encoder's dropout is off.
        second_view: What makes the second.
        feature_cutoff_rate: Share of the embedding's features set to 0 in a sentence, in (0, 1).
        token_cutoff_rate: Share of a sentence's tokens whose embedding is set to 0, in (0, 1). Special tokens stay.
        temperature: :math:`\tau`, above 0.
        projection_head: Whether a Linear and tanh, in training only, sits on the sentence vector. It belongs to this loss
            and is not saved with the model: there is nothing to convert afterwards.

    Raises:
        ValueError: On a value out of range, dropout asked of a model without, an encoder whose embeddings cannot be changed
            from outside (XLNet), a number of columns other than one or two, one column and two views that change nothing, a
            model compiled by torch.compile, and a first training batch of one sentence. A later batch of one (the rest of an
            epoch) gives 0.0.

    Relations:
        - ``first_view=second_view=("dropout",)`` is SimCSE with the views of both sides as negatives.
        - sentence-transformers' ``MatryoshkaLoss`` goes round this, without ``projection_head``.
        - With ``projection_head=True``, and :class:`BagOfWordsLoss` beside it, it is ``recipes.recommended_loss``.
        - :class:`SLTFAILoss` round it is the paper's "ConSERT + SLT-FAI"; the incomplete sentence then gets the first view.

    Deviations:
        From the official code: shuffling moves word embeddings and leaves positions where they are, instead of shuffling
        position ids, which comes to the same; special tokens are never moved or cut off. Neither paper nor code has a
        projection head; it is SimCSE's (its section 6.3).

    Example:
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from sbert_plugins import losses
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> train = Dataset.from_dict({"anchor": ["It is raining.", "He plays the organ.", "Prices fell again."]})
        >>> loss = losses.ConSERTLoss(model)
        >>> SentenceTransformerTrainer(model=model, train_dataset=train, loss=loss).train()
    """

    citation = CITATIONS["consert"]
    has_learned = False  # whether a batch had negatives

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        first_view: Sequence[str] = ("feature_cutoff",),
        second_view: Sequence[str] = ("token_shuffling",),
        feature_cutoff_rate: float = 0.2,
        token_cutoff_rate: float = 0.15,
        temperature: float = 0.1,
        projection_head: bool = False,
    ) -> None:
        super().__init__()
        begin_init(self, locals())
        functional.check_temperature(temperature)
        for name, view in (("first_view", first_view), ("second_view", second_view)):
            if isinstance(view, str) or not set(view) <= set(VIEW_PARTS):
                raise ValueError(f"{name} must be a sequence of {', '.join(map(repr, VIEW_PARTS))}, got {view!r}.")
        for name, rate in (("feature_cutoff_rate", feature_cutoff_rate), ("token_cutoff_rate", token_cutoff_rate)):
            functional.check_share(name, rate, "To leave it out, leave it out of the views.")
        if "dropout" in (*first_view, *second_view):
            require_dropout(model, "ConSERTLoss with a view of dropout", in_a_forward=False)
        require_one_encoder(model, "ConSERTLoss")
        self.tokens = TokenRoles(model.tokenizer)
        if {*first_view, *second_view} - {"dropout"}:
            require_views(model, "ConSERTLoss")
        self.model = model
        self.first_view = tuple(first_view)
        self.second_view = tuple(second_view)
        self.feature_cutoff_rate = feature_cutoff_rate
        self.token_cutoff_rate = token_cutoff_rate
        self.temperature = temperature
        self.head = ProjectionHead(sentence_width(model)) if projection_head else nn.Identity()
        self.state_is_kept = not projection_head
        self.to(model.device)  # for loops that do not move the loss themselves

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Terms:
        """Compute the loss of one batch of one or two columns."""
        return self.compute_loss_from_passes(Encoder(self.model), list(sentence_features), labels)

    def compute_loss_from_passes(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Terms:
        """Compute it from passes that ``encode`` makes."""
        anchor, positive = one_or_two(self, columns)
        begin_forward(self)
        views = (self.first_view, self.second_view)
        if positive is anchor and any("dropout" in parts for parts in views):
            require_dropout(unwrap(self.model), "ConSERTLoss with a view of dropout")
        if positive is anchor and not any(views):
            raise ValueError(
                "one of first_view and second_view must change the sentence where there is one column, got none: both would "
                "be identical."
            )
        contents = [self.tokens.content(anchor)] * 2 if positive is anchor else map(self.tokens.content, columns)
        rates = {"feature_cutoff_rate": self.feature_cutoff_rate, "token_cutoff_rate": self.token_cutoff_rate}
        drawn = [View(parts, content, **rates) for parts, content in zip(views, contents, strict=True)]
        passes = encode([anchor, positive], views=drawn, dropout=["dropout" in parts for parts in views])
        first, second = (self.head(one.vectors) for one in passes)
        check_negatives(self, len(first))
        return Terms(nt_xent=functional.nt_xent(first, second, temperature=self.temperature))

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings that the model card shows."""
        return settings_of(self)
