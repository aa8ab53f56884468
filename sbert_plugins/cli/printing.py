"""Tables and values as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns: numbers to the right, other texts to the left."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    is_number = [
        all(cell[:1].isdigit() or cell[:1] in ("", "-", "+") for cell in column[1:]) for column in columns
    ]
    for row in rows:
        cells = zip(row, widths, is_number, strict=True)
        print(
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width) for cell, width, right in cells
            ).rstrip()
        )


def shown(value: Any) -> str:
    """Return a value as a person writes it.

    Example:
        >>> [shown(value) for value in (None, False, 3e-05, 1000000, "mean")]
        ['none', 'no', '3e-05', '1,000,000', 'mean']
    """
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
