"""Interrupted equals uninterrupted, bit for bit: encoder, what the loss owns, optimizer, log."""

import functools
import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import training_runs
from methods import EVERY, HOST, METHODS, WITHOUT_SAM

from sbert_plugins import training
from sbert_plugins.training.checkpoints import why_incomplete

# The grid for one loss, and a shorter cell for each other loss. In all, an epoch ends after the training was resumed.
GRID = [
    {"method": "arccse", "accumulation": accumulation, "workers": workers} for accumulation in (1, 2) for workers in (0, 2)
]
OTHERS = [{"method": method, "rows": 10, "steps": 4} for method in (*EVERY, *HOST) if method != "arccse"]
TORN = {
    "half a file": "checkpoint_complete.json is missing",
    "before the trainer's state": "trainer_state.json is missing or cut off",
}


def in_processes(runs_of):
    """Run each in a process; return their exit statuses by output, and what they wrote to stderr."""
    words = [word for output, arguments in runs_of.items() for word in (str(output), json.dumps(arguments))]
    result = subprocess.run([sys.executable, training_runs.__file__, *words], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.strip().splitlines()[-1]), result.stderr


@pytest.fixture(scope="module")
def killed_and_resumed(once, encoder_path):
    """The folder of each cell and torn moment, killed, then resumed by another interpreter; with notes between the two."""

    def make(folder):
        jobs = {folder / name_of(cell): (cell, {"kill_at": killed_at(cell)}) for cell in (*GRID, *OTHERS)}
        jobs |= {folder / moment: ({}, {"kill_while": moment}) for moment in TORN}
        arguments = {output: {"encoder": encoder_path, **settings} for output, (settings, _) in jobs.items()}
        killed, errors = in_processes({output: arguments[output] | kill for output, (_, kill) in jobs.items()})
        notes = {
            output.name: {
                "killed": killed[str(output)],
                "reason": why_incomplete(output / "checkpoint-4"),  # of a torn one
                "newest": getattr(training.newest_complete_checkpoint(output), "name", None),
                "errors": errors,
            }
            for output in jobs
        }
        resumed, errors = in_processes({output: arguments[output] | {"resume": True} for output in jobs})
        for output in jobs:
            notes[output.name] |= {"resumed": resumed[str(output)], "errors of resuming": errors}
        (folder / "notes.json").write_text(json.dumps(notes))

    return once("killed_and_resumed", make)


@pytest.fixture(scope="module")
def uninterrupted(encoder_path, tmp_path_factory):
    """Train without a kill, each setting once."""

    @functools.cache
    def run(**arguments):
        trainer = training_runs.run(str(tmp_path_factory.mktemp("whole")), encoder=encoder_path, **arguments)
        assert trainer.state.global_step == arguments.get("steps", 6)
        return training_runs.state_of(trainer), json.loads(json.dumps(training_runs.log_of(trainer)))

    return run


def name_of(cell):
    return " ".join(map(str, cell.values()))


def killed_at(cell):
    """After a checkpoint: of six updates after the fourth, of four after the second."""
    return cell.get("steps", 6) - 2


def assert_resumed(output, notes, whole):
    assert notes["killed"] == -signal.SIGKILL, notes["errors"]
    assert notes["resumed"] == 0, notes["errors of resuming"]
    state, log = whole
    resumed = np.load(output / "state.npz")
    assert set(state) == set(resumed.files)
    differences = {name: np.abs(state[name].astype(float) - resumed[name]).max(initial=0.0) for name in state}
    assert {name: difference for name, difference in differences.items() if difference != 0.0} == {}
    assert json.loads((output / "log.json").read_text()) == log


@pytest.mark.slow
@pytest.mark.parametrize("cell", [*GRID, *OTHERS], ids=name_of)
def test_killed_and_resumed_in_a_new_process(cell, killed_and_resumed, uninterrupted):
    output = killed_and_resumed / name_of(cell)
    notes = json.loads((killed_and_resumed / "notes.json").read_text())[output.name]
    assert notes["newest"] == f"checkpoint-{killed_at(cell)}"
    assert_resumed(output, notes, uninterrupted(**cell))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("arccse", {"sam_rho": 0.05}),
        *((method, {"sam_rho": 0.05, "accumulation": 2}) for method in METHODS if method not in WITHOUT_SAM),
        *((method, {"bf16": True}) for method in METHODS),
    ],
    ids=str,
)
def test_resumed_in_process(method, settings, encoder_path, tmp_path):
    arguments = {"encoder": encoder_path, "method": method, "rows": 10, "steps": 2, "save_steps": 1, **settings}
    whole = training_runs.run(str(tmp_path / "run"), **arguments)
    state, log = training_runs.state_of(whole), training_runs.log_of(whole)
    shutil.rmtree(tmp_path / "run" / "checkpoint-2")
    again = training_runs.run(str(tmp_path / "run"), resume=True, **arguments)
    resumed = training_runs.state_of(again)
    assert all(np.array_equal(state[name], resumed[name]) for name in state)
    assert training_runs.log_of(again) == log


@pytest.mark.slow
@pytest.mark.parametrize("moment", TORN)
def test_killed_while_a_checkpoint_is_written(moment, killed_and_resumed, uninterrupted):
    """The torn one is passed over for the whole one before it; ``benchmarks/kill_runs.py`` does it at random moments."""
    output = killed_and_resumed / moment
    notes = json.loads((killed_and_resumed / "notes.json").read_text())[moment]
    assert TORN[moment] in notes["reason"]
    assert notes["newest"] == "checkpoint-2"
    assert_resumed(output, notes, uninterrupted(method="arccse", accumulation=1, workers=0))
