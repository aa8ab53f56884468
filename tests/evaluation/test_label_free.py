import pytest
import torch
from encoders import project_text

from sbert_plugins import data
from sbert_plugins.evaluation import LabelFreeEvaluator


def test_by_hand():
    """One synonym is at 60 degrees. One half finds its sentence, one finds the other first."""
    texts = data.LabelFreeTexts(
        ["a", "b"],
        [data.Substitution("a", "a'", "a-"), data.Substitution("b", "b'", "b-")],
        [("a", "half a"), ("b", "half b")],
    )
    places = {"a": (1, 0), "b": (0, 1), "a'": (0.5, 3**0.5 / 2), "a-": (0, 2), "b'": (0, 1), "b-": (1, 0)}
    places |= {"half a": (3, 1), "half b": (1, 0)}
    metrics = LabelFreeEvaluator(texts).compute(
        lambda chosen: torch.tensor([places[text] for text in chosen]).float()
    )
    assert metrics["substitution_margin"] == pytest.approx((0.5 + 1) / 2, rel=1e-6)
    assert metrics["half_mrr"] == pytest.approx((1 + 1 / 2) / 2)
    assert metrics["label_free"] == pytest.approx(100 * (5 * 0.75 + 0.75))


def test_in_a_training(wordnet, tiny_encoder):
    text = project_text()
    texts = data.label_free_texts(text[:150], text=text[150:])
    evaluator = LabelFreeEvaluator(texts, name="own")
    metrics = evaluator(tiny_encoder())
    assert list(metrics) == ["own_label_free", "own_substitution_margin", "own_half_mrr"]
    assert evaluator.primary_metric == "own_label_free"
    assert evaluator.get_config_dict()["sentences"] == 150
    collapsed = evaluator.compute(lambda chosen: torch.ones(len(chosen), 4))
    assert collapsed["substitution_margin"] == 0
    assert collapsed["half_mrr"] == pytest.approx(1 / 150)
