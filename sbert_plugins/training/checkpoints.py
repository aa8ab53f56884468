"""Whole and torn checkpoints: a list of files with their sizes and checksums, written when everything else is."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from itertools import chain
from pathlib import Path

from safetensors import SafetensorError, safe_open
from transformers.trainer import TRAINER_STATE_NAME

logger = logging.getLogger(__name__)

COMPLETE_FILE = "checkpoint_complete.json"
STATE_FILE = TRAINER_STATE_NAME  # written after COMPLETE_FILE, and before older checkpoints are deleted


def mark_complete(checkpoint: str | Path, global_step: int) -> None:
    """List the files of a checkpoint with sizes and checksums in :data:`COMPLETE_FILE`.

    All of it is on the disk before the list is: after a power failure no list stands beside files that are not there.
    """
    checkpoint = Path(checkpoint)
    paths = [path for path in sorted(checkpoint.rglob("*")) if path.name not in (COMPLETE_FILE, STATE_FILE)]
    files = {
        path.relative_to(checkpoint).as_posix(): {"bytes": path.stat().st_size, "sha256": _checksum(path, sync=True)}
        for path in paths
        if path.is_file()
    }
    for folder in (*(path for path in paths if path.is_dir()), checkpoint, checkpoint.parent):
        _sync_folder(folder)
    listed = checkpoint / COMPLETE_FILE
    listed.write_text(json.dumps({"format": 2, "global_step": global_step, "files": files}, indent=1) + "\n", encoding="utf-8")
    _checksum(listed, sync=True)
    _sync_folder(checkpoint)


def why_incomplete(checkpoint: str | Path) -> str | None:
    """Say what is wrong with a checkpoint's files; None if all are there as they were written."""
    checkpoint = Path(checkpoint)
    try:
        listed = json.loads((checkpoint / COMPLETE_FILE).read_text(encoding="utf-8"))
        # The first format had sizes only.
        files = {
            name: (entry, None) if type(entry) is int else (entry["bytes"], entry["sha256"])
            for name, entry in listed["files"].items()
        }
        global_step = listed["global_step"]
    except FileNotFoundError:
        return f"{COMPLETE_FILE} is missing, which is written when all else is"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{COMPLETE_FILE} is cut off or damaged"
    try:
        if json.loads((checkpoint / STATE_FILE).read_text(encoding="utf-8"))["global_step"] != global_step:
            return f"{STATE_FILE} is of another step"
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return f"{STATE_FILE} is missing or cut off"
    sizes = ((name, _wrong_size(checkpoint / name, size)) for name, (size, _) in files.items())
    contents = ((name, _wrong_content(checkpoint / name, checksum)) for name, (_, checksum) in files.items())
    # All sizes before the first checksum, which reads its file.
    return next((f"{name} {reason}" for name, reason in chain(sizes, contents) if reason), None)


def newest_complete_checkpoint(output_dir: str | Path) -> Path | None:
    """Return the complete checkpoint of the highest step in ``output_dir``; torn ones are passed over with a warning."""
    folders = {folder: step for folder in Path(output_dir).glob("checkpoint-*") if (step := step_of(folder)) is not None}
    for folder in sorted(folders, key=folders.__getitem__, reverse=True):
        reason = why_incomplete(folder)
        if reason is None:
            return folder
        logger.warning("%s is passed over: %s.", folder, reason)
    return None


def unmark_later(output_dir: str | Path, step: int) -> None:
    """Let no checkpoint of a later step count as complete: it is of another training, whose place this one has taken."""
    for later, folder in marked_checkpoints(output_dir).items():
        if later > step:
            (folder / COMPLETE_FILE).unlink()


def marked_checkpoints(output_dir: str | Path) -> dict[int, Path]:
    """Return by step the checkpoints that were once complete; whether they still are, their checksums say."""
    folders = [file.parent for file in Path(output_dir).glob(f"checkpoint-*/{COMPLETE_FILE}")]
    return {step: folder for folder in folders if (step := step_of(folder)) is not None}


def step_of(folder: Path) -> int | None:
    """Return the step of a folder that the host named; None for others, such as a ``checkpoint-best`` kept by hand."""
    return int(folder.name.removeprefix("checkpoint-")) if re.fullmatch(r"checkpoint-[0-9]+", folder.name) else None


def _checksum(file: Path, *, sync: bool = False) -> str:
    """Return the SHA-256 of a file, and with ``sync`` have it on the disk."""
    with file.open("r+b" if sync else "rb") as opened:  # Windows syncs only what may be written
        digest = hashlib.sha256()
        while block := opened.read(1 << 20):
            digest.update(block)
        if sync:
            os.fsync(opened.fileno())
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # has no such thing
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _wrong_size(file: Path, size: int) -> str | None:
    if not file.is_file():
        return "is missing"
    found = file.stat().st_size
    return None if found == size else f"has {found} bytes, {size} were written"


def _wrong_content(file: Path, checksum: str | None) -> str | None:
    if checksum is not None:
        return None if _checksum(file) == checksum else "does not hold the bytes that were written"
    if file.suffix == ".safetensors":  # the first format: at least the header can be read
        try:
            with safe_open(file, framework="pt") as opened:
                opened.keys()
        except (SafetensorError, OSError) as error:
            return f"has a damaged header ({error})"
    return None
