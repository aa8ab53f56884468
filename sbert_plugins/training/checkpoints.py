"""Whole and torn checkpoints: a list of files with their sizes, written when everything else is."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

logger = logging.getLogger(__name__)

COMPLETE_FILE = "checkpoint_complete.json"
STATE_FILE = "trainer_state.json"  # the host's; written after COMPLETE_FILE, and before older checkpoints are deleted


def mark_complete(checkpoint: str | Path, global_step: int) -> None:
    """List the files of a checkpoint with their sizes in :data:`COMPLETE_FILE`."""
    checkpoint = Path(checkpoint)
    sizes = {
        str(path.relative_to(checkpoint)): path.stat().st_size for path in sorted(checkpoint.rglob("*")) if path.is_file()
    }
    files = {name: size for name, size in sizes.items() if name not in (COMPLETE_FILE, STATE_FILE)}
    text = json.dumps({"global_step": global_step, "files": files}, indent=1) + "\n"
    (checkpoint / COMPLETE_FILE).write_text(text, encoding="utf-8")


def why_incomplete(checkpoint: str | Path) -> str | None:
    """Say what is wrong with a checkpoint's files; None if all are there in the size they were written in."""
    checkpoint = Path(checkpoint)
    try:
        listed = json.loads((checkpoint / COMPLETE_FILE).read_text(encoding="utf-8"))
        files, global_step = dict(listed["files"]), listed["global_step"]
    except FileNotFoundError:
        return f"{COMPLETE_FILE} is missing, which is written when all else is"
    except (ValueError, KeyError, TypeError):
        return f"{COMPLETE_FILE} is cut off or damaged"
    for name, size in files.items():
        file = checkpoint / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != size:
            return f"{name} has {file.stat().st_size} bytes, {size} were written"
    try:
        if json.loads((checkpoint / STATE_FILE).read_text(encoding="utf-8"))["global_step"] != global_step:
            return f"{STATE_FILE} is of another step"
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return f"{STATE_FILE} is missing or cut off"
    return None


def newest_complete_checkpoint(output_dir: str | Path) -> Path | None:
    """Return the complete checkpoint of the highest step in ``output_dir``; torn ones are passed over with a warning."""
    folders = [path for path in Path(output_dir).glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", path.name)]
    for folder in sorted(folders, key=lambda path: int(path.name.removeprefix("checkpoint-")), reverse=True):
        reason = why_incomplete(folder)
        if reason is None:
            return folder
        logger.warning("%s is passed over: %s.", folder, reason)
    return None
