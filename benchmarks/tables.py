"""What the tables of the pages are made of: records, means and Markdown."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "avg7")
RESULTS = Path(__file__).parent / "results"


def commit_text(record: dict) -> str:
    return record["commit"] + " with uncommitted changes" * record["uncommitted_changes"]


def mean_text(values: list[float], digits: int = 2) -> str:
    """Mean and, over several seeds, standard deviation.

    Raises:
        FileNotFoundError: Without a value: a page is not built with a hole.
    """
    if not values:
        raise FileNotFoundError("a table has a place for which there is no record: run quality.py.")
    deviation = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{deviation}"


def threads_text(record: dict) -> str:
    return f"{record['threads']} thread" + "s" * (record["threads"] != 1)


def load_record(name: str) -> dict:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def table(heading: list[str], rows: list[list[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
