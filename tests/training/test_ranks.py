"""Two ranks (torchrun, gloo, loopback), one launch for all questions."""

import json
import subprocess
import sys

import numpy as np
import pytest
import ranks
import torch
from methods import METHODS

from sbert_plugins import recipes

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(encoder_path, once):
    def make(folder):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", ranks.__file__]
        result = subprocess.run(
            [*command, encoder_path, str(folder)], capture_output=True, text=True, check=False, timeout=300
        )
        assert result.returncode == 0, result.stderr[-5000:]

    folder = once("ranks", make)
    return json.loads((folder / "report.json").read_text()) | {"folder": folder}


@pytest.mark.parametrize("name", [*METHODS, *(f"{method} accumulated" for method in METHODS), "sam"])
def test_ranks_stay_equal(report, name):
    """Loss-owned tensors start as rank 0's and differ by 0.0 after two updates, like the encoder's."""
    starts_alike = any(words in name for words in ("words", "balanced sum"))  # a map that is the identity is all they own
    assert (report[name]["fresh"] == 0) if starts_alike else (report[name]["fresh"] > 0.01)
    assert report[name] | {"fresh": None} == {"fresh": None, "own": 0.0, "encoder": 0.0, "steps": 2}


@pytest.mark.parametrize("package", ["sentence_transformers", "sbert_plugins"])
def test_a_queue_takes_in_what_is_trained_on(report, package):
    """Two updates of four sentences on two ranks; those of the evaluations between them stay out."""
    assert report[f"queued by {package}"] == 16


def test_two_ranks_of_8_are_one_of_16(report, encoder_path, tmp_path):
    torch.set_num_threads(1)
    state, logged = ranks.arccon_run(encoder_path, tmp_path, batch_size=16)
    two = np.load(report["folder"] / "arccon.npz")
    assert set(two.files) == set(state)
    assert max(np.abs(two[name] - state[name]).max() for name in state) < 1e-5
    # Without dropout both views are one vector, where the margin's sine magnifies the last bit of the cosine to 1e-3.
    assert report["arccon"]["logged"] == pytest.approx(logged, abs=2e-3)
    assert logged[-1] < logged[0]


def test_unequal_last_batches_and_a_rank_without_a_long_sentence(report):
    with_long, without = report["unequal"]
    for rank in (with_long, without):
        assert rank["rows"]
        assert rank["all_rows"]
        assert rank["queue"] == [0.0, 8]
        assert rank["row_gradients"] == [1.0]
        assert rank["encoder_gradients"] == 0.0
        assert rank["finite"]
    assert with_long["triplet"] > 0
    assert without["triplet"] == 0


def test_an_evaluation_before_a_training_leaves_ranks_equal(report):
    """accelerate takes a model that was evaluated for prepared, and the host trains it without DistributedDataParallel."""
    assert report["evaluated first"] == report["evaluated first, bf16"] == [0.0, 0.0, 0.0]
    assert "each process trains its own" in report["evaluated by the host"]


@pytest.mark.parametrize("trainers", ["one", "two"])
def test_what_is_unfrozen_between_two_trainings_is_trained_by_both(report, trainers):
    """The wrapper of the first training averages what was trained then, and stays in the loss."""
    moved, apart = report["stages"][trainers]
    assert moved > 1e-4
    assert apart == 0.0


def test_the_score_that_chooses_is_of_the_saved_model(report):
    """The host shares texts out, and the others know nothing of the length that rank 0 has set."""
    assert report["dev"]["logged"] == pytest.approx(report["dev"]["alone"], abs=1e-6)


def test_updates_are_counted_as_they_are_made(report):
    settings = recipes.with_changes(recipes.ARCCSE.settings, batch_size=8, epochs=1, gradient_accumulation_steps=1)
    assert report["updates"] == {str(rows): settings.updates(rows, processes=2) for rows in (41, 47, 48)}
