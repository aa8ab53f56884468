"""What the checkpoints of ``label_free.py`` say: how each candidate follows STS-B dev, and what stopping by it costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

# What evaluation.LabelFreeEvaluator adds up: the sum of two that holds best in both sets, with whole weights.
SHIPPED = {"synonyms (first sense): margin, of the mean distance": 5.0, "half the words find the sentence": 1.0}
OVERALL, WITHIN, TRAININGS = 0.7, 0.5, 8  # what a score must reach to be of use, in a set of so many trainings


class Checkpoint(NamedTuple):
    """A model in the course of a training; step 0 is the untouched encoder, which all trainings share."""

    run: str
    step: int
    is_harmful: bool
    dev: float
    scores: dict[str, float]


def follows(points: Sequence[Checkpoint], score: Callable[[Checkpoint], float]) -> dict[str, float]:
    """Return how a score follows STS-B dev among the checkpoints of one set.

    ``overall``, ``without harm``, ``at the end`` are Spearman over all, over those of trainings that are not there to do harm,
    and over the last ones; ``within`` the median over trainings of Spearman within one. ``helped``: how often the score moves
    from the start in the direction of dev. ``lost by it``, ``lost at the end``, ``lost at the start``: points of dev below a
    training's best checkpoint, mean over trainings, stopped where the score is best, at the end, or not trained. ``lost in
    all``: the same for the choice of one checkpoint of the set.
    """
    start = next(point for point in points if point.step == 0)
    trained = [point for point in points if point.step]
    courses = by_run(points)
    kind = [point for point in points if not point.is_harmful]
    lost = {"by it": [], "at the end": [], "at the start": []}
    for course in courses.values():
        best = max(point.dev for point in course)
        lost["by it"].append(best - max(course, key=score).dev)
        lost["at the end"].append(best - course[-1].dev)
        lost["at the start"].append(best - start.dev)
    ends = [course[-1] for course in courses.values()]
    return {
        "overall": spearman(points, score),
        "without harm": spearman(kind, score),
        "at the end": spearman(ends, score),
        "within": float(np.median([spearman(course, score) for course in courses.values()])),
        "helped": float(np.mean([(score(point) > score(start)) == (point.dev > start.dev) for point in trained])),
        **{f"lost {how}": float(np.mean(values)) for how, values in lost.items()},
        "lost in all": max(point.dev for point in points) - max(points, key=score).dev,
    }


def by_run(points: Sequence[Checkpoint]) -> dict[str, list[Checkpoint]]:
    """Return the course of each training, the untouched encoder first."""
    start = [point for point in points if point.step == 0]
    courses = defaultdict(list)
    for point in sorted(points, key=lambda point: point.step):
        if point.step:
            courses[point.run].append(point)
    return {run: start + course for run, course in courses.items()}


def spearman(points: Sequence[Checkpoint], score: Callable[[Checkpoint], float]) -> float:
    """Return Spearman's correlation with dev; 0 for a score that is the same everywhere."""
    values = [score(point) for point in points]
    return 0.0 if len(set(values)) == 1 else float(stats.spearmanr(values, [point.dev for point in points]).statistic)


def shipped(points: Sequence[Checkpoint]) -> dict[str, float]:
    """Return what the evaluator that ships does, on the checkpoints by which it was chosen."""
    return follows(points, lambda point: sum(weight * point.scores[name] for name, weight in SHIPPED.items()))


def reaches(found: dict[str, float]) -> bool:
    return found["overall"] >= OVERALL and found["within"] >= WITHIN


def single(points: Sequence[Checkpoint]) -> dict[str, dict[str, float]]:
    """Return what each candidate alone does."""
    return {name: follows(points, lambda point, name=name: point.scores[name]) for name in points[0].scores}


def summed(points: Sequence[Checkpoint], names: Sequence[str]) -> Callable[[Checkpoint], float]:
    """Return the sum of candidates, each in standard deviations over the checkpoints of a set."""
    means = {name: np.mean([point.scores[name] for point in points]) for name in names}
    spreads = {name: np.std([point.scores[name] for point in points]) for name in names}
    return lambda point: float(sum((point.scores[name] - means[name]) / spreads[name] for name in names))


def best_sums(points: Sequence[Checkpoint], *, size: int, count: int = 5) -> list[tuple[str, ...]]:
    """Choose the sums of ``size`` candidates by the lesser of overall / .7 and within / .5 on one set."""
    names = [name for name in points[0].scores if np.std([point.scores[name] for point in points]) > 0]

    def merit(group: Sequence[str]) -> float:
        found = follows(points, summed(points, group))
        return min(found["overall"] / OVERALL, found["within"] / WITHIN)

    return sorted(combinations(names, size), key=merit, reverse=True)[:count]


def study(sets: dict[str, list[Checkpoint]]) -> dict[str, Any]:
    """Return every candidate in every set, the best sums of two of the first set in both, and what reaches the bounds."""
    first = next(iter(sets.values()))
    alone = {name: single(points) for name, points in sets.items()}
    sums = {
        " + ".join(names): {name: follows(points, summed(points, names)) for name, points in sets.items()}
        for names in best_sums(first, size=2)
    }
    by_score = {score: {name: alone[name][score] for name in sets} for score in first[0].scores} | sums
    return {
        "single": alone,
        "sums": sums,
        "bounds": {"overall": OVERALL, "within": WITHIN, "trainings": TRAININGS},
        "reach the bounds in every set": [
            score for score, found in by_score.items() if all(reaches(found[name]) for name in sets)
        ],
        "sets are large enough": all(len(by_run(points)) >= TRAININGS for points in sets.values()),
    }
