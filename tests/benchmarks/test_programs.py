"""The programs that measure, in small, and the comparison with the authors' code."""

import re
import sys
from types import SimpleNamespace

import adaptation
import calibration
import fidelity
import numpy as np
import official_side
import pytest
import quality
import records
import speed
import testbeds
import torch
from datasets import Dataset
from encoders import project_text

from sbert_plugins import recipes

TEXTS = project_text()[:80]


class TestQuality:
    def test_a_cell_is_recorded_once(self, write, tiny_encoder, monkeypatch):
        write("quality")
        monkeypatch.setattr(records, "require_clean_tree", lambda: None)
        monkeypatch.setattr(quality.testbeds, "encoder", lambda name, **_: tiny_encoder())
        monkeypatch.setattr(quality.testbeds, "text", lambda *_: Dataset.from_dict({"anchor": TEXTS[:16]}))
        monkeypatch.setattr(quality.evaluation, "load_sts", lambda task: recipes.graded_pairs())
        monkeypatch.setattr(quality, "score", lambda *_, **__: {"avg7": 50.0})
        command = "quality.py --seeds 0 --updates 2 --batch_size 8 --eval_steps 1 --no-bf16 --methods start"
        monkeypatch.setattr(sys, "argv", [*command.split(), "SimCSE 0.1"])
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
        recipes.RECIPES[method].check_keywords(keywords)

    def test_paser_is_not_trained_without_synonyms(self, monkeypatch):
        monkeypatch.setattr("nltk.data.path", [])
        with pytest.raises(SystemExit, match="NLTK_DATA"):
            quality.train(None, None, {"label": "PaSeR"}, 10)


# Trainings and scores are replaced: which cells are measured, and from what.
@pytest.fixture
def trained(write, monkeypatch):
    write("adaptation")
    calls = []
    monkeypatch.setattr(records, "require_clean_tree", lambda: None)
    monkeypatch.setattr(testbeds, "encoder", lambda name: [name])
    monkeypatch.setattr(adaptation, "train", lambda model, *given, **_: calls.append(given) or {})
    monkeypatch.setattr(adaptation, "build_evaluators", lambda **_: [])
    monkeypatch.setattr(testbeds, "in_bfloat16", lambda model: model)
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
    # A product of 5 x 4 and 4 x 3, forward only: 2 x 60 operations, with 60 bytes.
    x, y = torch.randn(5, 4), torch.randn(4, 3)
    assert speed.count(lambda: torch.mm(x, y)) == {"flops": 120, "peak_bytes": 60}


def test_attention_is_counted_with_and_without_dropout():
    x = torch.randn(1, 2, 5, 4)
    counts = [
        speed.count(lambda p=p: torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=p))
        for p in (0.0, 0.5)
    ]
    # Two products for each of two heads: 5 x 4 with 4 x 5, and 5 x 5 with 5 x 4.
    assert [one["flops"] for one in counts] == [800, 800]


@pytest.mark.parametrize("name", speed.METHODS)
def test_a_method_computes_what_its_definition_asks_for(name, monkeypatch):
    build_encoder = recipes.offline_encoder
    monkeypatch.setattr(speed, "ROWS", 6)
    monkeypatch.setattr(
        recipes, "offline_encoder", lambda **given: build_encoder(**given | {"num_layers": 1})
    )
    steps = [speed.build_step(name, kind) for kind in (speed.METHODS, speed.FLOORS)]
    step, floor = (speed.count(each)["flops"] for each in steps)
    assert 0.99 <= step / floor <= 1.1


