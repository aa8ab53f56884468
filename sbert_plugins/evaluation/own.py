"""Evaluators of a person's own labels: graded pairs, topics, or queries and the texts that answer them, read from files."""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

from .clustering import ClusteringEvaluator
from .retrieval import RetrievalEvaluator, read_judgements, read_texts
from .sts import PairsEvaluator, ScoredPairs
from .tables import read_table, width_of

logger = logging.getLogger(__name__)


def own_pairs(path: str | Path, **keywords: Any) -> PairsEvaluator:
    """Score how well cosines follow grades of one's own: Spearman x 100.

    Args:
        path: Tab-separated rows without header or quoting: grade, sentence, sentence; a field before these is passed over,
            as in STS files. Grades are any numbers, the higher the more alike. ``.gz`` is unpacked.
        **keywords: Of :class:`PairsEvaluator`; the name is the file's.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: With file and line, for a row of another form; for fewer than three pairs, or all of one grade.
    """
    columns = ("subset", "grade", "sentence", "sentence") if width_of(path) == 4 else ("grade", "sentence", "sentence")
    pairs = ScoredPairs([], [], [])
    for place, (*_, text, first, second) in read_table(path, columns):
        grade = _number(text)
        if grade is None:
            raise ValueError(f"{place}: a grade must be a finite number, got {text!r}; the file has no header.")
        _refuse_blank(place, sentence=first, other=second)
        pairs.sentences1.append(first)
        pairs.sentences2.append(second)
        pairs.scores.append(grade)
    try:
        return PairsEvaluator(pairs, **(_as_named(path) | keywords))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _may_be_a_name(cell: str) -> bool:
    return len(cell.split()) <= 4 and not cell.rstrip().endswith((".", "!", "?"))


def own_topics(path: str | Path, **keywords: Any) -> ClusteringEvaluator:
    """Score whether texts of one topic lie together: v-measure, accuracy and neighbour purity, x 100.

    Args:
        path: Tab-separated rows without header or quoting: topic, text. ``.gz`` is unpacked.
        **keywords: Of :class:`ClusteringEvaluator`; the name is the file's.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: With file and line, for a row of another form; for fewer than two topics. Fewer texts than ten neighbours
            need are counted with fewer, with a warning: the metric is then ``purity@3``, for instance.
    """
    width_of(path)  # says what is missing without a word about data directories
    rows = []
    for place, (topic, text) in read_table(path, ("topic", "text")):
        _refuse_blank(place, topic=topic, text=text)
        rows.append((topic.strip(), text))
    texts, topics = [text for _, text in rows], [topic for topic, _ in rows]
    if rows and topics.count(topics[0]) == 1 and all(map(_may_be_a_name, rows[0])):
        logger.warning("%s: its first line is read as a topic and a text, and may be a header: %r, %r.", path, *rows[0])
    # As many neighbours as a small file has.
    others = len(texts) - max(Counter(texts).values(), default=0)
    given = _as_named(path) | {"neighbours": max(1, min(10, others))}
    try:
        evaluator = ClusteringEvaluator(texts, topics, **(given | keywords))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    count, sizes, copies = evaluator.neighbours, Counter(topics), Counter(rows)  # a text is no neighbour of its copies
    reached = sum(min(count, sizes[row[0]] - copies[row]) for row in rows) / len(rows)
    if reached < count:
        logger.warning("%s: its topics are so small that purity@%d is %.1f at most.", path, count, 100 * reached / count)
    return evaluator


def own_retrieval(directory: str | Path, **keywords: Any) -> RetrievalEvaluator:
    """Score a search in texts of one's own: MAP, MRR@10, nDCG@10.

    Args:
        directory: With ``queries.tsv`` (id, text), ``corpus.tsv`` (id, text; or id, title, text) and ``qrels.tsv`` (query id,
            text id, gain: a whole number, 0 is not relevant), tab-separated without header or quoting; each may be ``.gz``.
        **keywords: Of :class:`RetrievalEvaluator`; the name is the directory's.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: With file and line, for a row of another form, an id that stands twice, or one that is in no file.
    """
    queries_at, corpus_at, relevant_at = (_file_in(Path(directory), name) for name in ("queries", "corpus", "qrels"))
    queries, corpus = read_texts(queries_at), read_texts(corpus_at, has_titles=width_of(corpus_at) == 3)
    for name, query in queries.items():  # not of the corpus: collections hold texts of nothing, and lists of what they hold
        _refuse_blank(f"{queries_at}, id {name!r}", query=query)
    relevant = read_judgements(relevant_at, queries, corpus)
    return RetrievalEvaluator(queries, corpus, relevant, **(_as_named(directory) | keywords))


def _refuse_blank(place: str, **fields: str) -> None:
    """Refuse a text of nothing, which has a vector, too."""
    for name, text in fields.items():
        if not text.strip():
            raise ValueError(f"{place}: {name} must be a text, got {text!r}: fill it in, or leave the row out.")


def _file_in(directory: Path, name: str) -> Path:
    for ending in (".tsv", ".tsv.gz"):
        if (directory / f"{name}{ending}").is_file():
            return directory / f"{name}{ending}"
    raise FileNotFoundError(
        f"{directory / name}.tsv (or .tsv.gz) does not exist: a directory for retrieval holds queries.tsv, corpus.tsv and "
        "qrels.tsv."
    )


def _as_named(path: str | Path) -> dict[str, Any]:
    """Return the keywords of an evaluator that is called as its file is, without the endings."""
    name = Path(os.path.abspath(path)).name  # "." has a name, and a link keeps its own
    for ending in (".gz", ".tsv", ".txt", ".csv"):
        name = name.removesuffix(ending)
    return {"name": name, "write_csv": False}


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
