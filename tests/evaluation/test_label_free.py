import functools
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from encoders import project_text

from sbert_plugins import data
from sbert_plugins.evaluation import Embeddings, LabelFreeEvaluator

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import label_free_scores


class Given(Embeddings):
    """Embeddings that nobody encoded."""

    def __init__(self, row, matrix):
        self.row, self.matrix = row, matrix


@functools.cache
def made():
    text = project_text()
    return data.label_free_texts(text[:150], text=text[150:])


@pytest.fixture
def texts(wordnet):
    return made()


def test_by_hand():
    """Right angles: a synonym at 60 degrees against a right angle; one half finds its sentence, one finds another first."""
    texts = data.LabelFreeTexts(
        ["a", "b"],
        [data.Substitution("a", "a'", "a-"), data.Substitution("b", "b'", "b-")],
        [("a", "half a"), ("b", "half b")],
    )
    places = {"a": (1, 0), "b": (0, 1), "a'": (0.5, 3**0.5 / 2), "a-": (0, 2), "b'": (0, 1), "b-": (1, 0)}
    places |= {"half a": (3, 1), "half b": (1, 0)}
    embeddings = Given({text: row for row, text in enumerate(places)}, torch.tensor(list(places.values())).float())
    metrics = LabelFreeEvaluator(texts).compute(embeddings)
    assert metrics["substitution_margin"] == pytest.approx((0.5 + 1) / 2)  # the mean distance of a and b is 1
    assert metrics["half_mrr"] == pytest.approx((1 + 1 / 2) / 2)
    assert metrics["label_free"] == pytest.approx(100 * (5 * 0.75 + 0.75))


def test_is_what_the_study_measured(texts):
    evaluator = LabelFreeEvaluator(texts)
    row = {text: number for number, text in enumerate(dict.fromkeys(evaluator.sentences))}
    matrix = np.random.default_rng(0).normal(size=(len(row), 8)) + 1
    metrics = evaluator.compute(Given(row, torch.tensor(matrix).float()))
    vectors = label_free_scores.Vectors(row, matrix, np.ones((2, 1, 8)))
    margins = label_free_scores.substitution("x", vectors, texts.substitutions)
    assert metrics["substitution_margin"] == pytest.approx(margins["synonyms (x): margin, of the mean distance"], rel=1e-4)
    nested = [(whole, whole, half) for whole, half in texts.halves]
    found = label_free_scores.deletion(vectors, label_free_scores.Texts(texts.sentences, [], [], nested, []))
    assert metrics["half_mrr"] == pytest.approx(found["half the words find the sentence"], rel=1e-6)


def test_a_collapsed_encoder_scores_nothing(texts):
    evaluator = LabelFreeEvaluator(texts)
    row = {text: number for number, text in enumerate(dict.fromkeys(evaluator.sentences))}
    metrics = evaluator.compute(Given(row, torch.ones(len(row), 4)))
    assert metrics["substitution_margin"] == 0
    assert metrics["half_mrr"] == pytest.approx(1 / len(texts.sentences))


def test_in_a_training(texts, tiny_encoder, tmp_path):
    evaluator = LabelFreeEvaluator(texts, name="own")
    metrics = evaluator(tiny_encoder(), str(tmp_path), epoch=1, steps=2)
    assert list(metrics) == ["own_label_free", "own_substitution_margin", "own_half_mrr"]
    assert evaluator.primary_metric == "own_label_free"
    assert (tmp_path / "own_label_free.csv").read_text(encoding="utf-8").startswith("epoch,steps,label_free")
    assert evaluator.get_config_dict()["sentences"] == len(texts.sentences)