def test_a_step_is_divided_by_its_floor_in_the_same_round(monkeypatch):
    times = iter([0, 3, 0, 2, 0, 8, 0, 2, 0, 30, 0, 30])  # start and end of the step and of its floor
    monkeypatch.setattr(speed, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    monkeypatch.setattr(speed, "build_step", lambda *_: lambda: None)
    monkeypatch.setattr(speed, "count", lambda step: {"flops": 6})
    line = speed.measure(3, "SimCSE")
    assert (line["seconds"], line["floor_seconds_ratio"], line["floor_flops_ratio"]) == (8, 1.5, 1)


RUNS = 200


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("kind", calibration.KINDS)
def test_equal_models(kind, seeds):
    for labels, copies in ((1, 1), (5, 1), (60, 1), (150, 3)):
        if kind != "number" or copies == 1:
            found = calibration.count_verdicts(kind, labels=labels, seeds=seeds, copies=copies, runs=RUNS)
            # 5 % are 10 of 200; more than 16 by chance has a probability below 2 %, at most.
            assert found["better"] + found["worse"] <= 0.08 * RUNS
            if kind != "number":
                assert (found["too few labels to say"] == RUNS) == (labels < 30)


def test_number_of_one_model_has_no_verdict():
    assert calibration.count_verdicts("number", labels=100, seeds=1, runs=5) == {"no verdict": 5}


def test_models_that_do_not_differ_are_level():
    assert calibration.count_verdicts("equal", labels=50, seeds=1, runs=5) == {"level": 5}


def test_real_differences_are_found():
    assert calibration.count_found("search", labels=300, runs=100) > 60


def test_the_record():
    lines = records.read("calibration")
    false = {
        (line["kind"], line["seeds"], line["copies"], line["methods"]): line["false"]
        for line in lines
        if "false" in line
    }
    assert {kind for kind, *_ in false} == set(calibration.KINDS)
    assert {seeds for _, seeds, *_ in false} == set(calibration.SEEDS)
    assert all({*map(int, each)} == set(calibration.LABELS) for each in false.values())
    assert max(max(each.values()) for each in false.values()) <= 5
    assert all(line["found"] > 50 for line in lines if "found" in line)


@pytest.mark.parametrize("method", fidelity.METHODS)
def test_all_of_our_trained_weights_have_a_name_of_the_authors(method, tmp_path):
    # In the rules ``\1`` is a number, or a layer with its number.
    side = fidelity.METHODS[method]
    model = fidelity.tiny_encoder(str(tmp_path), side.pooling)
    if method == "denosent":
        fidelity.denosent_inputs(model, ["One sentence."])
    loss = side.build(model)
    rules = [re.sub(r"\\\\(\d)", r"(\\d+|layers\.\\d+\.)", re.escape(name)) for name in side.rules.values()]
    trained = [name for name, weight in loss.named_parameters() if weight.requires_grad]
    assert [name for name in trained if not any(re.match(rule, name) for rule in rules)] == []


def test_five_updates_are_gradient_descent_on_the_weighted_sum():
    words = torch.nn.Embedding.from_pretrained(torch.ones(1, 2), freeze=False)
    encoder = SimpleNamespace(layer=[torch.nn.Linear(1, 1)])
    bert = SimpleNamespace(embeddings=SimpleNamespace(word_embeddings=words), encoder=encoder)
    weight = words.weight
    terms = {"square": lambda: (weight**2).sum(), "sum": lambda: weight.sum()}
    found = official_side.five_updates(
        [weight], bert, lambda update: {name: make() for name, make in terms.items()}, {"sum": 3.0}
    )
    value = np.ones(2)
    for update in range(official_side.UPDATES):
        assert found[f"{update}/value/square"] == pytest.approx((value**2).sum())
        assert found[f"{update}/words/square"] == pytest.approx(2 * value)
        assert found[f"{update}/words/sum"] == pytest.approx(np.ones(2))
        assert not found[f"{update}/last/sum"].any()
        value = value - official_side.LEARNING_RATE * (2 * value + 3)


def test_differences_are_the_largest_of_all_updates():
    generator = np.random.default_rng(0)
    arrays = {f"{i}/{place}/x": generator.normal(size=8) for i in range(5) for place in ("words", "last")}
    arrays |= {f"{i}/value/x": np.array(float(i)) for i in range(5)}
    same = fidelity.differences(arrays, arrays)["x"]
    assert (same["difference"], same["gradient_difference_last"]) == (0, 0)
    assert same["cosine_words"] == pytest.approx(1)
    changed = arrays | {"3/value/x": np.array(3.5), "2/last/x": -arrays["2/last/x"]}
    found = fidelity.differences(arrays, changed)["x"]
    assert (found["difference"], found["cosine_last"]) == (0.5, pytest.approx(-1))
    assert found["gradient_difference_last"] == pytest.approx(2 * abs(arrays["2/last/x"]).max())


def test_the_record_has_all_methods_and_they_agree():
    lines = {line["method"]: line for line in records.read("fidelity")}
    assert lines.keys() == fidelity.METHODS.keys()
    for line in lines.values():
        for term in line["terms"].values():
            assert term["difference"] < 1e-5
            assert min(term["cosine_words"], term["cosine_last"]) > 0.9999
            assert min(term["norm_words"], term["norm_last"]) > 1e-4
        assert line["weights_apart"] < 1e-3 * line["weights_moved"]
