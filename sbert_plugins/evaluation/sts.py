"""Semantic textual similarity: graded pairs, the seven STS tasks, and the subset where length misleads."""

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas
from scipy.stats import rankdata
from sentence_transformers.util import SimilarityFunction

from sbert_plugins.data.read import read_fields, stem_of

from .encoding import EmbeddingEvaluator, Encode, label_items

logger = logging.getLogger(__name__)

DATA_VARIABLE = "SBERT_PLUGINS_DATA"
TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
YEARS = TASKS[:5]
ALL_OF_SICK = "SICK-R is all 9,927 pairs here, as in MTEB. Papers report its 4,927 test pairs."
# task: (files in <data folder>/sts, dataset on the Hub, split)
_SOURCES = {
    **{f"STS{year}": ([f"sts{year}.tsv"], f"mteb/sts{year}-sts", "test") for year in range(12, 17)},
    "STS-B": (["stsb_test.tsv"], "mteb/stsbenchmark-sts", "test"),
    "STS-B train": (["stsb_train.tsv"], "mteb/stsbenchmark-sts", "train"),
    "STS-B dev": (["stsb_dev.tsv"], "mteb/stsbenchmark-sts", "validation"),
    "SICK-R": (["sick_test.tsv"], None, "test"),
    "SICK-R all": (["sick_train.tsv", "sick_trial.tsv", "sick_test.tsv"], "mteb/sickr-sts", "test"),
}


class ScoredPairs(NamedTuple):
    """Sentence pairs and their grades, as three lists of the same length."""

    sentences1: list[str]
    sentences2: list[str]
    scores: list[float]


class PairsEvaluator(EmbeddingEvaluator):
    """Spearman correlation, times 100, of similarity and grade over any graded pairs.

    The similarity is the model's own (``model.similarity_fn_name``), usually the cosine. If all pairs have
    the same similarity, as in a collapsed encoder, the score is 0 and a warning is logged.

    Args:
        pairs: At least three pairs. A higher grade means more similar; the scale does not matter.
        **options: ``name``, ``batch_size``, ``show_progress_bar`` and ``write_csv`` of
            ``EmbeddingEvaluator``.

    Returns:
        From a call, ``spearman``, with the name in front.

    Raises:
        ValueError: For lists of different lengths, fewer than three pairs, grades that are all equal or not
            finite, or embeddings that are not finite.

    Example:
        >>> from sbert_plugins import evaluation, recipes
        >>> evaluator = evaluation.PairsEvaluator(recipes.graded_pairs(), name="pairs")
        >>> spearman = evaluator(model)["pairs_spearman"]
    """

    description = "Semantic Textual Similarity"
    noun = "pairs"

    def __init__(self, pairs: ScoredPairs, **options: Any) -> None:
        super().__init__("spearman", **options)
        lengths, grades = [len(column) for column in pairs], np.unique(pairs.scores)
        if len(set(lengths)) > 1 or lengths[0] < 3 or len(grades) < 2 or not np.isfinite(grades).all():
            raise ValueError(
                "pairs must be three lists of the same length, at least 3, with finite, different grades. "
                f"Got the lengths {lengths} and {len(grades)} different grades."
            )
        self.config = {"measure": "Spearman x 100", "pairs": len(pairs.scores)}
        self.pairs = pairs

    def compute(self, encode: Encode) -> dict[str, float]:
        """Return ``spearman``."""
        score, self.items = score_pairs(encode, self.pairs, self.similarity)
        return {"spearman": score}


