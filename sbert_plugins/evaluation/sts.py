"""Semantic textual similarity: the seven tasks of the papers from one pass over the sentences."""

from __future__ import annotations

import logging
import math
import operator
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from scipy.stats import spearmanr

from .embeddings import EmbeddingEvaluator, Embeddings
from .tables import DATA_VARIABLE, check_tasks, data_directory, read_table

_FEWEST_PAIRS = 3
_NO_ORDER = 1e-6  # among cosines of one vector, in float32, rounding makes an order of its own: 5e-7 from first to last
logger = logging.getLogger(__name__)
TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")

# task -> (files under <data>/sts, dataset on the Hub, split, lowest and highest score)
_SOURCES = {
    **{f"STS{year}": ([f"sts{year}.tsv"], f"mteb/sts{year}-sts", "test", 0, 5) for year in range(12, 17)},
    "STS-B": (["stsb_test.tsv"], "mteb/stsbenchmark-sts", "test", 0, 5),
    "STS-B train": (["stsb_train.tsv"], "mteb/stsbenchmark-sts", "train", 0, 5),
    "STS-B dev": (["stsb_dev.tsv"], "mteb/stsbenchmark-sts", "validation", 0, 5),
    "SICK-R": (["sick_test.tsv"], None, "test", 1, 5),
    "SICK-R all": (["sick_train.tsv", "sick_trial.tsv", "sick_test.tsv"], "mteb/sickr-sts", "test", 1, 5),
}


_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class ScoredPairs(NamedTuple):
    """Sentence pairs with their gold scores, as three lists of one length."""

    sentences1: list[str]
    sentences2: list[str]
    scores: list[float]


# What a page says beside scores of it.
ALL_OF_SICK = "SICK-R is all 9,927 pairs here, as mteb scores it; the papers score its 4,927 test pairs."
_NO_TEST_SET_OF_SICK = (
    "the Hub's copy of SICK-R holds all 9,927 pairs and does not say which are the 4,927 test pairs: "
    f"pass sick='all' (mteb's protocol), or a data_dir (or {DATA_VARIABLE}) that has sts/sick_test.tsv."
)


