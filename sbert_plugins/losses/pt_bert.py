"""PT-BERT: contrast on pseudo tokens, against a queue that a momentum encoder fills."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sbert_plugins import functional
from sbert_plugins.contract import LossModule, Terms, begin_forward, begin_init, follow_mode, one_or_two, settings_of
from sbert_plugins.encoder import (
    Encoder,
    Pass,
    is_training,
    require_dropout,
    require_equal_routes,
    rows_of_all_ranks,
    sentence_width,
    unwrap,
)
from sbert_plugins.losses.citations import CITATIONS
from sbert_plugins.modules import EmbeddingQueue, MomentumEncoder, ProjectionHead, PseudoTokenAttention, after_optimizer_step
from sbert_plugins.modules.pseudo_token_attention import check_attend_to


class PTBERTLoss(LossModule):
    r"""PT-BERT (Tan et al., Findings of ACL 2022, https://aclanthology.org/2022.findings-acl.22): sentences or pairs.

    1. A sentence passes the encoder and, without gradient, a slow copy of it. On both sides one attention layer maps it onto
       ``num_pseudo_tokens`` learned vectors and back to one, so that sentences of all lengths are compared as sentences of
       one length.
    2. The copy's vector is the positive; those of the last ``queue_size`` sentences are the negatives.
    3. After each optimizer step the copy moves towards the encoder.

    .. math::
        Z = \mathrm{Attention}(P W^Q, Y W^K, Y W^V),\quad h = \mathrm{Attention}(y W^Q, Z W^K, Z W^V),\quad
        L = -\log\frac{e^{\cos(h_i, k_i)/\tau}}{\sum_{j \in \mathrm{queue}} e^{\cos(h_i, q_j)/\tau}},\quad
        \theta_k \leftarrow m\,\theta_k + (1 - m)\,\theta_q

    (eq. 1 to 5, mean over the batch: :func:`functional.pseudo_token_mapping`, :func:`functional.queue_info_nce`,
    :class:`modules.MomentumEncoder`).

    Inputs:
        +-----------------------------------------------------------------------+--------+
        | Columns                                                               | Labels |
        +=======================================================================+========+
        | anchor (one sentence), or anchor and positive (an altered copy of it, | unused |
        | for the momentum encoder: :func:`data.positive_pairs`)                |        |
        +-----------------------------------------------------------------------+--------+

    Returns from ``forward``: a dict with the scalar ``contrastive``. ``diagnostics`` then holds ``queue_filled`` (share of the
    queue in use, with this batch) and ``positive_cosine`` (mean cosine of a vector and its positive). An evaluation changes no
    state; it scores its batch in the queue's newest slots.

    Args:
        model: Any encoder that sentence-transformers loads; for one column with dropout.
        num_pseudo_tokens: Length of the pseudo sentence. 0 leaves pseudo tokens and attention out: the paper's MoCo-BERT.
        queue_size: Vectors in the queue. The batch enters it before it is scored, the paper's count: with 256 each sentence
            has 1 positive and 255 negatives.
        momentum: :math:`m`, in [0, 1). The paper's number is not legible in the copies at hand; this is the official code's.
        attend_to: What the pseudo tokens attend to: the ``"tokens"`` that the encoder attends to (a prompt's, too), or the
            ``"pooled"`` vector, the official code's reading, in which they are idle (see Deviations).
        temperature: :math:`\tau`, above 0.
        projection_head: Whether a Linear and tanh, in training only, sits on the mapped vector.
        momentum_dropout: Whether the copy uses dropout.

    Raises:
        ValueError: On a value out of range, one column with a model without dropout, a number of columns other than one or
            two, and, with ``attend_to="tokens"``, a model whose token embeddings are missing, flattened or of another width
            than its sentence vectors.

    Relations:
        - ``num_pseudo_tokens=0`` with ``data.positive_pairs`` are the paper's baselines MoCo + reorder, duplication, deletion.
        - With ``attend_to="tokens"`` the sentence vector is only the query of the second attention: [CLS] is trained as one
          token among others, and ``"pooled"`` is nearer to what is saved then; the recipe takes it.
        - Queue, copy and pseudo tokens belong to this loss and are not saved with the model. ``recipes`` holds the paper's
          training settings. On several processes the queue holds the sentences of all of them.

    Deviations:
        The official code gives the pseudo tokens the pooled vector alone. A softmax over one key is 1: its 128 pseudo tokens
        become one row, get no gradient, and the two attentions amount to two linear maps. The paper wants them "to attend to
        the core part and ignore the redundant part", which needs the tokens: the default. The code's momentum encoder starts
        from random weights, ours from the encoder's; its second attention on that side is the trained one, ours the copy; its
        batch enters the queue after it is scored; its attention has 12 heads, biases and dropout, the paper's none of them
        (:class:`losses.official.PTBERTLoss` has all but the random start). A batch larger than the queue leaves rows whose own
        vector did not stay; they have one negative more.

    Example:
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from sbert_plugins import losses
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> train = Dataset.from_dict({"anchor": ["It is raining.", "He plays the organ.", "Prices fell again."]})
        >>> loss = losses.PTBERTLoss(model)
        >>> SentenceTransformerTrainer(model=model, train_dataset=train, loss=loss).train()
    """

    citation = CITATIONS["pt_bert"]
    fixed: ClassVar = {"enqueue_first": True}  # a keyword once, which checkpoints name

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        num_pseudo_tokens: int = 128,
        queue_size: int = 256,
        momentum: float = 0.885,
        attend_to: str = "tokens",
        temperature: float = 0.05,
        projection_head: bool = True,
        momentum_dropout: bool = True,
    ) -> None:
        super().__init__()
        begin_init(self, locals())
        functional.check_temperature(temperature)
        self.model = model
        self.temperature = temperature
        self.mapping = _Mapping(self._attention(num_pseudo_tokens, attend_to), self._head(projection_head))
        self.queue = EmbeddingQueue(queue_size, sentence_width(model))
        self.momentum_encoder = MomentumEncoder(model, self.mapping, momentum=momentum, dropout=momentum_dropout)
        self.diagnostics: dict[str, Tensor] = {}
        self.state_is_kept = False
        self.to(model.device)  # for loops that do not move the loss themselves
        self.begin_training(resumed=True)  # now, for a loop whose first batches may be another loss's

    @property
    def momentum(self) -> float:
        """Of the slow copy; it may be set during a training."""
        return self.momentum_encoder.momentum

    @momentum.setter
    def momentum(self, momentum: float) -> None:
        self.momentum_encoder.momentum = momentum

    def begin_training(self, *, resumed: bool) -> None:
        """Move the slow copy after each update of the encoder from now on."""
        after_optimizer_step(self, PTBERTLoss._update_momentum)

    def _update_momentum(self) -> None:
        # One that is kept after its training meets encoders that have changed since; one that trains refuses them in forward.
        with suppress(ValueError):
            self.momentum_encoder.update(self.model, self.mapping)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Terms:
        """Compute the weighted term of one batch of one or two columns."""
        return self.compute_loss_from_passes(Encoder(self.model), list(sentence_features), labels)

    def compute_loss_from_passes(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Terms:
        """Compute it from a pass that ``encode`` makes, and one of the slow copy's."""
        anchor, positive = one_or_two(self, columns)
        if positive is anchor:
            require_dropout(unwrap(self.model), "PTBERTLoss with one column")
        elif positive.get("task") != anchor.get("task"):
            why = "only the slow copy's reads the second column, and nothing of it would be trained"
            require_equal_routes(unwrap(self.model), "PTBERTLoss with two columns", why)
        begin_forward(self)
        follow_mode(self)
        training = is_training(self.model)
        if training:
            self.momentum_encoder.check(self.model, self.mapping)  # now, for the copy would be asked for tokens it has not
            self.begin_training(resumed=True)  # again, for a loop that does not tell when it begins
        (seen,) = encode([anchor], tokens=True)
        self._check_width(seen.vectors)
        queries = self.mapping(seen)
        positives = self._keys(positive, training=training).to(queries.dtype)
        # An evaluation does not wait for the other ranks: it lets nothing in.
        keys, first = rows_of_all_ranks(positives) if training else (positives, 0)
        # What is scored, and what of it is a row's negative: the queue as it will be with the batch in it.
        candidates, is_negative = self.queue.candidates(keys, first, len(queries), **self.fixed)
        if training:
            self.queue.enqueue(keys)
        with torch.no_grad():
            self.diagnostics = {
                "queue_filled": self.queue.filled.float().mean(),
                "positive_cosine": torch.cosine_similarity(queries, positives).mean(),
            }
        loss = functional.queue_info_nce(queries, positives, candidates, is_negative, temperature=self.temperature)
        return Terms(contrastive=loss)

    def _attention(self, num_pseudo_tokens: int, attend_to: str) -> PseudoTokenAttention | None:
        check_attend_to(attend_to)
        if not num_pseudo_tokens:
            return None
        return PseudoTokenAttention(sentence_width(self.model), num_pseudo_tokens=num_pseudo_tokens, attend_to=attend_to)

    def _head(self, projection_head: bool) -> nn.Module:
        return ProjectionHead(sentence_width(self.model)) if projection_head else nn.Identity()

    def _keys(self, column: dict[str, Tensor], *, training: bool) -> Tensor:
        """Return (B, D), the slow copy's vectors of a column."""
        return self.momentum_encoder(column, training=training)

    def _check_width(self, sentences: Tensor) -> None:
        if sentences.shape[1] != self.queue.rows.shape[1]:
            raise ValueError(
                f"PTBERTLoss reads sentence vectors of width {self.queue.rows.shape[1]}, that of its queue and slow copy, got "
                f"{sentences.shape[1]}: train without MatryoshkaLoss, which cuts them, and build the loss when the model is "
                "complete."
            )

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings that the model card shows."""
        return settings_of(self) | self.fixed


class _Mapping(nn.Module):
    """What sits on the encoder in training: the pseudo tokens, then the head."""

    def __init__(self, attention: PseudoTokenAttention | None, head: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.head = head

    def forward(self, seen: Pass) -> Tensor:
        sentence, tokens, mask = seen.vectors, seen.tokens, seen.attended
        if self.attention is None:
            return self.head(sentence)
        if self.attention.attend_to == "tokens" and (mask is None or tokens is None or tokens.shape[2] != sentence.shape[1]):
            raise ValueError(
                "attend_to='tokens' needs padded token embeddings as wide as the sentence vectors, got "
                f"{'none' if tokens is None else tuple(tokens.shape)} for sentence vectors {tuple(sentence.shape)}"
                f"{' without an attention_mask' if mask is None else ''}: set model[0].unpad_inputs = False where they are "
                "flattened, train without a Dense layer that changes the width, or pass attend_to='pooled'."
            )
        return self.head(self.attention(sentence, tokens, mask))
