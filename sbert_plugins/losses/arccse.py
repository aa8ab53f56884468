"""ArcCSE: angular margin contrastive learning and a partial order of masked sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sbert_plugins import functional
from sbert_plugins.contract import LossModule, Terms, begin_forward, begin_init, negatives_of, one_or_two, settings_of
from sbert_plugins.encoder import (
    Encoder,
    TokenRoles,
    nested_span_masks,
    require_dropout,
    require_one_encoder,
    sentence_width,
    unwrap,
)
from sbert_plugins.losses.citations import CITATIONS
from sbert_plugins.modules import ProjectionHead

_SPANS = 2  # a mask; the paper's "contiguous segments" come without a number


class ArcCSELoss(LossModule):
    r"""ArcCSE (Zhang et al., ACL 2022, https://aclanthology.org/2022.acl-long.336): learns from single sentences or pairs.

    1. The two columns (with one column, two dropout views of it) pass the encoder in one forward; they are a positive pair,
       the other sentences of the batch are negatives. The additive angular margin asks the positive to win by
       ``margin_degrees``.
    2. Long sentences are copied with 20 % and, extending the same spans, 40 % of their tokens masked. Without dropout the
       sentence must be closer to the first copy than to the second.

    .. math::
        L = L_{arc} + \lambda L_{tri},\quad
        L_{arc} = -\log\frac{e^{\cos(\theta_{ii^*} + m)/\tau}}
        {e^{\cos(\theta_{ii^*} + m)/\tau} + \sum_{j \ne i} e^{\cos(\theta_{ij^*})/\tau}},\quad
        L_{tri} = \max(0, \cos(\bar h, \bar h'') - \cos(\bar h, \bar h') + m')

    (eq. 3, 4 and 5; means over the batch and over its long sentences: :func:`functional.arccon_loss`,
    :func:`functional.order_triplet_loss`).

    Inputs:
        +-----------------------------------------------------------------------------+--------+
        | Columns                                                                     | Labels |
        +=============================================================================+========+
        | anchor (one sentence)                                                       | unused |
        +-----------------------------------------------------------------------------+--------+
        | anchor, positive (:func:`data.crop_pairs` of documents, or any other pairs; | unused |
        | the masked copies are the anchor's)                                         |        |
        +-----------------------------------------------------------------------------+--------+

    Returns from ``forward``: a dict with the scalars ``arccon`` and ``triplet``, weights applied, to be summed.
    ``diagnostics`` then holds ``long_share`` (share of sentences that reach ``min_words``), ``triplet_active`` (share of
    their triplets with a non-zero loss: at 0 the triplet term teaches nothing, raise ``triplet_margin``) and
    ``triplet_gap`` (mean of cos(h, h') - cos(h, h'')).

    Args:
        model: Any encoder that sentence-transformers loads, with a mask token; with dropout where there is one column.
        margin_degrees: :math:`m`, angle added to the positive pair, in [0, 180). 0 is SimCSE.
        temperature: :math:`\tau`, above 0.
        triplet_weight: :math:`\lambda`. 0 leaves the triplet term and its three passes out.
        triplet_margin: :math:`m'`, a difference of cosines.
        near_mask_ratio: Share of tokens masked in :math:`h'`.
        far_mask_ratio: Share of tokens masked in :math:`h''`; its spans contain those of :math:`h'`.
        min_words: Sentences with fewer words give no triplet. Words are counted after truncation to the model's
            ``max_seq_length``; punctuation is not a word.
        projection_head: Whether a Linear and tanh, in training only, sits on the sentence vector. It belongs to this loss
            and is not saved with the model: there is nothing to convert afterwards.
        gather_across_devices: Whether the sentences of all ranks are negatives, or those of the own rank only.

    Raises:
        ValueError: On a value out of range, a model without a mask token, a number of columns other than one or two, one
            column and a model without dropout, and a first training batch of one sentence. A later batch of one (the rest of
            an epoch) gives 0.0.

    Relations:
        - ``margin_degrees=0, triplet_weight=0, projection_head=False`` is sentence-transformers'
          ``MultipleNegativesRankingLoss`` on (sentence, sentence) pairs with ``scale=1 / temperature``: SimCSE.
        - sentence-transformers' ``MatryoshkaLoss`` goes round this with ``projection_head=False``.
        - ``recipes`` holds the paper's training settings.

    Deviations:
        There is no official code. Where the paper is silent: spans are drawn on tokens, two a mask; the triplet term is the
        mean over the long sentences.

    Example:
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from sbert_plugins import losses
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> train = Dataset.from_dict({"anchor": ["It is raining.", "He plays the organ.", "Prices fell again."]})
        >>> loss = losses.ArcCSELoss(model)
        >>> SentenceTransformerTrainer(model=model, train_dataset=train, loss=loss).train()
    """

    citation = CITATIONS["arccse"]
    has_learned = False  # whether a batch had negatives
    idle_hints: ClassVar = {
        "triplet": "no sentence was long enough (long_share; lower min_words or raise max_seq_length), or all were in order "
        "already (triplet_active; raise triplet_margin), or leave it out with triplet_weight=0"
    }

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        margin_degrees: float = 10.0,
        temperature: float = 0.05,
        triplet_weight: float = 0.1,
        triplet_margin: float = 0.0,
        near_mask_ratio: float = 0.2,
        far_mask_ratio: float = 0.4,
        min_words: int = 25,
        projection_head: bool = True,
        gather_across_devices: bool = False,
    ) -> None:
        super().__init__()
        begin_init(self, locals())
        functional.check_margin_degrees(margin_degrees)
        functional.check_temperature(temperature)
        functional.check_weight("triplet_weight", triplet_weight, "0 leaves the triplet term out.")
        functional.check_finite(triplet_margin=triplet_margin)
        if not 0 < near_mask_ratio < far_mask_ratio < 1:
            raise ValueError(
                "mask ratios must satisfy 0 < near_mask_ratio < far_mask_ratio < 1, "
                f"got {near_mask_ratio} and {far_mask_ratio}. The paper uses 0.2 and 0.4."
            )
        if min_words < 1:
            raise ValueError(f"min_words must be at least 1, got {min_words}. The paper's is 25.")
        self.model = model
        self.margin_degrees = margin_degrees
        self.temperature = temperature
        self.triplet_weight = triplet_weight
        self.triplet_margin = triplet_margin
        self.near_mask_ratio = near_mask_ratio
        self.far_mask_ratio = far_mask_ratio
        self.min_words = min_words
        self.gather_across_devices = gather_across_devices
        self.head = ProjectionHead(sentence_width(model)) if projection_head else nn.Identity()
        if triplet_weight:
            require_one_encoder(model, "ArcCSELoss with triplet_weight above 0")
            self.tokens = TokenRoles(model.tokenizer)
            self.mask_token_id = self.tokens.mask_id("the triplet term masks tokens", "triplet_weight=0", apart=True)
        self.diagnostics: dict[str, Tensor] = {}
        self.state_is_kept = not projection_head
        self.to(model.device)  # for loops that do not move the loss themselves

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Terms:
        """Compute the weighted terms of one batch of one or two columns."""
        return self.compute_loss_from_passes(Encoder(self.model), list(sentence_features), labels)

    def compute_loss_from_passes(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Terms:
        """Compute them from passes that ``encode`` makes."""
        anchor, positive = one_or_two(self, columns)
        if positive is anchor:
            require_dropout(unwrap(self.model), "ArcCSELoss with one column")
        begin_forward(self, bypasses_ddp=bool(self.triplet_weight))
        self.diagnostics = {}
        anchors, positives = (self.head(one.vectors) for one in encode([anchor, positive]))
        negatives = negatives_of(self, anchors, positives)
        arccon = functional.arccon_loss(
            anchors, positives, negatives, margin_degrees=self.margin_degrees, temperature=self.temperature
        )
        terms = Terms(arccon=arccon)
        if self.triplet_weight:
            terms["triplet"] = self.triplet_weight * self._triplet_loss(encode, anchor)
        return terms

    def _triplet_loss(self, encode: Encoder, features: dict[str, Tensor]) -> Tensor:
        """Eq. 4 over the long sentences of the batch, the encoder's dropout off."""
        content = self.tokens.content(features)
        words = self.tokens.count_words(features["input_ids"], content)
        long = (words >= self.min_words).nonzero().squeeze(1)  # the one transfer to the host: how many rows to encode
        self.diagnostics = {"long_share": torch.tensor(len(long) / len(words))}
        if len(long) == 0:
            return torch.zeros((), device=content.device)
        sentences = {key: value[long] if _is_per_row(value, len(words)) else value for key, value in features.items()}
        ratios = {"near_ratio": self.near_mask_ratio, "far_ratio": self.far_mask_ratio}
        spans = nested_span_masks(content[long], num_segments=_SPANS, **ratios)
        masked = [{**sentences, "input_ids": sentences["input_ids"].masked_fill(span, self.mask_token_id)} for span in spans]
        # Beside DistributedDataParallel: a rank without a long sentence does not come here.
        passes = encode([sentences, *masked], dropout=False, beside_ddp=True)
        anchors, near, far = (self.head(one.vectors) for one in passes)
        with torch.no_grad():
            gap = torch.cosine_similarity(anchors, near) - torch.cosine_similarity(anchors, far)
            self.diagnostics |= {
                "triplet_active": (gap < self.triplet_margin).float().mean(),
                "triplet_gap": gap.mean(),
            }
        return functional.order_triplet_loss(anchors, near, far, margin=self.triplet_margin)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings that the model card shows."""
        return settings_of(self)


def _is_per_row(value: Any, rows: int) -> bool:
    return isinstance(value, Tensor) and value.ndim > 1 and len(value) == rows
