"""SimCSE: a sentence and itself with other dropout, against the other sentences of the batch."""

from collections.abc import Sequence
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor

from sbert_plugins.encoder import Encoder
from sbert_plugins.losses.arccse import ArcCSELoss
from sbert_plugins.losses.base import Terms


class SimCSELoss(ArcCSELoss):
    r"""Unsupervised SimCSE (Gao et al., EMNLP 2021, https://aclanthology.org/2021.emnlp-main.552).

    Each sentence passes the encoder twice, with different dropout. The two vectors are a positive pair; the
    other sentences of the batch are negatives.

    .. math::
        L = -\log\frac{e^{\cos(z_i, z_i^+)/\tau}}{\sum_j e^{\cos(z_i, z_j^+)/\tau}}

    This is its eq. 4, a mean over the batch: :func:`functional.info_nce`.

    Inputs:
        +---------------------------------------------------------------+--------+
        | Columns                                                       | Labels |
        +===============================================================+========+
        | anchor (a sentence)                                           | unused |
        +---------------------------------------------------------------+--------+
        | anchor, positive (any pairs, such as :func:`data.crop_pairs`) | unused |
        +---------------------------------------------------------------+--------+

    Returns from ``forward``: a dict with the term ``contrastive``.

    Args:
        model: Any encoder; with dropout if there is one column.
        temperature: :math:`\tau`, above 0.
        projection_head: Adds a Linear layer and tanh on the sentence vector in training (section 6.3). It is
            not saved with the model.
        gather_across_devices: Uses the sentences of all ranks as negatives.

    Raises:
        ValueError: If the temperature is out of range, or there is one column and no dropout.

    Relations:
        It is :class:`ArcCSELoss` without margin and triplets. ``projection_head=False`` is
        sentence-transformers' ``MultipleNegativesRankingLoss`` on (sentence, sentence) pairs with ``scale=1 /
        temperature``, in one pass of both views.

    Example:
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from sbert_plugins import losses
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> train = Dataset.from_dict({"anchor": ["It is raining.", "He plays the organ.", "Prices fell."]})
        >>> loss = losses.SimCSELoss(model)
        >>> SentenceTransformerTrainer(model=model, train_dataset=train, loss=loss).train()
    """

    citation = """
@inproceedings{gao-etal-2021-simcse,
    title = "{S}im{CSE}: Simple Contrastive Learning of Sentence Embeddings",
    author = "Gao, Tianyu and Yao, Xingcheng and Chen, Danqi",
    booktitle = "Proceedings of the 2021 Conference on Empirical Methods in Natural Language Processing",
    year = "2021",
    url = "https://aclanthology.org/2021.emnlp-main.552",
}
"""

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.05,
        projection_head: bool = True,
        gather_across_devices: bool = False,
    ) -> None:
        super().__init__(
            model,
            margin_degrees=0.0,
            triplet_weight=0.0,
            temperature=temperature,
            projection_head=projection_head,
            gather_across_devices=gather_across_devices,
        )

    def compute(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Terms:
        """Return the term ``contrastive``."""
        return Terms(contrastive=super().compute(encode, columns, labels)["arccon"])

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings."""
        names = ("temperature", "projection_head", "gather_across_devices")
        return {name: getattr(self, name) for name in names}
