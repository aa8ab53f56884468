"""The cells of ``quality.py`` as the tables read them: by grid, each under the name of what it was, in pairs of one seed."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from functools import cache
from pathlib import Path

import tables
from records import read_grids

# What is recommended had a pass for its words, before they were read in one of its contrast.
BEFORE_THAT = " with a pass for its words"

# Texts and lengths that were trained in bfloat16 where the machine had it, else in float32: too long to be made in both.
IN_EITHER_PRECISION = (("short", 400), ("short", 2000), ("wiki", 60), ("wiki", 400))

# Settings that change what is scored after a training, and no training.
ALSO_SCORED = ("search", "topics")

# The folder of cells that were made again on the machine of the others; what took their place is in the grid of that name.
OTHER_MACHINE = "_other_machine"


def all_grids(*, dev_only: bool, supervised: bool = False, other_machine: bool = False) -> dict[str, list[dict]]:
    """Return the quality cells by the name of what they share, encoder, text and settings; with labels only if asked."""
    grids = {}
    for name, records in _read(tables.RESULTS).items():
        if name.endswith(OTHER_MACHINE) is not other_machine:
            continue
        for record in records:
            # Records that do not name a CPU's instructions yet and are in bfloat16 are of machines with AVX512.
            record["hardware"] = record["hardware"].removesuffix(", AVX512")
        kept = [record for record in records if supervised or not is_supervised(record["method"])]
        if kept and kept[0]["settings"]["dev_only"] == dev_only:
            grids[name.removesuffix("_dev")] = kept
    return grids


_read = cache(read_grids)  # a table asks for them again and again


def main_grid(text: str, steps: int) -> list[dict]:
    """Return the cells of the main encoder on a text, of as many updates: the grid of today's harness that has most."""
    return max(grids_as_long(text, steps), key=place_of)


@cache
def _before(results: Path) -> list[list[dict]]:  # asked for each row
    return list(all_grids(dev_only=False, other_machine=True).values())


def made_before(records: list[dict]) -> list[dict]:
    """Return the cells of a grid that were made on another machine, and later again."""
    return [cell for cells in _before(tables.RESULTS) if cells[0]["settings"] == records[0]["settings"] for cell in cells]


def grid_before(text: str, steps: int) -> list[dict]:
    """Return the largest grid that computed padding."""
    return max((grid for grid in grids_as_long(text, steps) if not is_packed(grid[0])), key=len)


def place_of(records: list[dict]) -> tuple[bool, int]:
    """Put a grid of today's harness, which computes no padding and trains in bfloat16, before others, then the larger one."""
    settings = records[0]["settings"]
    return is_packed(records[0]) and settings["bf16"] and settings["pooling"] == "mean", len(records)


def trained_of(records: list[dict]) -> str:
    """Return which weights of the encoder a grid trains."""
    return records[0]["settings"].get("trained", "all")


def is_packed(record: dict) -> bool:
    return record["settings"]["packed"]


def grids_as_long(text: str, steps: int) -> list[list[dict]]:
    """Return the grids of a text and a length, those of today's harness as one where they were made in either precision."""
    found = grids_apart(text, steps)
    if (text, steps) not in IN_EITHER_PRECISION:
        return found
    return [merged([grid for grid in found if is_packed(grid[0])]), *(grid for grid in found if not is_packed(grid[0]))]


def grids_apart(text: str, steps: int) -> list[list[dict]]:
    """Return the grids of a text and a length, each precision's apart."""
    return [
        records
        for records in all_grids(dev_only=False).values()
        if [records[0]["settings"][key] for key in ("encoder", "text", "steps")] == ["minilm-mlm", text, steps]
        and trained_of(records) == "all"
    ]


def merged(grids: list[list[dict]]) -> list[dict]:
    """Return the cells of grids that differ in their precision alone, those in bfloat16 first, as one.

    What was made in both, to see how far they are apart, counts once, in bfloat16.

    Raises:
        ValueError: For grids that differ in more.
    """
    if len({but_for_precision(records) for records in grids}) > 1:
        raise ValueError("grids differ in more than their precision: they cannot stand in one table.")
    cells = {}
    for record in sorted(itertools.chain(*grids), key=lambda record: not record["settings"]["bf16"]):
        cells.setdefault((record["method"], record["seed"]), record)
    return list(cells.values())


def made_in_float32_too(records: list[dict]) -> list[dict]:
    """Return what ``merged`` leaves out of a grid: cells that were made in bfloat16 and in float32, these."""
    there = {(cell["method"], cell["seed"]) for cell in records if cell["settings"]["bf16"]}
    settings = records[0]["settings"]
    return [
        cell
        for grid in grids_apart(settings["text"], settings["steps"])
        if but_for_precision(grid) == but_for_precision(records)
        for cell in grid
        if not cell["settings"]["bf16"] and (cell["method"], cell["seed"]) in there
    ]


def but_for_precision(records: list[dict]) -> str:
    """Return a grid's settings as a text, that of grids whose trainings differ in their precision alone."""
    return json.dumps(records[0]["settings"] | dict.fromkeys(("bf16", *ALSO_SCORED)), sort_keys=True)


def made_in_both(grids: list[list[dict]]) -> list[tuple[dict, dict]]:
    """Return the trainings of grids that one machine made in float32 and in bfloat16, side by side."""
    cells = {(cell["settings"]["bf16"], cell["method"], cell["seed"]): cell for cell in itertools.chain(*grids)}
    return [
        (cell, cells[True, *which])
        for (bf16, *which), cell in cells.items()
        if not bf16
        and cell["method"] != "raw"
        and (True, *which) in cells
        # Two machines are apart by more than two precisions.
        and cells[True, *which]["hardware"] == cell["hardware"]
    ]


def is_supervised(method: str) -> bool:
    """Whether a method's name says in brackets what supervises it."""
    return "(" in method.partition(":")[0]


def by_method(records: list[dict]) -> dict[str, list[dict]]:
    """Return the cells of each method in the order of their seeds."""
    methods = defaultdict(list)
    for record in sorted(records, key=lambda record: record["seed"]):
        methods[record["method"]].append(record)
    return methods


def paired_differences(cells: list[dict], baseline: list[dict], key: str) -> list[float]:
    """Return the differences of cells to the baseline's cells of the same seed, on the same machine where there are two."""
    return [score_of(cell, key) - score_of(base, key) for cell, base in pairs_of(cells, baseline)]


def pairs_of(cells: list[dict], baseline: list[dict]) -> list[tuple[dict, dict]]:
    """Return of each seed a cell beside one of the baseline's: the first two of one machine, or else the first two."""
    found: dict[int, tuple[dict, dict]] = {}
    for pair in itertools.product(cells, baseline):
        seed, other = (cell["seed"] for cell in pair)
        if seed == other and (seed not in found or (are_near(pair) and not are_near(found[seed]))):
            found[seed] = pair
    return list(found.values())


def are_near(pair: tuple[dict, dict]) -> bool:
    """Whether two cells were computed by one machine, in one precision."""
    one, other = map(machine_of, pair)
    return one == other


def machine_of(cell: dict) -> tuple:
    """Return what a cell was computed by: the hardware, and the precision that its training had there."""
    return cell.get("hardware"), cell.get("settings", {}).get("bf16")


def score_of(cell: dict, key: str) -> float:
    return cell["dev"] if key == "dev" else cell["scores"][key]
