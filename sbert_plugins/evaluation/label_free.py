"""A score that needs no labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .encoding import EmbeddingEvaluator, Encode, unit_rows

if TYPE_CHECKING:
    from sbert_plugins.data import LabelFreeTexts

# The ratio of the standard deviations of the two parts over the checkpoints that chose the formula; 2 to 10
# work as well.
_MARGIN_WEIGHT = 5.0


class LabelFreeEvaluator(EmbeddingEvaluator):
    r"""Score an encoder by altered copies of unlabelled sentences.

    .. math::
        s = 100 \left( 5\, \frac{\frac{1}{N}\sum_i \cos(x_i, x_i^{syn}) - \cos(x_i, x_i^{other})}
        {1 - \overline{\cos(x_j, x_k)}} + \frac{1}{M}\sum_i \frac{1}{\mathrm{rank}_i} \right)

    The first part measures how much closer a sentence is to a copy with a synonym than to a copy with another
    word, relative to the mean distance of two sentences. The second part is the mean reciprocal rank of a
    sentence among all sentences when half of its words are the query.

    The formula was chosen on one set of checkpoints and tested on another:

    =======================================  ===========  =====================
    Spearman correlation with STS-B dev      all          median of a training
    =======================================  ===========  =====================
    chosen on: 53 checkpoints, 13 runs       0.83         0.90
    another encoder: 33 checkpoints, 8 runs  0.87         0.90
    =======================================  ===========  =====================

    It was not tested on retrieval, topics, other languages or larger encoders, and scores on different texts
    are not comparable. It does not detect that a training has run for too long. Use it to compare methods
    after few updates, not to choose a checkpoint.

    Args:
        texts: From ``data.label_free_texts``, made of sentences that are not trained on.
        **options: ``name``, ``batch_size``, ``show_progress_bar`` and ``write_csv`` of
            ``EmbeddingEvaluator``.

    Returns:
        From a call, ``label_free`` (the score, which can exceed 100) and its parts ``substitution_margin``
        and ``half_mrr``, with the name in front.

    Raises:
        ValueError: If an embedding is not finite.

    Example:
        >>> from sbert_plugins import data, evaluation, recipes
        >>> sentences = data.read_sentences(recipes.offline_sentences_path())["anchor"][:]
        >>> texts = data.label_free_texts(sentences[:600], text=sentences[600:])
        >>> evaluator = evaluation.LabelFreeEvaluator(texts)
        >>> evaluator(model)
        {'label_free': ..., 'substitution_margin': ..., 'half_mrr': ...}
    """

    description = "Label-Free Score"
    csv_file = "label_free.csv"
    note = (
        "Scores without labels come from altered copies of held-out sentences and can exceed 100. They do "
        "not measure topics or search, and they do not detect a training that runs for too long."
    )

    def __init__(self, texts: LabelFreeTexts, **options: Any) -> None:
        super().__init__("label_free", **options)
        self.texts = texts
        counts = {"substitutions": len(texts.substitutions), "halves": len(texts.halves)}
        self.config = {"sentences": len(texts.sentences), **counts}

    def compute(self, encode: Encode) -> dict[str, float]:
        """Return the score and its parts."""
        sentences, synonyms, others = (
            unit_rows(encode(side)).cpu().double() for side in zip(*self.texts.substitutions, strict=True)
        )
        closer = (sentences * (synonyms - others)).sum(dim=1).mean()
        count = len(sentences)
        mean_cosine = (sentences.sum(dim=0).square().sum() - count) / (count * (count - 1))
        margin = float(closer / (1 - mean_cosine).clamp_min(1e-6))  # 1 - mean is 0 in a collapsed encoder

        pool, wholes, halves = (
            unit_rows(encode(side)).cpu().double()
            for side in (self.texts.sentences, *zip(*self.texts.halves, strict=True))
        )
        correct = (wholes * halves).sum(dim=1, keepdim=True)
        ranks = (halves @ pool.T >= correct - 1e-9).sum(dim=1)  # ties count against the model
        reciprocal = float(ranks.double().reciprocal().mean())
        score = 100 * (_MARGIN_WEIGHT * margin + reciprocal)
        return {"label_free": score, "substitution_margin": margin, "half_mrr": reciprocal}
