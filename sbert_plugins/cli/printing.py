"""What a reader sees: tables, and less of what libraries say."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sbert_plugins.host import is_of_pooler


def set_up_host() -> None:
    """Keep the host's libraries from printing what is not the reader's."""
    import datasets
    from transformers.utils import logging as host

    host.disable_progress_bar()  # of reading and writing weights
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    for handler in logging.getLogger("transformers").handlers:
        if not any(isinstance(present, LoadReports) for present in handler.filters):
            handler.addFilter(LoadReports())


class LoadReports(logging.Filter):
    """Shortens transformers' table of a checkpoint's weights to the line that matters: those that are random now."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is printed."""
        text = record.getMessage()
        if "LOAD REPORT" not in text:
            return True
        missing = [name for name in re.findall(r"^(\S+)\s*\|.*MISSING", text, re.MULTILINE) if not is_of_pooler(name)]
        record.msg, record.args = "The checkpoint lacks weights, which are random now: %s.", (", ".join(missing),)
        return bool(missing)


@contextmanager
def less_said_by(name: str) -> Iterator[None]:
    """Only warnings of a room, inside the block."""
    room = logging.getLogger(name)
    level = room.level
    room.setLevel(logging.WARNING)
    try:
        yield
    finally:
        room.setLevel(level)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns: text to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    is_number = [all(row[i].replace(".", "", 1).replace("-", "", 1).isdigit() for row in rows[1:]) for i in range(len(widths))]
    for row in rows:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, is_number, strict=True)
        ]
        print("  ".join(cells).rstrip())


def score_text(score: float | None) -> str:
    """Return a score for a table."""
    return "none" if score is None else f"{score:.2f}"
