import hashlib
import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

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
        (lambda c: (c / "model.safetensors").write_bytes(b"x" * 99 + b"y"), "model.safetensors does not hold the bytes that"),
        (lambda c: (c / "1_Pooling" / "config.json").write_text("[]"), "1_Pooling/config.json does not hold the bytes that"),
        (
            lambda c: (c / COMPLETE_FILE).write_text('{"global_step": 10, "files": {"a": "b"}}'),
            f"{COMPLETE_FILE} is cut off or",
        ),
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
    for name in ("checkpoint-old", "checkpoint-best", "checkpoint-", "checkpoint-200-best"):
        write(tmp_path, name.removeprefix("checkpoint-"))
    assert newest_complete_checkpoint(tmp_path) == checkpoints[2]


def test_none(tmp_path):
    assert newest_complete_checkpoint(tmp_path) is None
    assert newest_complete_checkpoint(tmp_path / "nowhere") is None


def test_the_list_has_sizes_and_checksums(tmp_path):
    listed = json.loads((write(tmp_path, 5) / COMPLETE_FILE).read_text())
    assert set(listed["files"]) == {"model.safetensors", "1_Pooling/config.json"}
    assert listed["files"]["model.safetensors"] == {"bytes": 100, "sha256": hashlib.sha256(b"x" * 100).hexdigest()}


def test_all_is_on_the_disk_before_the_list_is_written(tmp_path, monkeypatch):
    """Files and folders; the list itself and its folder last."""
    synced = []

    def sync(descriptor):
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced.append((path.name, (tmp_path / "checkpoint-5" / COMPLETE_FILE).exists()))

    monkeypatch.setattr(os, "fsync", sync)
    write(tmp_path, 5)
    before = [name for name, listed in synced if not listed]
    assert sorted(before[:2]) == ["config.json", "model.safetensors"]
    assert before[2:] == ["1_Pooling", "checkpoint-5", tmp_path.name]
    assert [name for name, listed in synced if listed] == [COMPLETE_FILE, "checkpoint-5"]


class TestFirstFormat:
    """Sizes only, as the list had them at first."""

    @pytest.fixture
    def old(self, tmp_path):
        checkpoint = write(tmp_path, 5)
        save_file({"weight": torch.zeros(3)}, checkpoint / "model.safetensors")
        names = ("model.safetensors", "1_Pooling/config.json")
        files = {name: (checkpoint / name).stat().st_size for name in names}
        (checkpoint / COMPLETE_FILE).write_text(json.dumps({"global_step": 5, "files": files}))
        return checkpoint

    def test_is_read(self, old):
        assert why_incomplete(old) is None
        (old / "1_Pooling" / "config.json").write_text("{ }")
        assert why_incomplete(old) == "1_Pooling/config.json has 3 bytes, 2 were written"

    def test_a_flipped_header(self, old):
        content = bytearray((old / "model.safetensors").read_bytes())
        content[8] ^= 1
        (old / "model.safetensors").write_bytes(content)
        assert "model.safetensors has a damaged header" in why_incomplete(old)


def test_the_trainers_state_may_be_written_again(tmp_path):
    """It comes after the list: a folder that is written twice has an old one while it is listed."""
    checkpoint = write(tmp_path, 5)
    mark_complete(checkpoint, 5)
    (checkpoint / STATE_FILE).write_text(json.dumps({"global_step": 5, "log_history": []}))
    assert why_incomplete(checkpoint) is None