class STSSuiteEvaluator(EmbeddingEvaluator):
    """STS12 to STS16, STS-B and SICK-R in the SentEval "all" protocol: the table of every paper in this field.

    Each task is the Spearman correlation, times 100, of cosine similarity and gold score over the concatenation of the
    task's subsets. All tasks share one ``encode`` call over the distinct sentences (37,700 places, 26,125 sentences).
    Every task and the mean are returned, logged and written into the model card.

    Args:
        data_dir: A directory with the folder ``sts``, by default the one in the environment variable
            ``SBERT_PLUGINS_DATA``. Files ``sts12.tsv`` to ``sts16.tsv``, ``stsb_test.tsv`` and ``sick_test.tsv`` with the
            tab-separated fields subset, score, sentence1, sentence2, without header or quoting.
        hub: Read the tasks from the Hugging Face Hub (mteb's copies) whatever ``data_dir`` is. It is also what happens
            when there is neither ``data_dir`` nor the variable.
        tasks: A selection of :data:`TASKS`.
        sick: ``"test"`` takes the 4,927 test pairs as SentEval and the papers do, ``"all"`` the 9,927 pairs that mteb
            scores. By default the first, and from the Hub, which has the second only, the second, with a warning.
        batch_size: Sentences an encoder call.
        show_progress_bar: Whether ``encode`` shows its bar.
        name: Prefix of the metric names.
        write_csv: Whether to append to ``sts_suite_results.csv`` in the evaluator's output path.

    Raises:
        ValueError: On an unknown task, ``sick="test"`` from the Hub, a malformed row (file and line), a score out of range,
            embeddings that are not finite.
        FileNotFoundError: On a missing task file.
        ConnectionError: If there is neither a data directory nor the Hub.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sbert_plugins import evaluation
        >>> evaluator = evaluation.STSSuiteEvaluator()  # from the Hub, without a data directory
        >>> average = evaluator(SentenceTransformer("bert-base-uncased"))["avg7"]
    """

    csv_file = "sts_suite_results.csv"

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        hub: bool = False,
        tasks: Sequence[str] = TASKS,
        sick: Literal["test", "all"] | None = None,
        batch_size: int = 128,
        show_progress_bar: bool = False,
        name: str = "",
        write_csv: bool = True,
    ) -> None:
        super().__init__(name=name, batch_size=batch_size, show_progress_bar=show_progress_bar, write_csv=write_csv)
        check_tasks(tasks, TASKS)
        if sick not in (None, "test", "all"):
            raise ValueError(f"sick must be 'test' (4,927 pairs) or 'all' (9,927 pairs), got {sick!r}.")
        self.test_sets = tuple(tasks)
        is_from_hub = hub or data_directory(data_dir) is None
        self.sick = sick or ("all" if is_from_hub else "test")
        if is_from_hub and "SICK-R" in tasks:
            if self.sick == "test":
                raise ValueError(_NO_TEST_SET_OF_SICK)
            if sick is None:
                logger.warning(ALL_OF_SICK)
        self.average_key = f"avg{len(tasks)}"
        self.primary_metric = self.average_key
        self.pairs = {
            task: load_sts("SICK-R all" if task == "SICK-R" and self.sick == "all" else task, data_dir, hub=hub)
            for task in tasks
        }
        self.sentences = [s for pairs in self.pairs.values() for s in (*pairs.sentences1, *pairs.sentences2)]

    def compute(self, embeddings: Embeddings) -> dict[str, float]:
        """Return ``{task: Spearman x 100}`` and the average."""
        metrics = {task: pairs_spearman(embeddings, pairs) for task, pairs in self.pairs.items()}
        metrics[self.average_key] = sum(metrics.values()) / len(metrics)
        return metrics

    @property
    def caution(self) -> str:
        """What a reader has to know of a score before it is compared; empty where its name says all."""
        return ALL_OF_SICK if self.sick == "all" and "SICK-R" in self.pairs else ""

    @property
    def description(self) -> str:
        """Heading in the model card."""
        return "Semantic Textual Similarity, seven tasks" if len(self.pairs) == 7 else "Semantic Textual Similarity"

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings that decide the numbers."""
        return {"protocol": "SentEval all, Spearman x 100 of cosine", "sick": self.sick, "tasks": list(self.pairs)}


class PairsEvaluator(EmbeddingEvaluator):
    """Spearman's correlation, times 100, of cosine similarity and gold score on any scored pairs.

    Args:
        pairs: The pairs.
        name: Prefix of the metric's name, and the dataset's in the model card.
        batch_size: Sentences an encoder call.
        show_progress_bar: Whether ``encode`` shows its bar.
        write_csv: Whether to append to ``<name>_pairs.csv`` in the evaluator's output path.

    Raises:
        ValueError: On columns of different lengths, grades that are not finite, fewer than three pairs, or all of one grade.
    """

    csv_file = "pairs.csv"

    def __init__(
        self,
        pairs: ScoredPairs,
        *,
        name: str = "",
        batch_size: int = 128,
        show_progress_bar: bool = False,
        write_csv: bool = True,
    ) -> None:
        super().__init__(name=name, batch_size=batch_size, show_progress_bar=show_progress_bar, write_csv=write_csv)
        check_pairs(pairs)
        self.primary_metric = "spearman"
        self.pairs = pairs
        self.sentences = [*pairs.sentences1, *pairs.sentences2]

    def compute(self, embeddings: Embeddings) -> dict[str, float]:
        """Return ``{"spearman": ...}``."""
        return {"spearman": pairs_spearman(embeddings, self.pairs)}

    @property
    def description(self) -> str:
        """Heading in the model card."""
        return "Semantic Textual Similarity"

    def get_config_dict(self) -> dict[str, Any]:
        """Return what the number is, and of how many pairs."""
        return {"measure": "Spearman x 100 of cosine", "pairs": len(self.pairs.scores)}


def load_sts(task: str, data_dir: str | Path | None = None, *, hub: bool = False) -> ScoredPairs:
    """Load one task's pairs: one of :data:`TASKS`, ``"STS-B train"``, ``"STS-B dev"`` or ``"SICK-R all"``.

    Raises:
        FileNotFoundError: If a data directory is given (or set in ``SBERT_PLUGINS_DATA``) and the task's file is not there.
        ConnectionError: If there is neither a data directory nor the Hub.
        ValueError: For a task name that does not exist, or SICK's test set from the Hub.
    """
    if task not in _SOURCES:
        raise ValueError(f"task must be one of {', '.join(_SOURCES)}, got {task!r}.")
    files, dataset, split, lowest, highest = _SOURCES[task]
    directory = None if hub else data_directory(data_dir)
    if directory is not None:
        parts = [read_scored_pairs(Path(directory) / "sts" / file, lowest=lowest, highest=highest) for file in files]
        return concatenated(parts)
    if dataset is None:
        raise ValueError(_NO_TEST_SET_OF_SICK)
    from datasets import load_dataset

    try:
        rows = load_dataset(dataset, split=split)
    except Exception as error:
        raise ConnectionError(
            f"{task} is read from a data directory or from the Hub: set {DATA_VARIABLE} (or data_dir) to a directory with "
            f"sts/{files[-1]}, or make {dataset} reachable on the Hugging Face Hub ({type(error).__name__}: {error})."
        ) from error
    return ScoredPairs(list(rows["sentence1"]), list(rows["sentence2"]), [float(score) for score in rows["score"]])


def sts_sentences(data_dir: str | Path | None = None, *, hub: bool = False) -> list[str]:
    """Return the distinct sentences of the seven tasks, without scores: nearly what ConSERT, PaSeR and SLT-FAI trained on.

    The test pairs of STS12 to STS16 and all pairs of STS-B and SICK: 62,198 places, 29,510 sentences, in the order of the
    tasks. SLT-FAI's 89,192 are these places and those of 13,497 pairs that STS15 and STS16 were released with and nobody
    scored, which are not among the tasks' data. Who trains on them has seen the test sets' sentences, and is to be compared
    with others who have.

    Raises:
        FileNotFoundError: As :func:`load_sts`, and so are the others.
        ConnectionError: If there is neither a data directory nor the Hub.
        ValueError: On a malformed row.
    """
    tasks = [*TASKS[:5], "STS-B train", "STS-B dev", "STS-B", "SICK-R all"]
    pairs = concatenated([load_sts(task, data_dir, hub=hub) for task in tasks])
    places = (sentence.strip() for both in zip(pairs.sentences1, pairs.sentences2, strict=True) for sentence in both)
    return list(dict.fromkeys(filter(None, places)))


def read_scored_pairs(path: str | Path, *, lowest: float = 0, highest: float = 5) -> ScoredPairs:
    """Read tab-separated rows of subset, score, sentence1 and sentence2 without header or quoting.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: With file and line, for a row with another number of fields or a score outside ``[lowest, highest]``.
    """
    pairs = ScoredPairs([], [], [])
    for place, (_, text, sentence1, sentence2) in read_table(path, ("subset", "score", "sentence1", "sentence2")):
        try:
            score = float(text)
        except ValueError:
            score = float("nan")
        if not lowest <= score <= highest:
            raise ValueError(f"{place}: score must be a number in [{lowest}, {highest}], got {text!r}.")
        pairs.sentences1.append(sentence1)
        pairs.sentences2.append(sentence2)
        pairs.scores.append(score)
    return pairs


def concatenated(parts: Collection[ScoredPairs]) -> ScoredPairs:
    """Return the pairs of all parts as one."""
    return ScoredPairs(
        [sentence for part in parts for sentence in part.sentences1],
        [sentence for part in parts for sentence in part.sentences2],
        [score for part in parts for score in part.scores],
    )


def check_pairs(pairs: ScoredPairs) -> None:
    """Raise ``ValueError`` unless a correlation of these pairs means something."""
    if not isinstance(pairs, ScoredPairs):
        raise ValueError(
            f"pairs must be evaluation.ScoredPairs(sentences1, sentences2, scores), got {type(pairs).__name__}: "
            "evaluation.own_pairs reads a file."
        )
    lengths = [len(column) for column in pairs]
    if len(set(lengths)) > 1:
        raise ValueError(f"pairs must be three columns of one length, got {', '.join(map(str, lengths))}.")
    for column in (pairs.sentences1, pairs.sentences2):
        if bad := [place for place, sentence in enumerate(column) if not isinstance(sentence, str)]:
            raise ValueError(f"the sentences of pairs must be text, got {column[bad[0]]!r} in row {bad[0]}.")
    scores: Sequence[object] = pairs.scores
    if bad := [place for place, score in enumerate(scores) if isinstance(score, str) or not hasattr(score, "__float__")]:
        raise ValueError(f"the scores of pairs must be numbers, got {pairs.scores[bad[0]]!r} in row {bad[0]}.")
    if bad := [place for place, score in enumerate(pairs.scores) if not math.isfinite(score)]:
        raise ValueError(f"the scores of pairs must be finite, got {pairs.scores[bad[0]]} in row {bad[0]}.")
    if lengths[0] < _FEWEST_PAIRS or len(set(pairs.scores)) < 2:
        raise ValueError(
            f"pairs must be at least {_FEWEST_PAIRS}, with two different grades, got {lengths[0]} of "
            f"{len(set(pairs.scores))}: a correlation needs an order."
        )


def pairs_spearman(embeddings: Embeddings, pairs: ScoredPairs) -> float:
    """Return Spearman's correlation, times 100, of cosine similarity and gold score; 0 of cosines that have no order."""
    cosines = embeddings.cosines(pairs.sentences1, pairs.sentences2)
    if (cosines.max() - cosines.min()).item() < _NO_ORDER:
        logger.warning(
            "All pairs have one cosine, %.5f, so that nothing orders them, and Spearman's correlation is given as 0: the "
            "encoder has collapsed, or tells these texts not apart.",
            cosines.mean().item(),
        )
        return 0.0
    return float(100 * spearmanr(cosines.cpu().numpy(), pairs.scores).statistic)


def gold_threshold(argument: str, text: str, direction: str) -> Callable[[float], bool]:
    """Read ``">=4"`` as a function of the gold score.

    Raises:
        ValueError: If the text is no such comparison, or one in the other direction.
    """
    match = re.fullmatch(r"\s*([<>]=?)\s*(\d+(?:\.\d*)?)\s*", text) if isinstance(text, str) else None
    if match is None or match[1][0] != direction or not 0 <= float(match[2]) <= 5:
        raise ValueError(
            f"{argument} must be {direction!r} or '{direction}=' and a gold score in [0, 5], such as "
            f"{'>=4' if direction == '>' else '<=1'!r}, got {text!r}."
        )
    compare, bound = _COMPARISONS[match[1]], float(match[2])
    return lambda score: compare(score, bound)
