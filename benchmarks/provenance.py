"""Where a number comes from, as every result file carries it."""

from __future__ import annotations

from pathlib import Path

from sbert_plugins.recipes.provenance import provenance

__all__ = ["ROOT", "provenance"]

ROOT = Path(__file__).parent.parent
