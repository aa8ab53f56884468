"""Where a number comes from, as every result file carries it."""

from __future__ import annotations

from pathlib import Path

from sbert_plugins.recipes.provenance import provenance

__all__ = ["ROOT", "provenance", "refuse_changes"]

ROOT = Path(__file__).parent.parent


def refuse_changes(otherwise: str = "") -> None:
    """End a program that would make a record of a tree with uncommitted changes."""
    if provenance()["uncommitted_changes"]:
        raise SystemExit(f"A record is of a commit: commit the changes first{otherwise}.")
