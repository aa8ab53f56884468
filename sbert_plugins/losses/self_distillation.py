"""Self-distillation: keep the similarities of the model that the training starts from."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device
from torch import Tensor

from sbert_plugins import functional, host
from sbert_plugins.encoder import Encoder, Pass, dropout_off, unwrap
from sbert_plugins.losses.base import Loss, Terms


class SelfDistillationLoss(Loss):
    r"""Listwise distillation from a frozen teacher, by default the model itself as it is before the training.

    Contrastive training on a narrow collection pushes the sentences of one topic apart. This term keeps, for
    each sentence, the order of the other sentences of the batch by similarity. Add it with a small weight to
    other losses (:class:`WeightedSumLoss`, ``recipes.recommended_loss``) if the model embeds well already.

    .. math::
        L = -\frac{1}{B}\sum_i\sum_{j \ne i} p_{ij} \log q_{ij},\quad
        p_{ij} = \mathrm{softmax}_j\left(\frac{\cos(t_i, t_j)}{\tau_t}\right),\quad
        q_{ij} = \mathrm{softmax}_j\left(\frac{\cos(z_i, z_j)}{\tau}\right)

    :math:`z` are the vectors of the model in training, :math:`t` those of the teacher, without dropout and
    gradient: :func:`functional.similarity_distillation`.

    Inputs:
        +---------------------+----------------------------------------------------------+
        | Columns             | Labels                                                   |
        +=====================+==========================================================+
        | anchor (a sentence) | with ``teacher="labels"`` the teacher's vectors (B, T),  |
        |                     | else unused                                              |
        +---------------------+----------------------------------------------------------+

    Returns from ``forward``: a dict with the term ``distillation``. ``diagnostics`` holds ``divergence``
    (mean Kullback-Leibler divergence of q from p, in nats; 0 if the similarities are the teacher's and the
    two temperatures are equal).

    Args:
        model: Any encoder.
        teacher: The model whose similarities are kept, which must read the same tokens. By default a frozen
            copy of ``model`` as it is now. If ``model`` has a new adapter (PEFT), the model without the
            adapter is the teacher, and there is no copy. ``"labels"``: the labels are the teacher's vectors.
        temperature: :math:`\tau`, above 0.
        teacher_temperature: :math:`\tau_t`, above 0. A smaller one stresses the nearest sentences.

    Raises:
        ValueError: If a temperature is out of range, the labels are to be vectors and are not, or a training
            is resumed with another teacher than it began with.

    Relations:
        - It is the ranking distillation of RankCSE (Liu et al., ACL 2023) with the start as the teacher.
        - A training that reads each text several times can compute the teacher's vectors once: put
          ``teacher.encode(texts)`` into the dataset's column ``label`` and pass ``teacher="labels"``.
        - ``recipes.average_with_start`` reaches a similar aim after a training, without the term.

    Deviations:
        In a sum, in training, it reads the first pass of a loss before it, which may be an altered view.

    Example:
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from sbert_plugins import losses
        >>> model = SentenceTransformer("all-MiniLM-L6-v2")
        >>> train = Dataset.from_dict({"anchor": ["It is raining.", "He plays the organ.", "Prices fell."]})
        >>> loss = losses.WeightedSumLoss(
        ...     model,
        ...     {
        ...         "contrast": (losses.ConSERTLoss(model), 1.0),
        ...         "keep": (losses.SelfDistillationLoss(model), 0.1),
        ...     },
        ... )
        >>> SentenceTransformerTrainer(model=model, train_dataset=train, loss=loss).train()
    """

    citation = """
