"""Two processes (gloo), started once for all questions."""

import json
import subprocess
import sys

import numpy as np
import pytest
import ranks
import torch
from encoders import SENTENCES
from methods import LABELLED, METHODS
from sentence_transformers import SentenceTransformer

from sbert_plugins import cli

pytestmark = pytest.mark.slow
TRAINED = METHODS | LABELLED


@pytest.fixture(scope="module")
def report(encoder_path, once):
    def make(folder):
        command = [sys.executable, ranks.__file__, encoder_path, str(folder)]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert result.returncode == 0, result.stderr[-5000:]
        (folder / "stderr").write_text(result.stderr)

    folder = once("ranks", make)
    return json.loads((folder / "report.json").read_text()) | {"folder": folder}


@pytest.mark.parametrize(
    "name", [*TRAINED, *(f"{method} accumulated" for method in ranks.ACCUMULATED), "sam"]
)
def test_both_train_the_same(report, name):
    # Loss-owned tensors start equal and are equal after two updates, like the encoder's.
    # The first three own no weights, the others an identity map.
    alike = ("consert", "self-distillation", "search distillation", "words", "balanced sum")
    starts_alike = name.startswith(alike[:3]) or any(words in name for words in alike[3:])
    assert (report[name]["fresh"] == 0) if starts_alike else (report[name]["fresh"] > 0.01)
    assert report[name] | {"fresh": None} == {"fresh": None, "own": 0.0, "encoder": 0.0}


def test_two_batches_of_8_are_one_of_16(report, encoder_path, tmp_path):
    torch.set_num_threads(1)
    state, logged = ranks.arccon_run(encoder_path, tmp_path, batch_size=16)
    two = np.load(report["folder"] / "arccon.npz")
    assert set(two.files) == set(state)
    assert max(np.abs(two[name] - state[name]).max() for name in state) < 1e-5
    # Without dropout both views are one vector. The margin's sine turns the last bit of its cosine into 1e-3.
    assert report["arccon"]["logged"] == pytest.approx(logged, abs=2e-3)
    assert logged[-1] < logged[0]


def test_batches_of_unequal_size(report):
    for rank, batch in enumerate(report["unequal"]):
        assert batch["others"] == list(range(6 if rank == 0 else 10))
        assert (batch["everyone"], batch["first"]) == ([*range(10), *range(6)], 0 if rank == 0 else 5)
        assert batch["queue"] == [0.0, 8]
        assert (batch["encoder_gradients"], batch["finite"]) == (0.0, True)
        assert (batch["triplet"] > 0) == (rank == 0)


def test_trainings_after_evaluations_and_other_trainings(report):
    # accelerate marks a model that was evaluated, and a loss may keep the wrapper of a training.
    *spreads, moved = report["stages"]
    assert spreads == [0.0] * 4
    assert moved > 1e-4


def test_diagnostics_are_means_over_processes(report):
    for name in "ab":
        assert 0 < report["diagnostics"][f"{name}/rank {name}"] < 1
        assert report["diagnostics"][f"{name}/term"] == 1.0


@pytest.mark.parametrize("name", ranks.COMMANDS)
def test_a_command_trains_one_model(report, name, monkeypatch, tmp_path):
    monkeypatch.chdir(report["folder"])
    printed = (report["folder"] / f"{name}.txt").read_text()
    assert printed.count("The model is in") == 1
    assert name == "search" or printed.count("Training SimCSE") == 1
    updates = json.loads((report["folder"] / name / "results.json").read_text(encoding="utf-8"))["updates"]
    assert updates == (20 if name == "search" else 2)
    found = SentenceTransformer(f"{name}/model", device="cpu").encode(SENTENCES)
    if name == "search":  # whose map is learned by each process, from all documents
        assert cli.main([*ranks.COMMANDS[name].split(), str(tmp_path / "alone")]) == 0
        alone = SentenceTransformer(str(tmp_path / "alone" / "model"), device="cpu").encode(SENTENCES)
        np.testing.assert_allclose(found, alone, atol=1e-4)


def test_notices_come_once(report):
    assert (report["folder"] / "stderr").read_text().count("'Question: '") == 1
