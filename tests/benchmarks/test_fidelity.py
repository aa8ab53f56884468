"""The benchmark beside the authors' code, without it: our side, the comparison, its errors, and what its record says."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import fidelity
import official_side

TERMS = {
    "pt-bert": {"contrastive"},
    "paser": {"generative", "mlm"},
    "denosent": {"contrastive", "denoising"},
    "slt-fai": {"base", "adversarial", "filtering"},
}


class TestErrors:
    @pytest.mark.parametrize("method", fidelity.FILES)
    def test_a_clone_that_is_none(self, method, tmp_path, monkeypatch):
        file = fidelity.FILES[method]
        for folder, says in ((tmp_path / "nowhere", "is no directory"), (tmp_path, "has no such file")):
            monkeypatch.setattr(sys, "argv", ["fidelity.py", method, "--official", str(folder)])
            with pytest.raises(SystemExit, match=f"--official must be a clone .* with {file}, got {folder}, which {says}"):
                fidelity.main()

    @pytest.mark.slow
    def test_code_that_cannot_be_imported(self, tmp_path):
        (tmp_path / "model.py").write_text("import nothing_of_this_name\n", encoding="utf-8")
        (tmp_path / "config.py").write_text("DenoSentConfig = None\n", encoding="utf-8")
        with pytest.raises(ValueError, match=r"could not be run by .* \(--python names another(.|\n)*nothing_of_this_name"):
            fidelity.compare("denosent", tmp_path, sys.executable)

    def test_a_python_that_is_none(self, tmp_path, monkeypatch):
        (tmp_path / "model.py").touch()
        monkeypatch.setattr(sys, "argv", ["fidelity.py", "denosent", "--official", str(tmp_path), "--python", "/no/python"])
        with pytest.raises(SystemExit, match="/no/python"):
            fidelity.main()


@pytest.mark.parametrize("method", fidelity.FILES)
def test_our_side_trains(method, tmp_path, monkeypatch):
    """From ids and draws to five updates of each term, in small batches."""
    monkeypatch.setattr(fidelity, "ROWS", 8)
    model = fidelity.tiny_encoder(tmp_path / "encoder", "mean" if method == "slt-fai" else "cls")
    inputs = fidelity.INPUTS[method](model)
    theirs = {}
    if method == "slt-fai":
        theirs["labels"] = np.zeros(30522)
        for update in range(fidelity.UPDATES):
            ids = inputs[f"{update}/ids"]
            theirs[f"{update}/cut"] = np.tile(np.arange(12), (len(ids), 1))
            theirs[f"{update}/places"] = np.tile(np.arange(ids.shape[1])[::-1].copy(), (len(ids), 1))
            theirs[f"{update}/copy"] = np.where(ids == ids[0, 1], 103, ids)
    side = fidelity.SIDES[method](model, inputs, theirs)
    if method == "slt-fai":  # away from a dead start, which the ReLU on the logits allows
        for discriminator in (side.loss.frequency_discriminator, side.loss.completeness_discriminator):
            torch.nn.init.ones_(discriminator.outer.bias)
    side.loss.model.train()
    parameters = [parameter for parameter in side.loss.parameters() if parameter.requires_grad]
    found = official_side.five_updates(parameters, official_side.watched(model[0].model), side.terms_of, weights=side.weights)
    assert {name.split("/", 2)[2] for name in found if "/value/" in name} == TERMS[method]
    assert all(np.isfinite(array).all() for array in found.values())
    for name in TERMS[method]:
        assert found[f"0/value/{name}"] != found[f"4/value/{name}"]
        assert abs(found[f"4/last/{name}"]).max() > 0


def test_five_updates_are_those_of_gradient_descent():
    weight = torch.nn.Parameter(torch.tensor([3.0, -2.0]))
    calls = []
    found = official_side.five_updates(
        [weight],
        {"all": [weight]},
        lambda update: {"square": (weight**2).sum(), "sum": weight.sum()},
        lambda: calls.append(weight.detach().clone()),
        weights={"sum": 3.0},
    )
    value = np.array([3.0, -2.0])
    for update in range(5):
        assert found[f"{update}/value/square"] == pytest.approx((value**2).sum())
        assert found[f"{update}/all/square"] == pytest.approx(2 * value)
        assert found[f"{update}/all/sum"] == pytest.approx(np.ones(2))
        value = value - official_side.LEARNING_RATE * (2 * value + 3)
        assert calls[update].numpy() == pytest.approx(value)


def test_differences_are_seen():
    generator = np.random.default_rng(0)
    arrays = {f"{i}/{place}/x": generator.normal(size=8) for i in range(5) for place in ("words", "last")}
    arrays |= {f"{i}/value/x": np.array(float(i)) for i in range(5)}
    (same,) = fidelity.differences(arrays, arrays).values()
    assert same["difference"] == [0.0] * 5
    assert same["cosine_words"] == pytest.approx([1.0] * 5)
    changed = arrays | {"3/value/x": np.array(3.5), "2/last/x": -arrays["2/last/x"]}
    (found,) = fidelity.differences(arrays, changed).values()
    assert found["difference"] == [0, 0, 0, 0.5, 0]
    assert found["cosine_last"] == pytest.approx([1, 1, -1, 1, 1])
    assert found["largest_last"][2] == pytest.approx(2 * abs(arrays["2/last/x"]).max())
    assert fidelity.cosine(np.zeros(2), np.zeros(2)) == 1
    assert fidelity.cosine(np.zeros(2), np.ones(2)) == 0


@pytest.mark.parametrize("method", fidelity.FILES)
def test_the_record_says_that_they_agree(method):
    found = json.loads(fidelity.RESULT.read_text(encoding="utf-8"))[method]
    assert found["terms"].keys() == TERMS[method]
    for term in found["terms"].values():
        assert max(map(abs, term["difference"])) < 1e-5
        assert min(term["cosine_words"] + term["cosine_last"]) > 0.9999
        assert min(term["norm_words"] + term["norm_last"]) > 1e-4
    weights = found["weights_after_five_updates"]
    assert weights["apart"] < 1e-3 * weights["moved"]
    assert found["official"]["commit"]