@inproceedings{liu-etal-2023-rankcse,
    title = "{R}ank{CSE}: Unsupervised Sentence Representations Learning via Learning to Rank",
    author = "Liu, Jiduan and Liu, Jiahao and Wang, Qifan and Wang, Jingang and Wu, Wei and Xian, Yunsen and
              Zhao, Dongyan and Chen, Kai and Yan, Rui",
    booktitle = "Proceedings of the 61st Annual Meeting of the Association for Computational Linguistics",
    year = "2023",
    url = "https://arxiv.org/abs/2305.16726",
}
"""
    waits_for_other_ranks = False

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        teacher: SentenceTransformer | str | None = None,
        temperature: float = 0.1,
        teacher_temperature: float = 0.05,
    ) -> None:
        super().__init__(model, temperature=temperature, teacher_temperature=teacher_temperature)
        self.reads_labels = teacher == "labels"
        self.kind_of_teacher = "the start" if teacher is None else "another model"
        start = unwrap(model)
        if teacher is None and not host.has_new_adapter(start):
            teacher = copy.deepcopy(start).eval().requires_grad_(False)
            host.undo_preparation(teacher)  # of the start, if it was trained before
        # In a tuple, so that it is neither trained nor saved with the loss.
        self._teacher = (None if isinstance(teacher, str) else teacher,)
        with self._teaching() as teaching:
            mark = torch.zeros(2) if self.reads_labels else _mark_of(teaching)
        self.register_buffer("teacher_mark", mark)
        self._expected_mark = self.teacher_mark.clone()

    @property
    def teacher(self) -> SentenceTransformer | None:
        """The teacher, or None if it is the model without its adapter."""
        return self._teacher[0]

    @contextmanager
    def _teaching(self) -> Iterator[SentenceTransformer]:
        """Yield the teacher, without dropout and without a new adapter."""
        model = unwrap(self.model) if self.teacher is None else self.teacher
        without_adapter = host.adapter_off(model) if self.teacher is None else nullcontext()
        with dropout_off(model), without_adapter:
            yield model

    def begin_training(self, *, steps: int, resumed: bool) -> None:
        """Check that a resumed training has the teacher that it began with."""
        length, _ = expected = self._expected_mark.cpu()
        # Another device rounds differently, and the second number may be near 0.
        if resumed and (self.teacher_mark.cpu() - expected).abs().max() > 1e-4 * length:
            raise ValueError(
                "The teacher of SelfDistillationLoss is another model than the one that the training began "
                "with. Build model and loss as in the first run, from the start of the training, then resume."
            )

    @torch.no_grad()
    def _teach(self, column: dict[str, Tensor], student: Pass) -> Tensor:
        with self._teaching() as teacher:
            device = student.vectors.device
            teacher.to(device)
            with torch.autocast(device.type, dtype=student.autocast, enabled=student.autocast is not None):
                return teacher(dict(column))["sentence_embedding"]

    def compute(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Terms:
        """Return the term ``distillation``."""
        (anchor,) = columns
        student = encode.any_pass(anchor)  # vectors (B, D)
        if not self.reads_labels:
            labels = self._teach(anchor, student)
        elif labels is None or labels.ndim != 2:
            raise ValueError(
                "teacher='labels' needs vectors in the column label, got "
                f"{None if labels is None else list(labels.shape)}. Put teacher.encode(texts) there."
            )
        teacher, of_teacher = labels, self.teacher_temperature  # (B, T)
        loss = functional.similarity_distillation(
            student.vectors, teacher, temperature=self.temperature, teacher_temperature=of_teacher
        )
        with torch.no_grad():
            entropy = functional.similarity_distillation(
                teacher, teacher, temperature=of_teacher, teacher_temperature=of_teacher
            )
            self.diagnostics = {"divergence": loss.detach() - entropy}
        return Terms(distillation=loss)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings."""
        teacher = "labels" if self.reads_labels else self.kind_of_teacher
        return super().get_config_dict() | {"teacher": teacher}


@torch.no_grad()
def _mark_of(model: SentenceTransformer) -> Tensor:
    """Return two numbers of the vector of a fixed sentence, which differ from model to model."""
    features = batch_to_device(
        model.preprocess(["A teacher is known by its vector of this sentence."]), model.device
    )
    with host.half_for_flash(model.transformers_model):
        vector = model(features)["sentence_embedding"][0].float()
    weights = torch.arange(1, len(vector) + 1, device=vector.device) / len(vector)
    return torch.stack([vector.norm(), (vector * weights).sum()])
