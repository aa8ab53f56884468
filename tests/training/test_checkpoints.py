import json

import pytest

from sbert_plugins.training.checkpoints import (
    COMPLETE_FILE,
    STATE_FILE,
    mark_complete,
    newest_complete_checkpoint,
    why_incomplete,
)


def write(folder, step):
    checkpoint = folder / f"checkpoint-{step}"
    (checkpoint / "1_Pooling").mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(b"x" * 100)
    (checkpoint / "1_Pooling" / "config.json").write_text("{}")
    mark_complete(checkpoint, step)
    (checkpoint / STATE_FILE).write_text(json.dumps({"global_step": step}))
    return checkpoint


def test_a_whole_checkpoint(tmp_path):
    assert why_incomplete(write(tmp_path, 5)) is None


@pytest.mark.parametrize(
    ("tear", "reason"),
    [
        (lambda c: (c / COMPLETE_FILE).unlink(), f"{COMPLETE_FILE} is missing"),
        (lambda c: (c / COMPLETE_FILE).write_text('{"files": {'), f"{COMPLETE_FILE} is cut off or damaged"),
        (lambda c: (c / COMPLETE_FILE).write_text("[]"), f"{COMPLETE_FILE} is cut off or damaged"),
        (lambda c: (c / "model.safetensors").write_bytes(b"x" * 99), "model.safetensors has 99 bytes, 100 were written"),
        (lambda c: (c / "1_Pooling" / "config.json").unlink(), "1_Pooling/config.json is missing"),
        (lambda c: (c / STATE_FILE).unlink(), f"{STATE_FILE} is missing or cut off"),
        (lambda c: (c / STATE_FILE).write_text('{"global_'), f"{STATE_FILE} is missing or cut off"),
        (lambda c: (c / STATE_FILE).write_text('{"global_step": 4}'), f"{STATE_FILE} is of another step"),
    ],
)
def test_a_torn_checkpoint_is_never_taken(tmp_path, caplog, tear, reason):
    whole, torn = write(tmp_path, 5), write(tmp_path, 10)
    tear(torn)
    assert reason in why_incomplete(torn)
    assert newest_complete_checkpoint(tmp_path) == whole
    assert "checkpoint-10 is passed over" in caplog.text


def test_the_highest_number_wins_not_the_name_or_the_date(tmp_path):
    checkpoints = [write(tmp_path, step) for step in (10, 9, 100, 20)]
    (tmp_path / "checkpoint-old").mkdir()
    assert newest_complete_checkpoint(tmp_path) == checkpoints[2]


def test_none(tmp_path):
    assert newest_complete_checkpoint(tmp_path) is None
    assert newest_complete_checkpoint(tmp_path / "nowhere") is None
