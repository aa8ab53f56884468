"""The scores without labels by hand, and what a study says of made-up checkpoints."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from sbert_plugins import evaluation

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import label_free_scores as scores
import label_free_study as study


def points(devs, values, run="a", *, is_harmful=False):
    """The course of a training, from the untouched encoder on."""
    start = study.Checkpoint("untouched", 0, False, devs[0], {"score": values[0]})
    later = enumerate(zip(devs[1:], values[1:], strict=True), start=1)
    return [start, *(study.Checkpoint(run, 10 * step, is_harmful, dev, {"score": value}) for step, (dev, value) in later)]


def by_score(point):
    return point.scores["score"]


class TestStudy:
    def test_a_score_that_rises_where_dev_rises(self):
        found = study.follows(points([60, 70, 80, 75], [0.1, 0.2, 0.4, 0.3]), by_score)
        assert [found[key] for key in ("overall", "within", "helped")] == pytest.approx([1, 1, 1])
        assert (found["lost by it"], found["lost at the end"], found["lost at the start"]) == (0, 5, 20)

    def test_a_score_that_likes_the_start(self):
        found = study.follows(points([60, 70, 80, 75], [0.9, 0.3, 0.1, 0.2]), by_score)
        assert [found[key] for key in ("overall", "helped", "lost by it", "lost in all")] == pytest.approx([-1, 0, 20, 20])

    def test_a_score_that_never_moves_follows_nothing(self):
        found = study.follows(points([60, 70, 80], [1, 1, 1]), by_score)
        assert (found["overall"], found["within"]) == (0, 0)

    def test_within_is_the_median_over_trainings_and_harm_is_left_out(self):
        rising = points([60, 70, 80], [1, 2, 3], "a")
        also = points([60, 65, 75], [1, 1.5, 2.5], "b")[1:]
        harm = points([60, 50, 40], [1, 4, 5], "c", is_harmful=True)[1:]
        found = study.follows([*rising, *also, *harm], by_score)
        assert [found["within"], found["without harm"]] == pytest.approx([1, 1])
        assert found["overall"] == pytest.approx(1 - 6 * 72 / (7 * 48))  # squared differences of ranks: 36 + 16 + 5 * 4

    def test_a_study_of_few_trainings_says_so(self):
        course = [
            point._replace(scores={"score": point.dev, "other": -point.dev, "third": number**2})
            for number, point in enumerate(points([60, 70, 80, 75], [0, 0, 0, 0]))
        ]
        found = study.study({"chosen on": course, "validated on": course})
        assert "score" in found["reach the bounds in every set"]
        assert "other" not in found["reach the bounds in every set"]
        assert found["sets are large enough"] is False

    def test_candidates_are_summed_in_standard_deviations(self):
        course = [
            study.Checkpoint("a", step, False, 0.0, {"small": 0.001 * small, "large": 1000.0 * large})
            for step, (small, large) in enumerate([(0, 1), (1, 0), (1, 1)])
        ]
        score = study.summed(course, ("small", "large"))
        values = [score(point) for point in course]
        assert values[0] == pytest.approx(values[1])
        assert values[2] > values[0]


def test_what_ships_follows_dev_as_its_docstring_says():
    record = json.loads((Path(study.__file__).parent / "results" / "label_free.json").read_text(encoding="utf-8"))
    found = []
    for points in record["checkpoints"].values():
        row = study.shipped([study.Checkpoint(**point) for point in points])
        found.append((round(row["overall"], 2), round(row["within"], 2)))
        assert study.reaches(row)
    said = evaluation.LabelFreeEvaluator.__doc__
    assert found == [(0.83, 0.9), (0.87, 0.9)]
    assert "Spearman of .83 (median within a training .90)" in said
    assert "with .87 (.90)" in said
    scores = [point["scores"] for point in record["checkpoints"]["chosen on"]]
    moving = [name for name in scores[0] if len({row[name] for row in scores}) > 1]
    assert f"among {math.comb(len(moving), 2)} of two candidates" in said


def test_what_it_does_not_see_is_what_its_docstring_says():
    path = Path(study.__file__).parent / "results" / "label_free_long" / "wiki_consert_seed0.json"
    curve = json.loads(path.read_text(encoding="utf-8"))["curve"]
    best = max(curve, key=lambda point: point["dev"])
    said = " ".join(evaluation.LabelFreeEvaluator.__doc__.split())
    dev, score = ([f"{point[key]:.1f}" for point in (curve[0], best, curve[-1])] for key in ("dev", "label_free"))
    assert f"rose from {dev[0]} to {dev[1]} and fell to {dev[2]}" in said
    assert f"rose from {score[0]} to {score[1]} and on to {score[2]}" in said


class TestScores:
    def test_geometry_by_hand(self):
        assert scores.effective_rank(np.ones(7)) == pytest.approx(7)
        assert scores.iso_score(np.ones(9)) == pytest.approx(1)
        assert scores.iso_score(np.eye(9)[0]) == pytest.approx(0, abs=1e-9)
        assert scores.decay(np.arange(1, 201) ** -1.5) == pytest.approx(1.5)

    def test_area_and_ranks_by_hand(self):
        assert scores.area(np.array([3.0, 1.0]), np.array([2.0, 0.0])) == 0.75
        found = np.array([[0.9, 0.1], [0.8, 0.2]])
        assert scores.reciprocal_rank(found) == 0.75
        assert scores.reciprocal_rank(found, [0, 0]) == 1
        assert scores.neighbours_in_common(np.eye(4), np.eye(4), 2) == 1

    def test_what_is_a_linear_map_is_explained_and_noise_is_not(self):
        rng = np.random.default_rng(0)
        inputs = rng.normal(size=(400, 5))
        known = scores.explained(inputs, inputs @ rng.normal(size=(5, 3)))
        unknown = scores.explained(inputs, rng.normal(size=(400, 3)))
        assert known > 2
        assert abs(unknown) < 0.1

    def test_deletions_are_nested(self):
        import random

        sentence = "one two three four five six seven eight"
        fewer, fewest = (copy.split() for copy in scores.deleted(sentence, random.Random(0)))
        assert (len(fewer), len(fewest)) == (6, 4)
        assert set(fewest) < set(fewer) < set(sentence.split())
        assert scores.half("one two three") == ("one", "two three")

    def test_substitution_by_hand(self):
        angles = {"s": 0, "near": 10, "far": 40, "t": 90, "t near": 60, "t far": 80}
        matrix = np.array([[math.cos(math.radians(angle)), math.sin(math.radians(angle))] for angle in angles.values()])
        vectors = scores.Vectors({text: row for row, text in enumerate(angles)}, matrix, np.ones((2, 1, 2)))
        triples = [scores.Substitution("s", "near", "far"), scores.Substitution("t", "t near", "t far")]
        found = scores.substitution("x", vectors, triples)
        near, far = ([math.cos(math.radians(angle)) for angle in side] for side in ((10, 30), (40, 10)))
        assert found["synonyms (x): share right"] == 0.5
        assert found["synonyms (x): margin"] == pytest.approx((sum(near) - sum(far)) / 2)
