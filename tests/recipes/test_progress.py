import re
from types import SimpleNamespace

import pytest

from sbert_plugins.recipes import progress


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=1000.0)
    bar = progress.tqdm

    def timed(*arguments, **keywords):
        made = bar(*arguments, **keywords)
        made._time = lambda: now.seconds
        made.start_t = made.last_print_t = now.seconds
        return made

    monkeypatch.setattr(progress, "tqdm", timed)
    return now


def run(clock, *, seconds, updates=10, is_first=True, terms=("learn/a",)):
    """Report a training of so many seconds per update, logged at each."""
    callback = progress.Progress(SimpleNamespace(terms=terms))
    state = SimpleNamespace(global_step=0, max_steps=updates, is_world_process_zero=is_first)
    arguments = SimpleNamespace(metric_for_best_model="dev_spearman")
    callback.on_train_begin(arguments, state, None)
    for step in range(1, updates + 1):
        state.global_step = step
        clock.seconds += seconds
        logs = {name: 0.5 for name in terms} | {"accuracy": 0.1, "loss": 1.0 / step, "grad_norm": 9.0}
        callback.on_log(arguments, state, None, logs=logs)
        if step == 5:
            callback.on_log(arguments, state, None, logs={"eval_dev_spearman": 71.234, "epoch": 1.0})
        callback.on_step_end(None, state, None)
    callback.on_train_end(None, state, None)


def lines(capsys):
    return [line for line in capsys.readouterr().err.replace("\r", "").splitlines() if line.strip()]


def test_a_line_per_minute_with_rate_and_remaining_time(clock, capsys):
    run(clock, seconds=30)
    printed = lines(capsys)
    updates = [int(re.search(r"(\d+)/10 updates", line)[1]) for line in printed]
    assert list(dict.fromkeys(updates)) == [2, 4, 6, 8, 10]
    assert "30.00s/update, 04:00 left" in printed[0]


def test_the_newest_loss_or_score_is_shown(clock, capsys):
    run(clock, seconds=30)
    assert lines(capsys)[-1].endswith("left, loss=0.1")
    run(clock, seconds=30, terms=("learn/a", "keep/b"))
    assert lines(capsys)[-1].endswith("left, loss=0.1, learn/a=0.5, keep/b=0.5")
    run(clock, seconds=30, updates=5)
    assert lines(capsys)[-1].endswith("dev_spearman=71.23")


def test_one_process_prints(clock, capsys):
    run(clock, seconds=60, is_first=False)
    assert lines(capsys) == []


def test_a_bar_in_a_terminal(clock, monkeypatch, capsys):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True)
    run(clock, seconds=60)
    printed = capsys.readouterr().err
    assert "10/10" in printed
    assert "\n" not in printed.strip()
