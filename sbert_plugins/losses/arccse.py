"""ArcCSE: angular margin contrastive learning, and an order of similarity among masked sentences."""

from collections.abc import Sequence

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sbert_plugins import functional
from sbert_plugins.encoder import (
    Encoder,
    TokenRoles,
    added_around,
    nested_span_masks,
    require_dropout,
    rows_of_other_ranks,
    sentence_width,
    unwrap,
)
from sbert_plugins.losses.base import Loss, Terms
from sbert_plugins.modules import ProjectionHead


class ArcCSELoss(Loss):
    r"""ArcCSE (Zhang et al., ACL 2022, https://aclanthology.org/2022.acl-long.336).

    1. Each sentence passes the encoder twice, with different dropout. The two vectors are a positive pair;
       the other sentences of the batch are negatives. The loss adds ``margin_degrees`` to the angle of the
       positive pair.
    2. A long sentence is copied with 20 % of its tokens masked (:math:`h'`), and again with 40 %, which
       include the first 20 % (:math:`h''`). Without dropout, the sentence must be more similar to the first
       copy than to the second.

    .. math::
        L = L_{arc} + \lambda L_{tri},\quad
        L_{arc} = -\log\frac{e^{\cos(\theta_{ii^*} + m)/\tau}}
        {e^{\cos(\theta_{ii^*} + m)/\tau} + \sum_{j \ne i} e^{\cos(\theta_{ij^*})/\tau}},\quad
        L_{tri} = \max(0, \cos(\bar h, \bar h'') - \cos(\bar h, \bar h') + m')

    These are eq. 3, 4 and 5: :func:`functional.arccon_loss` and :func:`functional.order_triplet_loss`. The
    first is a mean over the batch, the second a mean over its long sentences.

    A small language model scores 56.5 on average over the seven STS tasks. After 60 updates it reached 72.0,
    and 72.9 after 400. With ``recipes.recommended_loss`` it reached 73.2 and 74.0.

    Inputs:
        +---------------------------------------------------------------+--------+
        | Columns                                                       | Labels |
        +===============================================================+========+
        | anchor (a sentence)                                           | unused |
        +---------------------------------------------------------------+--------+
        | anchor, positive (any pairs, such as :func:`data.crop_pairs`) | unused |
        +---------------------------------------------------------------+--------+

    Returns from ``forward``: a dict with the weighted terms ``arccon`` and ``triplet``. ``diagnostics`` holds
    ``long_share`` (share of sentences with at least ``min_words`` words), ``triplet_active`` (share of
    triplets with a loss above 0; at 0 the triplet term teaches nothing) and ``triplet_gap`` (mean of cos(h,
    h') - cos(h, h'')).

    Args:
        model: Any encoder with a mask token; with dropout if there is one column.
        margin_degrees: :math:`m`, in degrees, in [0, 180). 0 gives SimCSE.
        temperature: :math:`\tau`, above 0.
        triplet_weight: :math:`\lambda`. 0 leaves out the triplet term and its three passes.
        triplet_margin: :math:`m'`, a difference of cosines.
        near_mask_ratio: Share of tokens that are masked in :math:`h'`.
        far_mask_ratio: Share of tokens that are masked in :math:`h''`.
        min_words: Least number of words of a long sentence. Words are counted after truncation to
            ``max_seq_length``; punctuation is not a word.
        positive_dropout: False switches dropout off in the pass of the positives (the paper's Table 3, second
            row).
        triplet_dropout: True switches dropout on in the passes of the triplets (Table 3, third row).
        arccon_max_length: Tokens of a sentence, with special tokens, in the passes of the first term. The
            triplets read the whole text. The paper has 32 for large models, to save memory. None cuts
            nothing.
        projection_head: Adds a Linear layer and tanh on the sentence vector in training. It is not saved with
            the model.
        gather_across_devices: Uses the sentences of all ranks as negatives.

    Raises:
        ValueError: If a value is out of range, the model has no mask token or has a mask template, or there
            is one column and no dropout. For ``arccon_max_length`` with a tokenizer that pads on the left.

    Relations:
        ``margin_degrees=0, triplet_weight=0, projection_head=False`` is sentence-transformers'
        ``MultipleNegativesRankingLoss`` on (sentence, sentence) pairs with ``scale=1 / temperature``.

    Deviations:
        The authors published no code. Where the paper is silent, spans are drawn on tokens, two per mask, and
        the triplet term is a mean over the long sentences.

    Example:
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from sbert_plugins import losses
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> train = Dataset.from_dict({"anchor": ["It is raining.", "He plays the organ.", "Prices fell."]})
        >>> loss = losses.ArcCSELoss(model)
        >>> SentenceTransformerTrainer(model=model, train_dataset=train, loss=loss).train()
    """

    citation = """
@inproceedings{zhang-etal-2022-contrastive,
    title = "A Contrastive Framework for Learning Sentence Representations from Pairwise and Triple-wise
             Perspective in Angular Space",
    author = "Zhang, Yuhao and Zhu, Hongji and Wang, Yongliang and Xu, Nan and Li, Xiaobo and Zhao, BinQiang",
    booktitle = "Proceedings of the 60th Annual Meeting of the Association for Computational Linguistics",
    year = "2022",
    url = "https://aclanthology.org/2022.acl-long.336",
}
"""
    columns = ("anchor", "positive")
    optional_columns = 1

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
        positive_dropout: bool = True,
        triplet_dropout: bool = False,
        arccon_max_length: int | None = None,
        projection_head: bool = True,
        gather_across_devices: bool = False,
    ) -> None:
        super().__init__(
            model,
            margin_degrees=margin_degrees,
            temperature=temperature,
            triplet_weight=triplet_weight,
            triplet_margin=triplet_margin,
            near_mask_ratio=near_mask_ratio,
            far_mask_ratio=far_mask_ratio,
            min_words=min_words,
            positive_dropout=positive_dropout,
            triplet_dropout=triplet_dropout,
            arccon_max_length=arccon_max_length,
            projection_head=projection_head,
            gather_across_devices=gather_across_devices,
        )
        functional.check_weights(triplet_weight=triplet_weight)
        if not 0 < near_mask_ratio < far_mask_ratio < 1:
            raise ValueError(
                "The mask ratios must satisfy 0 < near_mask_ratio < far_mask_ratio < 1, "
                f"got {near_mask_ratio} and {far_mask_ratio}."
            )
        if arccon_max_length and model.tokenizer.padding_side != "right":
            raise ValueError(
                "arccon_max_length cuts sentences at the right, and this tokenizer pads at the left. Set "
                "model.max_seq_length, which cuts all passes."
            )
        self.waits_for_other_ranks = gather_across_devices
        self.works_in_matryoshka = not projection_head
        self.head = ProjectionHead(sentence_width(model)) if projection_head else nn.Identity()
        if triplet_weight:
            self.tokens = TokenRoles(model.tokenizer)
            self.mask_token_id = self.tokens.mask_id("triplet_weight above 0")
        self.to(model.device)

    def compute(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Terms:
        """Return the terms ``arccon`` and ``triplet``."""
        anchor, positive = columns[0], columns[-1]
        if positive is anchor:
            require_dropout(self.model, f"{type(self).__name__} with one column")
        short = [self._cut(anchor), self._cut(positive)]
        passes = encode(short, dropout=[True, self.positive_dropout])
        anchors, positives = (self.head(one.vectors) for one in passes)  # (B, D) each
        negatives = rows_of_other_ranks(positives) if self.gather_across_devices else None
        arccon = functional.arccon_loss(
            anchors, positives, negatives, margin_degrees=self.margin_degrees, temperature=self.temperature
        )
        terms = Terms(arccon=arccon)
        if self.triplet_weight:
            terms["triplet"] = self.triplet_weight * self._triplet_loss(encode, anchor)
        return terms

    def _cut(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return features as the tokenizer would make them with at most ``arccon_max_length`` tokens."""
        length = self.arccon_max_length
        if length is None or features["input_ids"].shape[1] <= length:
            return features
        cut = {
            key: value[:, :length] if isinstance(value, Tensor) and value.ndim > 1 else value
            for key, value in features.items()
        }
        is_longer = features["attention_mask"][:, length:].any(dim=1, keepdim=True)
        behind = torch.tensor(added_around(unwrap(self.model).tokenizer)[1], device=is_longer.device).long()
        start, last = cut["input_ids"].tensor_split([length - len(behind)], dim=1)
        return {**cut, "input_ids": torch.cat([start, torch.where(is_longer, behind, last)], dim=1)}

    def _triplet_loss(self, encode: Encoder, features: dict[str, Tensor]) -> Tensor:
        """Return eq. 4 over the long sentences of the batch."""
        content = self.tokens.content(features)
        words = self.tokens.count_words(features["input_ids"], content)  # (B,)
        # The only wait for the device: how many rows to encode.
        long = (words >= self.min_words).nonzero().squeeze(1)
        self.diagnostics = {"long_share": torch.tensor(len(long) / len(words))}
        if len(long) == 0:
            return torch.zeros((), device=content.device)
        rows = len(words)
        sentences = {
            key: value[long] if isinstance(value, Tensor) and value.ndim > 1 and len(value) == rows else value
            for key, value in features.items()
        }
        spans = nested_span_masks(
            content[long],
            near_ratio=self.near_mask_ratio,
            far_ratio=self.far_mask_ratio,
            num_segments=2,  # the paper speaks of "contiguous segments" without a number
        )
        ids = sentences["input_ids"]
        masked = [{**sentences, "input_ids": ids.masked_fill(span, self.mask_token_id)} for span in spans]
        # A rank without a long sentence makes no such passes. They therefore bypass
        # DistributedDataParallel, in which the other ranks would wait for it.
        passes = encode([sentences, *masked], dropout=self.triplet_dropout, bypass_ddp=True)
        anchors, near, far = (self.head(one.vectors) for one in passes)  # (long rows, D) each
        with torch.no_grad():
            gap = torch.cosine_similarity(anchors, near) - torch.cosine_similarity(anchors, far)
            self.diagnostics |= {
                "triplet_active": (gap < self.triplet_margin).float().mean(),
                "triplet_gap": gap.mean(),
            }
        return functional.order_triplet_loss(anchors, near, far, margin=self.triplet_margin)
