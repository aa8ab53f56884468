"""A score that needs no labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .embeddings import EmbeddingEvaluator, Embeddings

if TYPE_CHECKING:
    from sbert_plugins.data import LabelFreeTexts

# The ratio of the two parts' standard deviations over the checkpoints that the sum was chosen on; 2 to 10 do as well.
_MARGIN_WEIGHT = 5.0


class LabelFreeEvaluator(EmbeddingEvaluator):
    r"""Score an encoder by a person's own sentences, without labels: is meaning seen, and is the sentence kept?

    .. math::
        s = 100 \left( 5\, \frac{\frac{1}{N}\sum_i \cos(x_i, x_i^{syn}) - \cos(x_i, x_i^{other})}
        {1 - \overline{\cos(x_j, x_k)}} + \frac{1}{M}\sum_i \frac{1}{\mathrm{rank}_i} \right)

    The first part is how much nearer a copy with a synonym is than one with another word, in units of the mean distance of two
    sentences; the second how well half of a sentence's words find the sentence among all (mean reciprocal rank, ties against
    it). On the checkpoints that chose it neither says much alone.

    The sum was chosen among 861 of two candidates on 53 checkpoints of 13 trainings, and follows STS-B dev there with a
    Spearman of .83 (median within a training .90), and on 33 checkpoints of 8 trainings of another encoder with .87 (.90):
    ``benchmarks/label_free.py``. What it was not tried on: search, topics, other languages, larger encoders. It compares
    models on one set of texts, not two sets of texts.

    It does not see a training that goes on for too long: over 400 updates of ConSERT on Wikipedia STS-B dev rose from 63.8 to
    79.8 and fell to 75.4, and the score rose from 103.5 to 109.9 and on to 110.3 (``benchmarks/label_free_long.py``).
    Compare methods after few updates with it, and do not let it choose the checkpoint.

    Args:
        texts: From :func:`data.label_free_texts`, of sentences that no training reads.
        batch_size: Sentences an encoder call.
        show_progress_bar: Whether ``encode`` shows its bar.
        name: Prefix of the metric names.
        write_csv: Whether to append to ``<name>_label_free.csv`` in the evaluator's output path.

    Returns:
        Of a call: ``label_free`` (the primary metric, :math:`s`), and its parts ``substitution_margin`` and ``half_mrr``, as
        they are.

    Raises:
        ValueError: On embeddings that are not finite.

    Example:
        >>> from sbert_plugins import data, evaluation, recipes
        >>> sentences = data.read_sentences(recipes.offline_sentences_path())["anchor"][:]
        >>> evaluator = evaluation.LabelFreeEvaluator(data.label_free_texts(sentences[:600], text=sentences[600:]))
        >>> evaluator(model)
        {'label_free': ..., 'substitution_margin': ..., 'half_mrr': ...}
    """

    csv_file = "label_free.csv"
    caution = (
        "Scores without labels are made from sentences that are not trained on, and may pass 100; they say nothing of topics "
        "or search, they do not see a training that goes on for too long, and labels say more."
    )

    def __init__(
        self,
        texts: LabelFreeTexts,
        *,
        batch_size: int = 128,
        show_progress_bar: bool = False,
        name: str = "",
        write_csv: bool = True,
    ) -> None:
        super().__init__(name=name, batch_size=batch_size, show_progress_bar=show_progress_bar, write_csv=write_csv)
        self.primary_metric = "label_free"
        self.texts = texts
        copies = [copy for substitution in texts.substitutions for copy in substitution]
        self.sentences = [*texts.sentences, *copies, *(half for pair in texts.halves for half in pair)]

    def compute(self, embeddings: Embeddings) -> dict[str, float]:
        """Return the score and its parts."""
        margin, rank = self._substitution_margin(embeddings), self._half_mrr(embeddings)
        return {"label_free": 100 * (_MARGIN_WEIGHT * margin + rank), "substitution_margin": margin, "half_mrr": rank}

    def _substitution_margin(self, embeddings: Embeddings) -> float:
        sentences, synonyms, others = (list(side) for side in zip(*self.texts.substitutions, strict=True))
        margins = embeddings.cosines(sentences, synonyms) - embeddings.cosines(sentences, others)
        unit = _unit(embeddings(sentences))
        count = len(unit)
        mean_cosine = (unit.sum(dim=0).square().sum() - count) / (count * (count - 1))  # of two different ones
        return float(margins.cpu().double().mean() / (1 - mean_cosine).clamp_min(1e-6))  # collapsed, all are at one place

    def _half_mrr(self, embeddings: Embeddings) -> float:
        wholes, halves = (list(side) for side in zip(*self.texts.halves, strict=True))
        place = {sentence: number for number, sentence in enumerate(self.texts.sentences)}
        found = _unit(embeddings(halves)) @ _unit(embeddings(self.texts.sentences)).T  # (halves, sentences)
        columns = torch.tensor([place[whole] for whole in wholes])
        right = found.gather(1, columns[:, None])
        return float((found >= right).sum(dim=1).double().reciprocal().mean())

    @property
    def description(self) -> str:
        """Heading in the model card."""
        return "Label-Free Score"

    def get_config_dict(self) -> dict[str, Any]:
        """Return how many texts decide the numbers."""
        sentences, substitutions, halves = self.texts
        return {"sentences": len(sentences), "substitutions": len(substitutions), "halves": len(halves)}


def _unit(vectors: Tensor) -> Tensor:
    return torch.nn.functional.normalize(vectors.cpu().double(), dim=1)  # Apple's GPUs have no float64
