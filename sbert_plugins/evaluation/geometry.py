"""How embeddings lie on the sphere: alignment, uniformity, and the cosines of each level of gold similarity."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sbert_plugins import functional

from .embeddings import EmbeddingEvaluator, Embeddings
from .sts import gold_threshold, load_sts

LEVELS = ("0-1", "1-2", "2-3", "3-4", "4-5")


class AlignmentUniformityEvaluator(EmbeddingEvaluator):
    """Alignment and uniformity on STS-B: what ArcCSE, PT-BERT and PaSeR plot, lower is better on both.

    Alignment is the mean squared distance of the pairs that the gold score calls positive, uniformity the logarithm of the
    mean Gaussian potential over all pairs of sentences (:func:`~sbert_plugins.functional.alignment`,
    :func:`~sbert_plugins.functional.uniformity`; Wang and Isola, 2020). Split, threshold and repeated sentences move both
    (all-MiniLM-L6-v2: alignment 0.236 to 0.330), so they are arguments and stand in the config. ArcCSE measures on the
    development set (section 4.5); the threshold is SimCSE's, whose figure the papers follow.

    Args:
        data_dir: As in :class:`STSSuiteEvaluator`.
        split: ``"dev"`` or ``"test"`` of STS-B.
        positive: Gold scores of positive pairs, ``">4"`` or ``">=4"``.
        duplicates: Uniformity over each distinct sentence once (``"drop"``), or over every sentence of every pair
            (``"keep"``): two copies have distance 0.
        hub: As in :class:`STSSuiteEvaluator`.
        batch_size: Sentences an encoder call.
        show_progress_bar: Whether ``encode`` shows its bar.
        name: Prefix of the metric names, by default ``stsb_dev`` or ``stsb_test``.
        write_csv: Whether to append to ``<name>_geometry.csv`` in the evaluator's output path.

    Returns:
        Of a call: ``alignment`` (the primary metric) and ``uniformity``. Neither chooses a checkpoint alone: a collapsed
        encoder has the best alignment, a random one good uniformity.

    Raises:
        ValueError: On other arguments, no positive pair, or embeddings that are not finite.
        FileNotFoundError: On a missing task file.
        ConnectionError: If there is neither a data directory nor the Hub.

    Example:
        >>> from sbert_plugins import evaluation
        >>> evaluator = evaluation.AlignmentUniformityEvaluator(split="dev")
        >>> evaluator(model)
        {'stsb_dev_alignment': ..., 'stsb_dev_uniformity': -...}
    """

    csv_file = "geometry.csv"
    lower_is_better = ("alignment", "uniformity")

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        split: Literal["dev", "test"] = "dev",
        positive: str = ">4",
        duplicates: Literal["drop", "keep"] = "drop",
        hub: bool = False,
        batch_size: int = 128,
        show_progress_bar: bool = False,
        name: str | None = None,
        write_csv: bool = True,
    ) -> None:
        task = _stsb(split)
        if duplicates not in ("drop", "keep"):
            raise ValueError(f"duplicates must be 'drop' or 'keep', got {duplicates!r}.")
        is_positive = gold_threshold("positive", positive, ">")
        super().__init__(
            name=f"stsb_{split}" if name is None else name,
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            write_csv=write_csv,
        )
        self.greater_is_better = False
        self.primary_metric = "alignment"
        self.test_sets = ("STS-B",) if split == "test" else ()
        self.split = split
        self.positive = positive
        self.duplicates = duplicates
        pairs = load_sts(task, data_dir, hub=hub)
        self.sentences = [*pairs.sentences1, *pairs.sentences2]
        self.positive_pairs = [(first, second) for first, second, score in zip(*pairs, strict=True) if is_positive(score)]
        if not self.positive_pairs:
            raise ValueError(f"no pair of {task} has a gold score {positive}: choose a lower threshold.")

    def compute(self, embeddings: Embeddings) -> dict[str, float]:
        """Return alignment and uniformity."""
        first, second = (embeddings([pair[side] for pair in self.positive_pairs]) for side in (0, 1))
        everything = embeddings(self.sentences if self.duplicates == "keep" else list(dict.fromkeys(self.sentences)))
        return {
            "alignment": float(functional.alignment(first, second)),
            "uniformity": float(functional.uniformity(everything)),
        }

    @property
    def description(self) -> str:
        """Heading in the model card."""
        return "Alignment and Uniformity"

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings that decide the numbers, and how many pairs and sentences they select."""
        distinct = len(dict.fromkeys(self.sentences))
        return {
            "split": f"STS-B {self.split}",
            "positive": f"gold {self.positive}",
            "positive_pairs": len(self.positive_pairs),
            "duplicates": self.duplicates,
            "sentences": distinct if self.duplicates == "drop" else len(self.sentences),
            "alpha": 2,
            "t": 2,
        }


