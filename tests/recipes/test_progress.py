import logging
import re
from types import SimpleNamespace

import pytest

from sbert_plugins.recipes import progress


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now.seconds)
    return now


def run(callback, clock, *, seconds, updates=10, is_first=True):
    """Report a training of so many seconds per update, logged at each."""
    state = SimpleNamespace(global_step=0, max_steps=updates, is_world_process_zero=is_first)
    callback.on_train_begin(None, state, None)
    for step in range(1, updates + 1):
        state.global_step, clock.seconds = step, step * seconds
        terms = {"loss": 1.0 / step, "a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4, "grad_norm": 9.0, "epoch": 1.0}
        callback.on_log(None, state, None, logs=terms)
        if step == 5:
            callback.on_log(None, state, None, logs={"eval_dev_spearman": 71.234, "epoch": 1.0})
        callback.on_step_end(None, state, None)
    callback.on_train_end(None, state, None)


def lines_of(caplog):
    return [record.message for record in caplog.records]


def test_a_line_per_minute_with_rate_and_remaining_time(clock, caplog):
    caplog.set_level(logging.INFO, "sbert_plugins")
    run(progress.Progress(), clock, seconds=30)
    lines = lines_of(caplog)
    assert [re.match(r"Update (\d+) of 10", line)[1] for line in lines] == ["2", "4", "6", "8", "10", "10"]
    assert "(0.03 per second, 04:00 left)" in lines[0]


def test_at_most_four_numbers(clock, caplog):
    caplog.set_level(logging.INFO, "sbert_plugins")
    run(progress.Progress(), clock, seconds=1)
    (line,) = lines_of(caplog)
    assert line.endswith("loss 0.1, a 0.1, b 0.2, c 0.3")


def test_a_score_is_shown_at_once(clock, caplog):
    caplog.set_level(logging.INFO, "sbert_plugins")
    run(progress.Progress(("eval_dev_spearman", "STS-B dev")), clock, seconds=1)
    assert lines_of(caplog)[0].endswith("STS-B dev 71.23")


def test_one_process_prints(clock, caplog):
    caplog.set_level(logging.INFO, "sbert_plugins")
    run(progress.Progress(), clock, seconds=60, is_first=False)
    assert lines_of(caplog) == []


def test_a_bar_in_a_terminal(clock, caplog, monkeypatch, capsys):
    caplog.set_level(logging.INFO, "sbert_plugins")
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True)
    run(progress.Progress(), clock, seconds=60)
    assert lines_of(caplog) == []
    assert "10/10" in capsys.readouterr().err