class STSSuiteEvaluator(EmbeddingEvaluator):
    """The seven STS tasks that papers report: STS12 to STS16, STS-B and SICK-R.

    The score of a task is the Spearman correlation, times 100, of similarity and grade over the concatenation
    of its subsets: SentEval's "all" setting. The similarity is the model's own, as in ``PairsEvaluator``.

    Args:
        data_dir: Folder with ``sts/sts12.tsv`` to ``sts16.tsv``, ``stsb_<split>.tsv``, ``sick_<split>.tsv``.
            Their tab-separated columns are subset, grade, sentence and sentence, without header and quoting.
            Default: the folder in the environment variable ``SBERT_PLUGINS_DATA``, otherwise the Hugging Face
            Hub.
        hub: Read the tasks from the Hub even if there is a data folder.
        tasks: A selection of ``TASKS``.
        sick: ``"test"`` scores the 4,927 test pairs of SICK-R, as papers do; ``"all"`` scores all 9,927
            pairs, as MTEB does. Default: ``"test"`` from a folder and ``"all"`` from the Hub, which has no
            test split.
        **options: ``name``, ``batch_size``, ``show_progress_bar`` and ``write_csv`` of
            ``EmbeddingEvaluator``.

    Returns:
        From a call, the score of each task and their mean, ``avg7``. For a selection of n tasks, the mean is
        ``avg<n>``.

    Raises:
        KeyError: For an unknown task.
        ValueError: For ``sick="test"`` from the Hub, a malformed row, or embeddings that are not finite.
        FileNotFoundError: If a task's file is missing.
        ConnectionError: If the Hub is needed and cannot be reached.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sbert_plugins import evaluation
        >>> evaluator = evaluation.STSSuiteEvaluator()
        >>> average = evaluator(SentenceTransformer("bert-base-uncased"))["avg7"]
    """

    description = "Semantic Textual Similarity"
    noun = "pairs"

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        hub: bool = False,
        tasks: Sequence[str] = TASKS,
        sick: Literal["test", "all"] | None = None,
        **options: Any,
    ) -> None:
        self.average_key = f"avg{len(tasks)}"
        super().__init__(self.average_key, **options)
        self.sick = sick or ("all" if hub or data_directory(data_dir) is None else "test")
        if self.sick == "all" and "SICK-R" in tasks:
            self.note = ALL_OF_SICK
            if sick is None:
                logger.warning(ALL_OF_SICK)
        files = {task: "SICK-R all" if task == "SICK-R" and self.sick == "all" else task for task in tasks}
        self.pairs = {task: load_sts(file, data_dir, hub=hub) for task, file in files.items()}
        self.config = {"protocol": "SentEval all, Spearman x 100", "sick": self.sick, "tasks": list(tasks)}

    def compute(self, encode: Encode) -> dict[str, float]:
        """Return the score of each task and the mean."""
        metrics, self.items = score_tasks(encode, self.pairs, self.similarity)
        return metrics | {self.average_key: float(self.items.mean())}


class HardLengthEvaluator(EmbeddingEvaluator):
    """Pairs of STS12 to STS16 whose lengths mislead: the hard subset of PT-BERT (section 5.2).

    The subset consists of positive pairs that differ by more than 5 words in length, and negative pairs that
    differ by fewer than 2. A model that mistakes equal length for equal meaning fails on both.

    The paper does not state the grades that make a pair positive or negative, and the score depends on them:
    five plausible readings differ by 12 points for all-MiniLM-L6-v2. Compare only scores with the same
    thresholds and the same way to count words. Here the words are those of the texts as published. The copy
    in SentEval has spaces around punctuation marks, which then count as words; ``count_words`` can reproduce
    this.

    Paper: https://aclanthology.org/2022.findings-acl.22

    Args:
        positive: Condition on the grades of positive pairs, such as ``">=4"``.
        negative: Condition on the grades of negative pairs, such as ``"<=1"``.
        data_dir: See ``STSSuiteEvaluator``.
        count_words: Counts the words of a sentence. Default: the number of parts separated by white space.
        hub: See ``STSSuiteEvaluator``.
        **options: ``name`` (default ``"hard_length"``), ``batch_size``, ``show_progress_bar`` and
            ``write_csv`` of ``EmbeddingEvaluator``.

    Returns:
        From a call, the score of each year, their mean ``avg5``, and the score ``union`` over all pairs. A
        year can have few positive pairs, so that its score varies strongly.

    Raises:
        SyntaxError: For a malformed condition.
        ValueError: For a year without positive or without negative pairs, or embeddings that are not finite.
        FileNotFoundError: If a task's file is missing.

    Example:
        >>> from sbert_plugins import evaluation
        >>> evaluator = evaluation.HardLengthEvaluator(positive=">=4", negative="<=1")
        >>> evaluator.num_pairs, evaluator.num_positives
        (1563, 207)
    """

    noun = "pairs"

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        positive: str,
        negative: str,
        count_words: Callable[[str], int] = lambda sentence: len(sentence.split()),
        hub: bool = False,
        name: str = "hard_length",
        **options: Any,
    ) -> None:
        super().__init__("avg5", name=name, **options)
        self.pairs: dict[str, ScoredPairs] = {}
        self.num_positives = 0
        for year in YEARS:
            pairs = pandas.DataFrame(load_sts(year, data_dir, hub=hub)._asdict())
            pairs["gap"] = (pairs["sentences1"].map(count_words) - pairs["sentences2"].map(count_words)).abs()
            far = pairs.query(f"scores {positive} and gap > 5")
            near = pairs.query(f"scores {negative} and gap < 2")
            if far.empty or near.empty:
                raise ValueError(
                    f"{year} has {len(far)} positive and {len(near)} negative pairs. Widen the thresholds."
                )
            both = pandas.concat([far, near])
            self.pairs[year] = ScoredPairs(*(both[name].tolist() for name in ScoredPairs._fields))
            self.num_positives += len(far)
        self.union = concatenated(self.pairs.values())
        self.num_pairs = len(self.union.scores)
        self.config = {
            "positive": f"grade {positive}",
            "negative": f"grade {negative}",
            "pairs": self.num_pairs,
            "positive_pairs": self.num_positives,
        }

    def compute(self, encode: Encode) -> dict[str, float]:
        """Return the score of each year, their mean and the score of all pairs together."""
        metrics, self.items = score_tasks(encode, self.pairs, self.similarity)
        union, _ = score_pairs(encode, self.union, self.similarity)
        return metrics | {"avg5": float(self.items.mean()), "union": union}