class CosineDensityEvaluator(EmbeddingEvaluator):
    """Mean and variance of the cosine at each level of gold similarity: PaSeR's Table 10, and the data of its Figure 5.

    STS-B's pairs fall into five levels by their gold score: [0, 1), [1, 2), [2, 3), [3, 4) and [4, 5]. Levels far apart with
    little variance each are what a similarity is for. The variance is that of the population.

    Args:
        data_dir: As in :class:`STSSuiteEvaluator`.
        split: ``"dev"`` or ``"test"`` of STS-B; the paper does not say which.
        hub: As in :class:`STSSuiteEvaluator`.
        batch_size: Sentences an encoder call.
        show_progress_bar: Whether ``encode`` shows its bar.
        name: Prefix of the metric names, by default ``stsb_dev_cosine`` or ``stsb_test_cosine``.
        write_csv: Whether to append to ``<name>_density.csv`` in the evaluator's output path.

    Returns:
        Of a call: ``mean_0-1``, ``variance_0-1`` to ``mean_4-5``, ``variance_4-5``, and ``separation`` (the primary
        metric), the mean of the highest level less that of the lowest.

    Raises:
        ValueError: On another split, a level without pairs, or embeddings that are not finite.
        FileNotFoundError: On a missing task file.
        ConnectionError: If there is neither a data directory nor the Hub.
    """

    csv_file = "density.csv"
    no_direction = tuple(f"{value}_{level}" for level, value in itertools.product(LEVELS, ("mean", "variance")))

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        split: Literal["dev", "test"] = "test",
        hub: bool = False,
        batch_size: int = 128,
        show_progress_bar: bool = False,
        name: str | None = None,
        write_csv: bool = True,
    ) -> None:
        task = _stsb(split)
        super().__init__(
            name=f"stsb_{split}_cosine" if name is None else name,
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            write_csv=write_csv,
        )
        self.primary_metric = "separation"
        self.test_sets = ("STS-B",) if split == "test" else ()
        self.split = split
        self.pairs = load_sts(task, data_dir, hub=hub)
        self.sentences = [*self.pairs.sentences1, *self.pairs.sentences2]
        self.level_of_pair = np.minimum(np.floor(self.pairs.scores).astype(int), len(LEVELS) - 1)
        self.counts = {level: int((self.level_of_pair == place).sum()) for place, level in enumerate(LEVELS)}
        empty = [level for level, count in self.counts.items() if count == 0]
        if empty:
            raise ValueError(f"{task} has no pair at the gold level {', '.join(empty)}.")

    def cosines(self, embeddings: Embeddings) -> dict[str, np.ndarray]:
        """Return the cosines of each level's pairs, lowest level first: what a density plot draws."""
        values = embeddings.cosines(self.pairs.sentences1, self.pairs.sentences2).cpu().numpy()
        return {level: values[self.level_of_pair == place] for place, level in enumerate(LEVELS)}

    def compute(self, embeddings: Embeddings) -> dict[str, float]:
        """Return mean and variance of each level, and the separation of the outer two."""
        metrics = {}
        for level, values in self.cosines(embeddings).items():
            metrics[f"mean_{level}"] = float(values.mean(dtype=np.float64))
            metrics[f"variance_{level}"] = float(values.var(dtype=np.float64))
        metrics["separation"] = metrics[f"mean_{LEVELS[-1]}"] - metrics[f"mean_{LEVELS[0]}"]
        return metrics

    @property
    def description(self) -> str:
        """Heading in the model card."""
        return "Cosine by Level of Similarity"

    def get_config_dict(self) -> dict[str, Any]:
        """Return the split and the number of pairs of each level."""
        return {"split": f"STS-B {self.split}", "pairs": self.counts}


def _stsb(split: str) -> str:
    if split not in ("dev", "test"):
        raise ValueError(f"split must be 'dev' or 'test' of STS-B, got {split!r}.")
    return "STS-B dev" if split == "dev" else "STS-B"
