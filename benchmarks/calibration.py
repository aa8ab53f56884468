"""False verdicts: how often are two equal models called better or worse?

    python benchmarks/calibration.py

Each cell simulates models with equal expected scores many times, and judges them with ``evaluation.judge``.
A line of ``results/calibration.jsonl`` holds the percentage of false verdicts by number of labels. Its last
lines hold how often a real difference of three standard errors is found. The labels are:

- ``pairs``: grades from 0 to 5 and noisy similarities; ``pairs, near``: two models that nearly agree.
- ``search``: nDCG of 30 % of the queries drawn anew, so that most differences are 0; ``search, sparse``: of
  5 %.
- ``search, skewed``: 10 % of the queries lose nine times what the others gain.
- ``known items``: sentences find noisy copies of themselves among vectors.
- ``topics``: purity of vectors around four centres, which each model shifts at random.
- ``number``: accuracy, of which only the mean is known.
- ``equal``: models that do not differ at all.

``copies`` is how often each label occurs in the file. The true scores of seeds vary by one standard error
around that of the start, except for vectors. In ``two methods``, both sides have seeds.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import records
import torch

from sbert_plugins.evaluation import Score, judge
from sbert_plugins.evaluation.encoding import label_items
from sbert_plugins.evaluation.score import LEAST_LABELS
from sbert_plugins.evaluation.sts import spearman_items
from sbert_plugins.evaluation.topics import purity_items

LABELS = (1, 2, 5, 10, 20, 50, 100, 300, 1000)
SEEDS = (1, 2, 3, 4, 5)
COPIES = (2, 5)
RUNS = 1000
#: A simulation returns the values per label of several equal models: (models, labels).
Simulation = Callable[[np.random.Generator, int, int], np.ndarray]


def _ranks_to_ndcg(ranks: np.ndarray) -> np.ndarray:
    return np.where(ranks <= 10, 100 / np.log2(1 + ranks), 0)


def pairs(noise: float) -> Simulation:
    """Return the simulation of Spearman correlations."""

    def simulate(draw: np.random.Generator, models: int, labels: int) -> np.ndarray:
        grades = draw.integers(6, size=labels)
        if len(set(grades)) < 2:
            return np.zeros((models, labels))
        shared = grades + draw.normal(size=labels)
        return np.stack(
            [100 * spearman_items(shared + noise * draw.normal(size=labels), grades) for _ in range(models)]
        )

    return simulate


def search(share: float) -> Simulation:
    """Return the simulation of nDCG per query, of which each model has a share of its own."""

    def simulate(draw: np.random.Generator, models: int, labels: int) -> np.ndarray:
        shared, own = (_ranks_to_ndcg(draw.geometric(0.35, size=(count, labels))) for count in (1, models))
        return np.where(draw.random((models, labels)) < share, own, shared)

    return simulate


def skewed(draw: np.random.Generator, models: int, labels: int) -> np.ndarray:
    """Return the same values for all trained models: most queries gain a little, and few lose a lot."""
    change = np.where(draw.random(labels) < 0.1, -9.0, 1.0) + draw.normal(size=labels)
    return 50 + np.stack([np.zeros(labels), *[change] * (models - 1)])


def known_items(draw: np.random.Generator, models: int, labels: int) -> np.ndarray:
    """Return nDCG of vectors that find noisy copies of themselves."""
    texts = draw.normal(size=(labels, 16))
    queries = texts + draw.normal(size=texts.shape)
    values = []
    for _ in range(models):
        corpus, asked = (side + 0.3 * draw.normal(size=side.shape) for side in (texts, queries))
        cosines = asked @ (corpus / np.linalg.norm(corpus, axis=1, keepdims=True)).T
        values.append(_ranks_to_ndcg(1 + (cosines > np.diag(cosines)[:, None]).sum(axis=1)))
    return np.stack(values)


def topics(draw: np.random.Generator, models: int, labels: int, copies: int = 1) -> np.ndarray:
    """Return the values of texts whose mean is purity. Copies of a text have equal vectors."""
    kinds, names = np.arange(labels) % 4, np.repeat(np.arange(labels), copies)
    vectors = draw.normal(size=(4, 16))[kinds] + draw.normal(size=(labels, 16))
    neighbours = max(1, min(10, (labels - 1) * copies))
    moved = (vectors + 0.5 * draw.normal(size=vectors.shape) for _ in range(models))
    each = [
        purity_items(np.repeat(rows, copies, axis=0), np.repeat(kinds, copies), names, neighbours=neighbours)
        for rows in moved
    ]
    return 100 * np.stack(each)


def number(draw: np.random.Generator, models: int, labels: int) -> np.ndarray:
    """Return whether labels are predicted correctly. Labels differ in how hard they are."""
    return draw.random((models, labels)) < draw.uniform(0.3, 1, labels)


def equal(draw: np.random.Generator, models: int, labels: int) -> np.ndarray:
    """Return the same values for all models."""
    return np.repeat(draw.uniform(0, 100, (1, labels)), models, axis=0)


KINDS: dict[str, tuple[str, Simulation]] = {
    "pairs": ("pairs", pairs(1.0)),
    "pairs, near": ("pairs", pairs(0.1)),
    "search": ("queries", search(0.3)),
    "search, sparse": ("queries", search(0.05)),
    "search, skewed": ("queries", skewed),
    "known items": ("queries", known_items),
    "topics": ("texts", topics),
    "number": ("labels", number),
    "equal": ("labels", equal),
}


def simulate(
    draw: np.random.Generator, kind: str, *, labels: int, seeds: int, copies: int = 1, methods: bool = False
) -> tuple[list[Score], list[Score]]:
    """Return the scores of equal models before and after.

    Args:
        draw: The generator.
        kind: A name in ``KINDS``.
        labels: Number of labels, copies included.
        seeds: Number of trained models.
        copies: How often each label occurs.
        methods: Whether the first side has seeds, too.
    """
    noun, simulation = KINDS[kind]
    first, different = seeds if methods else 1, max(1, labels // copies)
    names = np.repeat(np.arange(different), copies)
    if kind == "topics":
        values = topics(draw, first + seeds, different, copies)
    else:
        values = np.repeat(simulation(draw, first + seeds, different), copies, axis=1)
    if seeds > 1 and kind.startswith(("pairs", "search")):
        size = (values[-1] - values[0]).std() / np.sqrt(different)
        shifts = size * draw.normal(size=(first + seeds, 1))
        values = values + (shifts if methods else np.vstack([[0.0], shifts[1:]]))
    if kind == "number":
        scores = [Score(kind, {"accuracy": float(row.mean())}) for row in values]
    else:
        items = [label_items(row, names) for row in values]
        scores = [Score(kind, {"score": float(row.mean())}, noun=noun, items=row) for row in items]
    return scores[:first], scores[first:]


def count_verdicts(kind: str, *, runs: int, **cell: int) -> Counter[str]:
    """Return how often each verdict is given on equal models."""
    draw = np.random.default_rng(0)
    return Counter(judge(*simulate(draw, kind, **cell)).result for _ in range(runs))


def count_found(kind: str, *, labels: int, runs: int) -> float:
    """Return how often a real difference of three standard errors is found, in percent."""
    draw = np.random.default_rng(0)
    equals = [simulate(draw, kind, labels=labels, seeds=1) for _ in range(runs)]
    error = np.std([after.value - before.value for (before,), (after,) in equals])
    shifted = [
        (before, Score(kind, {"score": after.value + 3 * error}, items=after.items + 3 * error))
        for (before,), (after,) in equals
    ]
    return 100 * sum(judge(*both).result == "better" for both in shifted) / runs


def runs_of(kind: str, labels: int, copies: int) -> int:
    """Return how many simulations a cell has: few where they are slow, or too few labels by definition."""
    if kind != "number" and labels // copies < LEAST_LABELS:
        return 20
    slow = kind in ("known items", "topics")
    return {1000: 100, 300: 300}.get(labels, RUNS) if slow else RUNS


def lines() -> list[dict[str, Any]]:
    """Return the kinds of labels with the numbers of seeds and copies."""
    return [
        {"kind": kind, "seeds": seeds, "copies": copies, "methods": methods}
        for kind in KINDS
        for seeds in SEEDS
        for copies, methods in ((1, False), (1, True), *((each, False) for each in COPIES))
        if (seeds > 1 or not methods) and (copies == 1 or kind not in ("number", "equal"))
    ]


def main() -> None:
    """Simulate what the record does not hold."""
    records.require_clean_tree()
    torch.set_num_threads(1)
    for line in lines():
        if not records.holds("calibration", line):
            runs = {labels: runs_of(line["kind"], labels, line["copies"]) for labels in LABELS}
            found = {n: count_verdicts(**line, labels=n, runs=count) for n, count in runs.items()}
            false = {
                n: round(100 * (each["better"] + each["worse"]) / runs[n], 2) for n, each in found.items()
            }
            verdicts = {n: dict(each) for n, each in found.items()}
            records.append("calibration", line | {"false": false, "runs": runs, "verdicts": verdicts})
    for kind in ("pairs", "search", "known items", "topics"):
        line = {"kind": kind, "labels": 300, "difference": "3 standard errors"}
        if not records.holds("calibration", line):
            records.append(
                "calibration", line | {"runs": 200, "found": count_found(kind, labels=300, runs=200)}
            )


if __name__ == "__main__":
    main()