def own_pairs(path: str | Path, **options: Any) -> PairsEvaluator:
    """Return the evaluator of a file of graded pairs.

    Args:
        path: See ``read_scored_pairs``.
        **options: Of ``PairsEvaluator``. By default no CSV file is written, and the name is that of the file
            without its endings.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: For a malformed row, fewer than three pairs, or grades that are all equal.
    """
    return PairsEvaluator(read_scored_pairs(path), **({"name": stem_of(path), "write_csv": False} | options))


def load_sts(task: str, data_dir: str | Path | None = None, *, hub: bool = False) -> ScoredPairs:
    """Return the pairs of one task: one of ``TASKS``, ``"STS-B train"``, ``"STS-B dev"`` or ``"SICK-R all"``.

    Args:
        task: The task.
        data_dir: See ``STSSuiteEvaluator``.
        hub: Read from the Hub even if there is a data folder.

    Raises:
        KeyError: For an unknown task.
        ValueError: For the test pairs of SICK-R from the Hub.
        FileNotFoundError: If the task's file is missing.
        ConnectionError: If the Hub is needed and cannot be reached.
    """
    files, dataset, split = _SOURCES[task]
    directory = None if hub else data_directory(data_dir)
    if directory is not None:
        return concatenated(read_scored_pairs(directory / "sts" / file) for file in files)
    if dataset is None:
        raise ValueError(
            "The Hub's copy of SICK-R does not mark the 4,927 test pairs. Use all pairs (sick='all'), or a "
            "data folder with sts/sick_test.tsv."
        )
    from datasets import load_dataset

    try:
        rows = load_dataset(dataset, split=split)
    except ConnectionError as error:
        raise ConnectionError(
            f"{task} cannot be read from the Hub: {error} Without a connection, set {DATA_VARIABLE} or "
            f"data_dir to a folder that holds sts/{files[-1]}."
        ) from error
    return ScoredPairs(
        list(rows["sentence1"]), list(rows["sentence2"]), [float(score) for score in rows["score"]]
    )


def sts_sentences(data_dir: str | Path | None = None, *, hub: bool = False) -> list[str]:
    """Return the 29,510 distinct sentences of the seven STS tasks, including all splits of STS-B and SICK.

    ConSERT, PaSeR and SLT-FAI trained on nearly these sentences. A model that was trained on them has seen
    the sentences of the test sets. Compare it only with models for which this is also true.

    Args:
        data_dir: See ``STSSuiteEvaluator``.
        hub: Read from the Hub even if there is a data folder.

    Raises:
        FileNotFoundError: If a task's file is missing.
        ConnectionError: If the Hub is needed and cannot be reached.
    """
    tasks = [*YEARS, "STS-B train", "STS-B dev", "STS-B", "SICK-R all"]
    pairs = concatenated(load_sts(task, data_dir, hub=hub) for task in tasks)
    sentences = (
        sentence.strip() for row in zip(pairs.sentences1, pairs.sentences2, strict=True) for sentence in row
    )
    return list(dict.fromkeys(filter(None, sentences)))


