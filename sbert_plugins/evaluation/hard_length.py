"""Pairs whose length misleads: the hard subset of STS12 to STS16 that PT-BERT scores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .embeddings import EmbeddingEvaluator, Embeddings
from .sts import ScoredPairs, concatenated, gold_threshold, load_sts, pairs_spearman

YEARS = ("STS12", "STS13", "STS14", "STS15", "STS16")


class HardLengthEvaluator(EmbeddingEvaluator):
    """STS12 to STS16 where length is the wrong hint: PT-BERT's hard examples (section 5.2).

    Kept are the positive pairs whose lengths differ by more than 5 words and the negative pairs whose lengths differ by
    fewer than 2. A model that takes equal length for equal meaning fails on both.

    **From which gold score a pair is positive, up to which it is negative, the paper does not say**, and the answer moves
    the score by 20 points. Thus both are required, both are in the config with the size of the subset that they select,
    and scores compare only where these are the same. What a word is, it does not say either: here what white space
    separates, in the text as it was published. SentEval's copy, which the papers of this field read, has spaces round
    punctuation, put there by Moses' tokenizer, and that counts as well: all-MiniLM-L6-v2 scores 61.1 on the union of
    ``>4`` and ``<1`` counted as here, 70.3 counted as there. ``count_words`` chooses; ``benchmarks/evaluation_check.py`` has
    both.

    The paper's own figure is the mean of the five years. A year may hold few positive pairs, so the correlation over the
    union of the years is reported beside it.

    Paper: https://aclanthology.org/2022.findings-acl.22 (section 3.1 defines the subset, table 5 c scores it).

    Args:
        positive: Gold scores of positive pairs: a comparison and a number, such as ``">=4"`` or ``">3"``.
        negative: Gold scores of negative pairs, such as ``"<=1"`` or ``"<2"``.
        data_dir: As in :class:`STSSuiteEvaluator`.
        count_words: Number of words of a sentence.
        hub: As in :class:`STSSuiteEvaluator`.
        batch_size: Sentences an encoder call.
        show_progress_bar: Whether ``encode`` shows its bar.
        name: Prefix of the metric names.
        write_csv: Whether to append to ``<name>_results.csv`` in the evaluator's output path.

    Returns:
        Of a call: Spearman x 100 of each year, ``avg5`` (their mean, the primary metric) and ``union``.

    Raises:
        ValueError: On thresholds of another form, that overlap, or that leave a year without positive or negative pairs;
            and as :class:`STSSuiteEvaluator`.
        FileNotFoundError: On a missing task file.
        ConnectionError: If there is neither a data directory nor the Hub.

    Example:
        >>> from sbert_plugins import evaluation
        >>> evaluator = evaluation.HardLengthEvaluator(positive=">=4", negative="<=1")
        >>> evaluator.num_pairs, evaluator.num_positives
        (1563, 207)
    """

    csv_file = "results.csv"
    test_sets = YEARS

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        positive: str,
        negative: str,
        count_words: Callable[[str], int] | None = None,
        hub: bool = False,
        batch_size: int = 128,
        show_progress_bar: bool = False,
        name: str = "hard_length",
        write_csv: bool = True,
    ) -> None:
        super().__init__(name=name, batch_size=batch_size, show_progress_bar=show_progress_bar, write_csv=write_csv)
        is_positive, is_negative = gold_threshold("positive", positive, ">"), gold_threshold("negative", negative, "<")
        # What overlaps does so at a bound, or between two.
        bounds = sorted(float(text.strip(" <>=")) for text in (positive, negative))
        overlap = [score for score in (*bounds, sum(bounds) / 2) if is_positive(score) and is_negative(score)]
        if overlap:
            raise ValueError(
                f"positive {positive!r} and negative {negative!r} must not overlap, both hold for a score of {overlap[0]}."
            )
        self.positive = positive
        self.negative = negative
        self.count_words = count_words or count_white_space_words
        self.primary_metric = "avg5"
        self.pairs: dict[str, ScoredPairs] = {}
        self.num_positives = 0
        for year in YEARS:
            rows = [*zip(*load_sts(year, data_dir, hub=hub), strict=True)]
            far = [row for row in rows if is_positive(row[2]) and self._length_difference(*row[:2]) > 5]
            near = [row for row in rows if is_negative(row[2]) and self._length_difference(*row[:2]) < 2]
            if not far or not near:
                raise ValueError(
                    f"{year} has {len(far)} hard positive pairs (positive={positive!r}) and {len(near)} hard negative pairs "
                    f"(negative={negative!r}), and both are needed for a correlation: choose a wider threshold."
                )
            self.pairs[year] = ScoredPairs(*(list(field) for field in zip(*far, *near, strict=True)))
            self.num_positives += len(far)
        self.union = concatenated(self.pairs.values())
        self.num_pairs = len(self.union.scores)
        self.sentences = [*self.union.sentences1, *self.union.sentences2]

    def compute(self, embeddings: Embeddings) -> dict[str, float]:
        """Return Spearman x 100 of each year, their mean, and of all pairs together."""
        metrics = {year: pairs_spearman(embeddings, pairs) for year, pairs in self.pairs.items()}
        return metrics | {
            "avg5": sum(metrics.values()) / len(metrics),
            "union": pairs_spearman(embeddings, self.union),
        }

    def _length_difference(self, sentence1: str, sentence2: str) -> int:
        return abs(self.count_words(sentence1) - self.count_words(sentence2))

    @property
    def description(self) -> str:
        """Heading in the model card."""
        return "Semantic Textual Similarity, hard by length"

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings that decide the numbers, and the size of the subset that they select."""
        return {
            "positive": f"gold {self.positive}, lengths differ by more than 5 words",
            "negative": f"gold {self.negative}, lengths differ by fewer than 2 words",
            "count_words": getattr(self.count_words, "__qualname__", type(self.count_words).__name__),
            "pairs": self.num_pairs,
            "positive_pairs": self.num_positives,
        }


def count_white_space_words(sentence: str) -> int:
    """Count what white space separates."""
    return len(sentence.split())
