"""Interrupted equals uninterrupted, bit for bit: encoder, what the loss owns, optimizer, log."""

import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import runs
from methods import METHODS, WITHOUT_SAM

from sbert_plugins import training
from sbert_plugins.training.checkpoints import why_incomplete

# The grid for one loss, one cell for each other loss.
CELLS = [("arccse", accumulation, workers) for accumulation in (1, 2) for workers in (0, 2)]
CELLS += [(method, 1, 0) for method in METHODS if method != "arccse"]


def in_process(output, arguments):
    return subprocess.run(
        [sys.executable, runs.__file__, str(output), json.dumps(arguments)], capture_output=True, text=True, check=False
    )


def assert_equal(trainer, output):
    state, resumed = runs.state_of(trainer), np.load(output / "state.npz")
    assert set(state) == set(resumed.files)
    differences = {name: np.abs(state[name].astype(float) - resumed[name]).max(initial=0.0) for name in state}
    assert {name: difference for name, difference in differences.items() if difference != 0.0} == {}
    assert json.loads((output / "log.json").read_text()) == json.loads(json.dumps(runs.log_of(trainer)))


@pytest.mark.parametrize(("method", "accumulation", "workers"), CELLS)
def test_killed_and_resumed_in_a_new_process(method, accumulation, workers, encoder_path, tmp_path):
    arguments = {"encoder": encoder_path, "method": method, "accumulation": accumulation, "workers": workers}
    killed = in_process(tmp_path / "killed", arguments | {"kill_at": 4})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = in_process(tmp_path / "killed", arguments | {"resume": True})
    assert resumed.returncode == 0, resumed.stderr
    uninterrupted = runs.run(str(tmp_path / "whole"), **arguments)
    assert uninterrupted.state.global_step == 6
    assert_equal(uninterrupted, tmp_path / "killed")


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        (method, settings)
        for method in METHODS
        for settings in ({"sam_rho": 0.05}, {"sam_rho": 0.05, "accumulation": 2}, {"bf16": True})
        if "sam_rho" not in settings or method not in WITHOUT_SAM
    ],
    ids=str,
)
def test_resumed_in_process(method, settings, encoder_path, tmp_path):
    arguments = {"encoder": encoder_path, "method": method, **settings}
    whole = runs.run(str(tmp_path / "run"), **arguments)
    state, log = runs.state_of(whole), runs.log_of(whole)
    for step in (4, 6):
        shutil.rmtree(tmp_path / "run" / f"checkpoint-{step}")
    again = runs.run(str(tmp_path / "run"), resume=True, **arguments)
    resumed = runs.state_of(again)
    assert all(np.array_equal(state[name], resumed[name]) for name in state)
    assert runs.log_of(again) == log


@pytest.mark.parametrize(
    ("moment", "reason"),
    [
        ("half a file", "checkpoint_complete.json is missing"),
        ("before the trainer's state", "trainer_state.json is missing or cut off"),
    ],
)
def test_killed_while_a_checkpoint_is_written(moment, reason, encoder_path, tmp_path):
    """The torn one is passed over for the whole one before it; ``benchmarks/kill_runs.py`` does it at random moments."""
    arguments = {"encoder": encoder_path}
    killed = in_process(tmp_path / "killed", arguments | {"kill_while": moment})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (tmp_path / "killed" / "checkpoint-4").is_dir()
    assert reason in why_incomplete(tmp_path / "killed" / "checkpoint-4")
    assert training.newest_complete_checkpoint(tmp_path / "killed").name == "checkpoint-2"
    resumed = in_process(tmp_path / "killed", arguments | {"resume": True})
    assert resumed.returncode == 0, resumed.stderr
    assert_equal(runs.run(str(tmp_path / "whole"), **arguments), tmp_path / "killed")
