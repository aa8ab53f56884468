"""The comparison with the authors' code: what it needs, what it computes, and what its record holds."""

import re
from types import SimpleNamespace

import fidelity
import numpy as np
import official_side
import pytest
import records
import torch


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
