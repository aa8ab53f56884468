"""Trackers: what is not there is found before anything is loaded, and what is there is told everything."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
from recipe_inputs import anchors, quick
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from sbert_plugins import recipes
from sbert_plugins.recipes.reporting import PACKAGES


class Writer:
    """Keeps what tensorboard would write."""

    scalars: list[tuple[str, float, int]]

    def __init__(self, log_dir):
        Writer.scalars, Writer.log_dir = [], log_dir

    def add_scalar(self, name, value, step):
        Writer.scalars.append((name, value, step))

    def add_text(self, *_):
        pass

    def flush(self):
        pass

    def close(self):
        pass


@pytest.fixture
def tensorboard(monkeypatch):
    """The host's own callback finds tensorboard, whether it is installed or not."""
    found, torchs = ModuleType("tensorboard"), ModuleType("torch.utils.tensorboard")
    found.__spec__, torchs.SummaryWriter = ModuleSpec("tensorboard", None), Writer
    monkeypatch.setitem(sys.modules, "tensorboard", found)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", torchs)
    return Writer


def test_none():
    assert recipes.check_report_to("none") == recipes.check_report_to(["none"]) == recipes.check_report_to([]) == []


def test_our_names_are_the_hosts():
    """kubeflow needs no package: the platform's environment variables decide."""
    assert set(PACKAGES) | {"kubeflow"} == set(INTEGRATION_TO_CALLBACK)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_tracker_that_is_not_installed(name, monkeypatch, tmp_path):
    monkeypatch.setattr("sbert_plugins.recipes.reporting.find_spec", lambda module: None)
    message = (
        rf"report_to {name} needs the package {PACKAGES[name][0]}, which is not installed: pip install {PACKAGES[name][0]}"
    )
    with pytest.raises(ModuleNotFoundError, match=message):
        recipes.train("arccse", anchors(16), None, output=tmp_path / "run", report_to=name)
    assert not (tmp_path / "run").exists()


def test_a_module_whose_parent_is_missing():
    with pytest.raises(ModuleNotFoundError, match="azureml-sdk"):
        recipes.check_report_to("azure_ml")


@pytest.mark.parametrize("names", ["tensorbord", "all", ["kubeflow", "tensorbord"], ""])
def test_a_tracker_that_nobody_knows(names):
    with pytest.raises(
        ValueError, match=r"names of trackers that transformers knows: .* is not supported, only .*tensorboard"
    ):
        recipes.check_report_to(names)


def test_none_beside_others(tensorboard):
    with pytest.raises(ValueError, match="must be none, or names of trackers, got both: none, tensorboard"):
        recipes.check_report_to(["none", "tensorboard"])


def test_a_tracker_is_told_what_the_log_says(tensorboard, tiny_encoder, tmp_path):
    results, output = {}, tmp_path / "run"
    for report_to in ("none", ["tensorboard", "tensorboard"]):
        results[len(results)] = recipes.train(
            "arccse", anchors(32), tiny_encoder(), output=output / str(report_to), settings=quick(), report_to=report_to
        )
    silent, told = ([{**entry} for entry in result["log"]] for result in results.values())
    logged = {(f"train/{key}", value, entry["step"]) for entry in told[:-1] for key, value in entry.items() if key != "step"}
    assert {name for name, _, _ in logged} >= {"train/loss", "train/arccon", "train/triplet_active"}
    assert logged <= set(tensorboard.scalars)
    losses = [scalar for scalar in tensorboard.scalars if scalar[0] == "train/loss"]
    assert len(losses) == len(set(losses)) > 1  # a name that is there twice is one tracker
    assert silent[:-1] == told[:-1]  # and the training is the same
    assert str(output) in tensorboard.log_dir
