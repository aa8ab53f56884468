"""The cells of the quality grids as the tables read them."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

Cell = dict[str, Any]  # method, seed, settings of the grid, dev, scores, curve, where it was made
_TITLES = {"average of 7 STS tasks": "avg7", "STS-B dev: Spearman": "dev"}
# What a comparison shows of an evaluator, as older records and the evaluator itself name it, and how many times as large.
_METRICS = {"MAP": ("cosine_map@100", 100), "MRR@10": ("cosine_mrr@10", 100), "nDCG@10": ("cosine_ndcg@10", 100)}


def read_grids(results: Path) -> dict[str, list[Cell]]:
    """Return the cells of each grid, by its folder's name; what was not trained, the start, is the method ``raw``.

    Raises:
        ValueError: On a record that a tree with uncommitted changes made, one that misses what a table shows, and seeds of a
            method whose rows were made in two ways: without WordNet PaSeR's have no synonyms, for one.
    """
    grids: dict[str, list[Cell]] = defaultdict(list)
    for path in sorted((results / "quality").glob("*/*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if "failed" in record:
            continue
        if record.get("uncommitted_changes"):
            raise ValueError(f"{path} was made on a tree with uncommitted changes: make it again on a commit.")
        settings = json.loads(settings_file(path.parent).read_text(encoding="utf-8"))
        grids[path.parent.name].append(_cell(path, record, settings))
    for name, cells in grids.items():
        told = [cell for cell in cells if cell.get("prepared")]  # earlier records do not say
        made = {(cell["method"], json.dumps(cell["prepared"], sort_keys=True)) for cell in told}
        methods = [method for method, _ in made]
        if twice := {method for method in methods if methods.count(method) > 1}:
            raise ValueError(f"seeds of {min(twice)} in {name} were trained on rows that were made in two ways: keep one.")
    return grids


def settings_file(grid: Path) -> Path:
    """Return where the settings of a grid stand, beside its folder, whose name may hold a dot."""
    return grid.with_name(f"{grid.name}.json")


def _cell(path: Path, record: Cell, settings: Cell) -> Cell:
    scores = dict(_named(title, score) for title, score in record["scores"].items())
    if "dev" not in scores or (not settings["dev_only"] and settings["text"] in ("short", "wiki") and "avg7" not in scores):
        raise ValueError(f"{path} misses scores that the tables show, has {', '.join(scores)}: make it again.")
    is_start = path.name == "start.json"
    where = {key: record[key] for key in ("commit", "uncommitted_changes", "hardware", "threads", "date") if key in record}
    return {
        "method": "raw" if is_start else record["name"],
        "seed": 0 if is_start else record["seed"],
        "settings": settings,
        "dev": scores.pop("dev"),
        "scores": scores,
        "prepared": record.get("prepared"),
        "curve": [
            {"step": point["step"], "dev": point["STS-B dev"]} for point in record.get("curve", []) if "STS-B dev" in point
        ],
        **where,
    }


def _named(title: str, score: float) -> tuple[str, float]:
    """Return a score under the name that all records share."""
    name, colon, metric = title.partition(": ")
    if title in _TITLES or not colon:
        return _TITLES.get(title, title), score
    key, factor = _METRICS.get(metric, (metric.replace("v-measure", "v_measure"), 1))
    return f"{name}_{key}", score / factor
