"""A training that is killed and resumed equals an uninterrupted one, bit for bit."""

import functools
import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import training_runs
from methods import EVERY, HOST, LABELLED, WITHOUT_SAM

# Some settings of one method, one of each other method. In each, an epoch ends after the training is resumed.
RUNS = [
    *(
        {"method": "arccse", "accumulation": accumulation, "workers": workers}
        for accumulation in (1, 2)
        for workers in (0, 2)
    ),
    *(
        {"method": method, "rows": 10, "save_steps": 1, "steps": 4}
        for method in (*EVERY, *HOST, *LABELLED)
        if method != "arccse"
    ),
    *({"method": "arccse", "kill": moment} for moment in ("half a file", "half the marker")),
    {"method": "arccse", "rows": 8, "save_steps": 4, "steps": 10},  # resumed in the fifth epoch
]


SAM = {"sam_rho": 0.05, "accumulation": 2, "bf16": True}
# Methods with a decoder, a queue, factors, a count of updates, and a teacher.
WITH_STATE = ("paser", "denosent", "pt-bert", "balanced sum", "slt-fai", "self-distillation")


def name_of(settings):
    return " ".join(map(str, settings.values()))


@pytest.fixture(scope="module")
def killed_and_resumed(once, encoder_path):
    """Return the folder of all runs, each killed while its second checkpoint is written, and resumed."""

    def make(folder):
        runs = {str(folder / name_of(settings)): {"encoder": encoder_path, **settings} for settings in RUNS}
        command = [sys.executable, training_runs.__file__, json.dumps(runs)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        found = json.loads(result.stdout.strip().splitlines()[-1])
        assert {(killed, resumed) for killed, resumed, _ in found.values()} == {(-signal.SIGKILL, 0)}
        (folder / "newest.json").write_text(json.dumps([newest for *_, newest in found.values()]))

    return once("killed_and_resumed", make)


@pytest.fixture(scope="module")
def uninterrupted(encoder_path, tmp_path_factory):
    """Train without a kill and without checkpoints, once for all runs of the same settings."""

    @functools.cache
    def run(**settings):
        keywords = {"encoder": encoder_path, "save_strategy": "no", **settings}
        trainer = training_runs.run(str(tmp_path_factory.mktemp("whole")), **keywords)
        return training_runs.state_of(trainer), json.loads(json.dumps(training_runs.log_of(trainer)))

    return run


@pytest.mark.slow
@pytest.mark.parametrize("settings", RUNS, ids=name_of)
def test_killed_and_resumed_in_a_new_process(settings, killed_and_resumed, uninterrupted):
    output, interval = killed_and_resumed / name_of(settings), settings.get("save_steps", 2)
    newest = json.loads((killed_and_resumed / "newest.json").read_text())[RUNS.index(settings)]
    assert newest == f"checkpoint-{interval if 'kill' in settings else 2 * interval}"
    state, log = uninterrupted(**{key: value for key, value in settings.items() if key != "kill"})
    resumed = np.load(output / "state.npz")
    assert set(state) == set(resumed.files)
    differences = {name: np.abs(state[name].astype(float) - resumed[name]).max(initial=0.0) for name in state}
    assert {name: difference for name, difference in differences.items() if difference != 0.0} == {}
    assert json.loads((output / "log.json").read_text()) == log


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("arccse", {"sam_rho": 0.05}),
        *((method, {"bf16": True} if method in WITHOUT_SAM else SAM) for method in WITH_STATE),
    ],
    ids=str,
)
def test_resumed_in_process(method, settings, encoder_path, tmp_path):
    arguments = {
        "encoder": encoder_path,
        "method": method,
        "rows": 10,
        "steps": 2,
        "save_steps": 1,
        **settings,
    }
    whole = training_runs.run(str(tmp_path), **arguments)
    state, log = training_runs.state_of(whole), training_runs.log_of(whole)
    shutil.rmtree(tmp_path / "checkpoint-2")
    again = training_runs.run(str(tmp_path), resume=True, **arguments)
    resumed = training_runs.state_of(again)
    assert all(np.array_equal(state[name], resumed[name]) for name in state)
    assert training_runs.log_of(again) == log
