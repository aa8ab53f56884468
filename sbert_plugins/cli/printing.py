"""Printing of tables, and of the list of methods, which needs no torch."""

import re
from collections.abc import Sequence

from sbert_plugins.catalogue import METHODS, START, UPDATES


def print_methods() -> None:
    """Print the methods, what they compute, what short trainings gave, and the papers."""
    rows: list[Sequence[str]] = [("method", *(f"{count} updates" for count in UPDATES), "what it computes")]
    for name, about in METHODS.items():
        scores = [f"{score:.1f}" for score in about.scores] or ["", ""]
        rows.append((name, *scores, about.summary))
    print_table(rows)
    print(
        "\nScores: average of the seven STS tasks after short trainings of a small language model, which "
        f"starts at {START}.\nThe papers trained larger models for longer. For short trainings take "
        "recommended.\n"
    )
    for about in METHODS.values():
        print(f"{about.title}: {about.paper}, {about.url}")


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns: numbers to the right, other texts to the left."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    is_number = [all(re.match(r"[-+\d]|$", cell) for cell in column[1:]) for column in columns]
    for row in rows:
        cells = zip(row, widths, is_number, strict=True)
        line = "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in cells)
        print(line.rstrip())
