"""PT-BERT: contrastive learning on pseudo tokens, with negatives from a queue."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sbert_plugins import functional
from sbert_plugins.encoder import (
    Encoder,
    Pass,
    is_training,
    require_dropout,
    rows_of_all_ranks,
    sentence_width,
)
from sbert_plugins.losses.base import Loss, Terms
from sbert_plugins.modules import (
    EmbeddingQueue,
    MomentumEncoder,
    ProjectionHead,
    PseudoTokenAttention,
    after_optimizer_step,
)


class PTBERTLoss(Loss):
    r"""PT-BERT (Tan et al., Findings of ACL 2022, https://aclanthology.org/2022.findings-acl.22).

    1. A sentence passes the encoder and a momentum encoder, a copy that moves slowly and gets no gradient. On
       both sides one attention layer maps the sentence onto ``num_pseudo_tokens`` learned vectors and back to
       one vector. All sentences are compared as if they had the same length.
    2. The momentum encoder's vector is the positive. Its vectors of the last ``queue_size`` sentences are the
       negatives.
    3. After each optimizer step the momentum encoder moves towards the encoder.

    .. math::
        Z = \mathrm{Attention}(P W^Q, Y W^K, Y W^V),\quad h = \mathrm{Attention}(y W^Q, Z W^K, Z W^V),\quad
        L = -\log\frac{e^{\cos(h_i, k_i)/\tau}}{\sum_{j \in \mathrm{queue}} e^{\cos(h_i, q_j)/\tau}},\quad
        \theta_k \leftarrow m\,\theta_k + (1 - m)\,\theta_q

    These are eq. 1 to 5, a mean over the batch: :func:`functional.pseudo_token_mapping`,
    :func:`functional.queue_info_nce` and :class:`modules.MomentumEncoder`.

    A small language model scores 56.5 on average over the seven STS tasks. After 60 updates it reached 71.2,
    and 72.7 after 400. With ``recipes.recommended_loss`` it reached 73.2 and 74.0.

    Inputs:
        +-----------------------------------------------------------------------------+--------+
        | Columns                                                                     | Labels |
        +=============================================================================+========+
        | anchor (a sentence)                                                         | unused |
        +-----------------------------------------------------------------------------+--------+
        | anchor, positive (an altered copy for the momentum encoder, such as         | unused |
        | :func:`data.positive_pairs`)                                                |        |
        +-----------------------------------------------------------------------------+--------+

    Returns from ``forward``: a dict with the term ``contrastive``. ``diagnostics`` holds ``queue_filled``
    (share of the queue that is in use), and ``alignment`` and ``uniformity`` of the mapped vectors :math:`h`
    (:func:`functional.alignment` of the positive pairs, :func:`functional.uniformity` of the batch; lower is
    better). With pairs of STS-B as evaluation dataset these are those of the paper's Figure 3. An evaluation
    leaves queue and momentum encoder as they are.

    Args:
        model: Any encoder; with dropout if there is one column.
        num_pseudo_tokens: Length of the pseudo sentence. 0 leaves out pseudo tokens and attention (the
            paper's MoCo-BERT).
        queue_size: Number of vectors in the queue. The batch enters the queue before it is scored: with 256,
            each sentence has 1 positive and 255 negatives. Use less than the number of training sentences:
            otherwise the queue holds older vectors of the same sentence as negatives.
        momentum: :math:`m`, in [0, 1). The paper's number is not legible; this is the official code's.
        attend_to: ``"tokens"``: the pseudo tokens attend to the sentence's tokens. ``"pooled"``: they attend
            to the sentence vector alone, as in the official code (see Deviations).
        temperature: :math:`\tau`, above 0.
        projection_head: Adds a Linear layer and tanh on the mapped vector in training.
        momentum_dropout: Uses dropout in the momentum encoder.

    Raises:
        ValueError: If a value is out of range, there is one column and no dropout, or ``attend_to="tokens"``
            and the model has no padded token embeddings as wide as its sentence vectors.

    Relations:
        - ``num_pseudo_tokens=0`` with ``data.positive_pairs`` gives the paper's baselines MoCo + reorder,
          duplication, deletion and, with :func:`data.recombine_roles`, SRL.
        - With ``attend_to="tokens"`` the sentence vector is only the query of the second attention. For [CLS]
          pooling ``"pooled"`` trains the vector that is saved, so the recipe uses it there.

    Deviations:
        The official code gives the pseudo tokens the pooled vector alone. A softmax over one key is 1, so all
        pseudo tokens become the same row, get no gradient, and the attentions are two linear maps. The paper
        wants them "to attend to the core part and ignore the redundant part", which needs the tokens. The
        code's momentum encoder starts from random weights, ours from the encoder's; its second attention on
        that side is the trained one, ours the copy; its batch enters the queue after it is scored; its
        attention has 12 heads, biases and dropout. :class:`losses.official.PTBERTLoss` has all of these but
        the random start.

    Example:
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from sbert_plugins import losses
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> train = Dataset.from_dict({"anchor": ["It is raining.", "He plays the organ.", "Prices fell."]})
        >>> loss = losses.PTBERTLoss(model)
        >>> SentenceTransformerTrainer(model=model, train_dataset=train, loss=loss).train()
    """

    citation = """
@inproceedings{tan-etal-2022-sentence,
    title = "A Sentence is Worth 128 Pseudo Tokens: A Semantic-Aware Contrastive Learning Framework for
             Sentence Embeddings",
    author = "Tan, Haochen and Shao, Wei and Wu, Han and Yang, Ke and Song, Linqi",
    booktitle = "Findings of the Association for Computational Linguistics: ACL 2022",
    year = "2022",
    url = "https://aclanthology.org/2022.findings-acl.22",
}
"""
    columns = ("anchor", "positive")
    optional_columns = 1
    works_in_matryoshka = False
    enqueue_first: ClassVar[bool] = True

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
        super().__init__(
            model,
            num_pseudo_tokens=num_pseudo_tokens,
            queue_size=queue_size,
            attend_to=attend_to,
            temperature=temperature,
            projection_head=projection_head,
        )
        attention = self._build_attention() if num_pseudo_tokens else None
        head = self._build_head() if projection_head else nn.Identity()
        self.mapping = _Mapping(attention, head)
        self.queue = EmbeddingQueue(queue_size, sentence_width(model))
        self.momentum_encoder = MomentumEncoder(
            model, self.mapping, momentum=momentum, dropout=momentum_dropout
        )
        self.to(model.device)
        after_optimizer_step(self, PTBERTLoss._update_momentum_encoder)

    def _build_attention(self) -> PseudoTokenAttention:
        width = sentence_width(self.model)
        return PseudoTokenAttention(width, num_pseudo_tokens=self.num_pseudo_tokens, attend_to=self.attend_to)

    def _build_head(self) -> nn.Module:
        return ProjectionHead(sentence_width(self.model))

    def _update_momentum_encoder(self) -> None:
        self.momentum_encoder.update(self.model, self.mapping)

    def compute(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Terms:
        """Return the term ``contrastive``."""
        anchor, positive = columns[0], columns[-1]
        if positive is anchor:
            require_dropout(self.model, "PTBERTLoss with one column")
        training = is_training(self.model)
        if training:  # a copy of a loss registers itself here
            after_optimizer_step(self, PTBERTLoss._update_momentum_encoder)
        (seen,) = encode([anchor], tokens=True)
        queries = self.mapping(seen)  # (B, D)
        positives = self._keys(positive, training=training).to(queries.dtype)  # (B, D)
        # An evaluation adds nothing to the queue, so it need not gather.
        keys, first = rows_of_all_ranks(positives) if training else (positives, 0)  # (B of all ranks, D)
        # (C, D) and (B, C) bool
        candidates, is_negative = self.queue.candidates(
            keys, first, len(queries), enqueue_first=self.enqueue_first
        )
        if training:
            self.queue.enqueue(keys)
        with torch.no_grad():
            self.diagnostics = {
                "queue_filled": self.queue.filled.float().mean(),
                "alignment": functional.alignment(queries, positives),
            }
            if len(queries) > 1:
                self.diagnostics["uniformity"] = functional.uniformity(queries)
        loss = functional.queue_info_nce(
            queries, positives, candidates, is_negative, temperature=self.temperature
        )
        return Terms(contrastive=loss)

    def _keys(self, column: dict[str, Tensor], *, training: bool) -> Tensor:
        """Return (B, D), the momentum encoder's vectors of a column."""
        return self.momentum_encoder(column, training=training)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings."""
        return super().get_config_dict() | {
            "momentum": self.momentum_encoder.momentum,
            "momentum_dropout": self.momentum_encoder.dropout,
        }


class _Mapping(nn.Module):
    """The training-only part on the encoder: pseudo tokens, then the projection head."""

    def __init__(self, attention: PseudoTokenAttention | None, head: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.head = head

    def forward(self, seen: Pass) -> Tensor:
        if self.attention is None:
            return self.head(seen.vectors)
        vectors, tokens = seen.vectors, seen.tokens
        is_readable = tokens is not None and seen.attended is not None and tokens.shape[2] == vectors.shape[1]
        if self.attention.attend_to == "tokens" and not is_readable:
            raise ValueError(
                "attend_to='tokens' needs padded token embeddings as wide as the sentence vectors. Set "
                "model[0].unpad_inputs = False, leave out a Dense layer, or pass attend_to='pooled'."
            )
        return self.head(self.attention(vectors, tokens, seen.attended))
