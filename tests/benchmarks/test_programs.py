"""The programs that measure, in small."""

import sys

import adaptation
import numpy as np
import pytest
import quality
import records
import rivals
import speed
import testbeds
import torch
from datasets import Dataset
from encoders import project_counts, project_text

from sbert_plugins import evaluation, recipes
from sbert_plugins.recipes.methods import check_keywords

TEXTS = project_text()[:80]


class TestQuality:
    def test_a_cell_is_recorded_once(self, write, tiny_encoder, monkeypatch):
        write("quality")
        monkeypatch.setattr(records, "require_clean_tree", lambda: None)
        monkeypatch.setattr(quality.testbeds, "encoder", lambda name, **_: tiny_encoder())
        monkeypatch.setattr(quality.testbeds, "text", lambda *_: Dataset.from_dict({"anchor": TEXTS[:16]}))
        monkeypatch.setattr(quality.evaluation, "load_sts", lambda task: recipes.graded_pairs())
        monkeypatch.setattr(quality, "score", lambda *_, **__: {"avg7": 50.0})
        command = [
            "quality.py",
            "--methods",
            "SimCSE 0.1",
            "--seeds",
            "0",
            "--updates",
            "2",
            "--batch_size",
            "8",
        ]
        monkeypatch.setattr(sys, "argv", [*command, "--eval_steps", "1", "--no-bf16", "--untrained", "start"])
        quality.main()
        quality.main()
        start, line = records.read("quality")
        assert (start["label"], line["label"], line["method"]) == ("start", "SimCSE 0.1", "simcse")
        assert line["loss"] == {"temperature": 0.1, "projection_head": False}
        assert (line["seed"], line["updates"]) == (0, 2)
        assert [update for update, _ in line["curve"]] == [1, 2]

    @pytest.mark.parametrize(
        "label", [label for label, (method, _) in quality.METHODS.items() if ":" not in method]
    )
    def test_rows_are_recipes_with_keywords_that_exist(self, label):
        method, keywords = quality.METHODS[label]
        check_keywords(recipes.RECIPES[method], keywords)

    def test_paser_is_not_trained_without_synonyms(self, monkeypatch):
        monkeypatch.setattr("nltk.data.path", [])
        with pytest.raises(SystemExit, match="NLTK_DATA"):
            quality.train(None, None, {"label": "PaSeR"}, 10, is_quick=False)


# Trainings and scores are replaced: which cells are measured, and from what.
@pytest.fixture
def trained(write, monkeypatch):
    write("adaptation")
    calls = []
    monkeypatch.setattr(records, "require_clean_tree", lambda: None)
    monkeypatch.setattr(testbeds, "encoder", lambda name: [name])
    monkeypatch.setattr(adaptation, "train", lambda model, *given, **_: calls.append(given) or {})
    monkeypatch.setattr(adaptation, "build_evaluators", lambda **_: [])
    monkeypatch.setattr(adaptation, "score", lambda model, _: {"sts": float(len(model))})
    monkeypatch.setattr(recipes, "average_with_start", lambda model, start, weight: model.append(weight))
    return calls


def test_adaptation_measures_each_cell_once(trained, monkeypatch):
    command = ["adaptation.py", "--rows", "start", "SimCSE", "--texts", "quora"]
    for more, trainings in (([], 1), ([], 1), (["--averaged"], 2), (["--averaged"], 2)):
        monkeypatch.setattr(sys, "argv", command + more)
        adaptation.main()
        assert len(trained) == trainings
    lines = {line["row"]: line["scores"]["sts"] for line in records.read("adaptation")}
    assert lines == {"start": 1.0, "SimCSE": 1.0, "SimCSE" + adaptation.AVERAGED: 2.0}


def test_a_step_is_counted():
    # A product of 5 x 4 and 4 x 3, forward only: 2 x 60 operations, in one operator with 60 bytes.
    x, y = torch.randn(5, 4), torch.randn(4, 3)
    found = speed.count(lambda: torch.mm(x, y))
    assert found == {"flops": 120, "operators": 1, "peak_bytes": 60}


class TestRivals:
    def test_whitened_texts_have_mean_zero_and_covariance_one(self, tiny_encoder):
        vectors = rivals.whiten(tiny_encoder(), TEXTS).encode(TEXTS)
        assert np.abs(vectors.mean(axis=0)).max() < 1e-3
        assert np.abs(np.cov(vectors.T) - np.eye(vectors.shape[1])).max() < 1e-2

    def test_sif_is_a_weighted_mean_without_the_common_direction(self, tiny_encoder):
        model = tiny_encoder()
        counts = project_counts(model.tokenizer)
        weight = 1e-3 / (1e-3 + counts.probabilities())
        table = model.transformers_model.get_input_embeddings().weight.detach().numpy()
        ids = [model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
        means = np.array([weight[one] @ table[one] / len(one) for one in ids])
        common = np.linalg.svd(means)[2][0]
        vectors = rivals.sif_of_words(model, TEXTS, frequencies=counts).encode(TEXTS)
        np.testing.assert_allclose(vectors, means - np.outer(means @ common, common), atol=5e-4)

    @pytest.mark.filterwarnings("ignore:The number of components")
    @pytest.mark.parametrize("build", [rivals.tfidf_of_words, rivals.tfidf_of_characters])
    def test_tfidf_can_be_scored(self, build):
        model = build(TEXTS, dimensions=8)
        pairs = evaluation.ScoredPairs(TEXTS[:10], TEXTS[10:20], list(range(10)))
        found = evaluation.evaluate(model, [evaluation.PairsEvaluator(pairs, name="own")])
        assert np.isfinite(found["own"]["spearman"])
