"""Search distillation: rank documents as a teacher does that also knows the words."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from torch.nn.functional import normalize

from sbert_plugins import functional
from sbert_plugins.encoder import Encoder
from sbert_plugins.losses.base import Loss, Terms
from sbert_plugins.losses.self_distillation import SelfDistillationLoss


class SearchDistillationLoss(Loss):
    r"""Listwise distillation of the scores of documents for queries, from a teacher such as a mix with BM25.

    The documents of all rows of the batch are one list, which every query ranks.

    .. math::
        L = -\frac{1}{B}\sum_i\sum_j p_{ij} \log q_{ij},\quad
        p_i = \mathrm{softmax}_j(\alpha s_{ij}),\quad
        q_i = \mathrm{softmax}_j\left(\frac{\cos(z_i, z_j)}{\tau}\right)

    :math:`s_{ij}` is the teacher's score of document j for query i. Documents with a score of minus infinity
    do not belong to the list of a query; this takes out the document that a pseudo-query is from. A document
    that is in the batch several times counts once. The equation is :func:`functional.listwise_distillation`.

    Inputs:
        +-----------------------------------------------+------------------------------------------------+
        | Columns                                       | Labels                                         |
        +===============================================+================================================+
        | query, document_1, ..., document_n            | (B, 1 + n), the row of the query and the       |
        |                                               | columns of the documents in ``scores``         |
        +-----------------------------------------------+------------------------------------------------+

        :func:`data.search_rows` makes such rows.

    Returns from ``forward``: a dict with the term ``search`` and, with ``vectors``, the term ``keep``.
    ``diagnostics`` holds ``divergence`` (mean Kullback-Leibler divergence of q from p, in nats).

    Args:
        model: Any encoder.
        scores: (Q, N), the teacher's scores, usually of :func:`data.mix_scores`.
        vectors: (N, D), vectors of the documents by the model as it is before the training. They keep the
            similarities of documents, as :class:`SelfDistillationLoss` does.
        keep: Weight of the term ``keep``.
        temperature: :math:`\tau`, above 0.
        sharpness: :math:`\alpha`. A larger value stresses the best documents of the teacher.

    Raises:
        ValueError: If a batch has no labels, or no document.

    Example:
        >>> import numpy as np
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from sbert_plugins import data, losses
        >>> model = SentenceTransformer("all-MiniLM-L6-v2")
        >>> documents = ["It rains all day. Nobody sails today.", "He plays the organ.", "Prices fell."]
        >>> queries, own = data.pseudo_queries(documents, min_words=2)
        >>> vectors = model.encode(documents, normalize_embeddings=True)
        >>> cosines = model.encode(queries, normalize_embeddings=True) @ vectors.T
        >>> scores = data.mix_scores(cosines, data.bm25_scores(documents, queries), own)
        >>> rows = data.search_rows(queries, documents, scores, size=2)
        >>> loss = losses.SearchDistillationLoss(model, scores, vectors)
        >>> SentenceTransformerTrainer(model=model, train_dataset=rows, loss=loss).train()
    """

    citation = SelfDistillationLoss.citation
    columns = ("query", "document_1")

    def __init__(
        self,
        model: SentenceTransformer,
        scores: Tensor | np.ndarray,
        vectors: Tensor | np.ndarray | None = None,
        *,
        keep: float = 0.1,
        temperature: float = 0.07,
        sharpness: float = 4.0,
    ) -> None:
        super().__init__(model, keep=keep, temperature=temperature, sharpness=sharpness)
        self.register_buffer("scores", torch.as_tensor(scores, dtype=torch.float32), persistent=False)
        kept = None if vectors is None else torch.as_tensor(vectors, dtype=torch.float32)
        self.register_buffer("vectors", kept, persistent=False)

    def check_columns(self, columns: Sequence[dict[str, Tensor]]) -> None:
        """Raise ``ValueError`` without a document."""
        super().check_columns(columns[:2])

    def compute(self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None) -> Terms:
        """Return the terms ``search`` and ``keep``."""
        if labels is None or labels.shape[1:] != (len(columns),):
            raise ValueError(
                f"SearchDistillationLoss needs the column label with {len(columns)} numbers per row, got "
                f"{None if labels is None else tuple(labels.shape)}. data.search_rows makes such rows."
            )
        (query,), documents = encode(columns[:1]), encode(columns[1:])
        places = labels[:, 1:].T.flatten()  # as the documents are encoded, column by column
        is_first = ~(places[:, None] == places).tril(-1).any(dim=1)
        places, found = places[is_first], torch.cat([one.vectors for one in documents])[is_first]
        target = self.sharpness * self.scores[labels[:, :1], places]
        with torch.autocast(found.device.type, enabled=False):
            cosines = normalize(query.vectors.float(), dim=1) @ normalize(found.float(), dim=1).T
        loss = functional.listwise_distillation(cosines, target, temperature=self.temperature)
        terms = Terms(search=loss)
        entropy = functional.listwise_distillation(target, target, temperature=1.0)
        self.diagnostics = {"divergence": loss.detach() - entropy}
        if self.vectors is not None:
            terms["keep"] = self.keep * functional.similarity_distillation(
                found, self.vectors[places], temperature=0.1, teacher_temperature=0.05
            )
        return terms

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings."""
        settings = super().get_config_dict() | {"scores": list(self.scores.shape)}
        return settings if self.vectors is not None else settings | {"keep": None}
