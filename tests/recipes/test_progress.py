import io
from types import SimpleNamespace

import pytest

from sbert_plugins.recipes.progress import ProgressLine

LOGS = [
    {"grad_norm": 2.0, "learning_rate": 1e-5, "arccon": 0.5, "loss": 1.23456, "epoch": 0.1},
    {"eval_dev_spearman": 0.61234, "eval_runtime": 3.0, "epoch": 0.1},
    {"train_runtime": 9.0, "train_loss": 1.0, "epoch": 1.0},
    {"epoch": 1.0},
]


def shown(stream):
    lines = []
    progress = ProgressLine(lines.append, stream=stream, score=("eval_dev_spearman", "dev"))
    state = SimpleNamespace(max_steps=10, global_step=0, is_world_process_zero=True)
    progress.on_train_begin(None, state, None)
    for step, logs in enumerate(LOGS, start=1):
        state.global_step = step
        progress.on_step_end(None, state, None)
        progress.on_log(None, state, None, logs=logs)
    progress.on_train_end(None, state, None)
    return lines, stream.getvalue()


def test_lines_where_there_is_no_terminal():
    lines, written = shown(io.StringIO())
    assert lines == ["update  1/10  loss 1.235  arccon 0.5", "update  2/10  dev 61.23"]
    assert written == ""


def test_one_line_at_a_terminal(monkeypatch):
    stream = io.StringIO()
    stream.isatty = lambda: True
    lines, written = shown(stream)
    assert lines == []
    assert "4/10" in written
    assert "dev 61.23" in written
    assert written.count("\n") == 1


@pytest.mark.parametrize("is_main", [True, False])
def test_one_process_speaks(is_main):
    lines = []
    state = SimpleNamespace(max_steps=1, global_step=1, is_world_process_zero=is_main)
    ProgressLine(lines.append, stream=io.StringIO()).on_log(None, state, None, logs={"loss": 1.0})
    assert bool(lines) is is_main