def data_directory(data_dir: str | Path | None) -> Path | None:
    """Return ``data_dir``, or the folder named by the environment variable SBERT_PLUGINS_DATA, or None."""
    directory = data_dir or os.environ.get(DATA_VARIABLE)
    return Path(directory) if directory else None


def read_scored_pairs(path: str | Path) -> ScoredPairs:
    """Return the graded pairs of a file.

    Args:
        path: Lines of grade, sentence and sentence, or of subset, grade, sentence and sentence. They are
            separated by tabs, in a ``.csv`` file by commas. ``.gz`` is decompressed.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: For a line with another number of fields, or a grade that is not a number.
    """
    rows = [fields[-3:] for _, fields in read_fields(path, 3, 4, number=-3)]
    return ScoredPairs([row[1] for row in rows], [row[2] for row in rows], [float(row[0]) for row in rows])


def concatenated(parts: Iterable[ScoredPairs]) -> ScoredPairs:
    """Return the pairs of all parts together."""
    return ScoredPairs(*(list(chain(*columns)) for columns in zip(*parts, strict=True)))


def score_pairs(encode: Encode, pairs: ScoredPairs, similarity: str = "cosine") -> tuple[float, np.ndarray]:
    """Return the Spearman correlation, times 100, of similarity and grade, and its value for each label.

    The correlation is 0 if all similarities are equal.
    """
    first, second = encode([*pairs.sentences1, *pairs.sentences2]).chunk(2)
    similarities = SimilarityFunction.to_similarity_pairwise_fn(similarity)(first, second).cpu().numpy()
    if np.ptp(similarities) < 1e-6:  # cosines of identical vectors differ by up to 5e-7 in float32
        logger.warning("The Spearman correlation is set to 0: all similarities are %.5f.", similarities[0])
        values = np.zeros(len(similarities))
    else:
        values = 100 * spearman_items(similarities, pairs.scores)
    labels = (frozenset(pair) for pair in zip(pairs.sentences1, pairs.sentences2, strict=True))
    return float(values.mean()), label_items(values, labels)


def score_tasks(
    encode: Encode, tasks: Mapping[str, ScoredPairs], similarity: str
) -> tuple[dict[str, float], np.ndarray]:
    """Return the score of each task, and values for all labels whose mean is the average of the tasks."""
    scored = {task: score_pairs(encode, pairs, similarity) for task, pairs in tasks.items()}
    metrics = {task: score for task, (score, _) in scored.items()}
    return metrics, average_items([items for _, items in scored.values()])


def average_items(tasks: Sequence[np.ndarray]) -> np.ndarray:
    """Return values for the labels of all tasks, whose mean is the average of the tasks' means."""
    means, labels = [items.mean() for items in tasks], sum(map(len, tasks))
    return np.concatenate(
        [
            np.mean(means) + (items - mean) * labels / len(items) / len(tasks)
            for items, mean in zip(tasks, means, strict=True)
        ]
    )


def spearman_items(similarities: np.ndarray, grades: Sequence[float]) -> np.ndarray:
    r"""Return a value per pair, whose mean is the Spearman correlation and whose spread gives its error.

    With the centred ranks :math:`r, s`, divided by N, and :math:`a = \overline{r^2}, b = \overline{s^2},
    c = \overline{r s}`, the correlation is :math:`\rho = c / \sqrt{a b}`. The value of a pair is
    :math:`\rho` plus the influence of the pair on it, which counts that each pair also shifts the ranks of
    all others.
    """
    count = len(similarities)
    ranks, others = ((rankdata(values) - (count + 1) / 2) / count for values in (similarities, grades))

    def shifts(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the mean of the weights of larger values, and of half of the weights of equal ones."""
        _, places = np.unique(values, return_inverse=True)
        sums = np.bincount(places, weights)
        return ((sums[::-1].cumsum()[::-1] - sums / 2) / count)[places]

    a, b, c = (ranks**2).mean(), (others**2).mean(), (ranks * others).mean()
    of_a = ranks**2 + 2 * shifts(ranks, ranks) - 3 * a
    of_b = others**2 + 2 * shifts(others, others) - 3 * b
    of_c = ranks * others + shifts(ranks, others) + shifts(others, ranks) - 3 * c
    correlation = c / np.sqrt(a * b)
    return correlation + of_c / np.sqrt(a * b) - correlation / 2 * (of_a / a + of_b / b)
