"""The cells of ``quality.py`` as the tables read them: by grid, each under the name of what it was, in pairs of one seed."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from functools import cache
from pathlib import Path

import tables
from records import read_grids

# From then on the words of what is recommended are read in a pass of its contrast.
WORDS_SHARE_SINCE, BEFORE_THAT = "2026-11-24T08:05", " with a pass for its words"

# Texts and lengths that were trained in bfloat16 where the machine had it, else in float32: too long to be made in both.
IN_EITHER_PRECISION = (("short", 2000), ("wiki", 400))

# The folder of cells that were made again on the machine of the others; what took their place is in the grid of that name.
OTHER_MACHINE = "_other_machine"


def all_grids(*, dev_only: bool, supervised: bool = False, other_machine: bool = False) -> dict[str, list[dict]]:
    """Return the quality cells by the name of what they share, encoder, text and settings; with labels only if asked."""
    grids = {}
    for name, records in read_grids(tables.RESULTS).items():
        if name.endswith(OTHER_MACHINE) is not other_machine:
            continue
        for record in records:
            record["method"] = _as_it_was(record)
            # Records that do not name a CPU's instructions yet and are in bfloat16 are of machines with AVX512.
            record["hardware"] = record["hardware"].removesuffix(", AVX512")
        kept = [record for record in records if supervised or not is_supervised(record["method"])]
        if kept and kept[0]["settings"]["dev_only"] == dev_only:
            grids[name.removesuffix("_dev")] = kept
    return grids


def _as_it_was(record: dict) -> str:
    """Name a method by what it was: seven losses had other defaults when their first cells were made."""
    return _by_its_words(record, _by_its_loss(record))


def _by_its_loss(record: dict) -> str:
    name, colon, keywords = record["method"].partition(":")
    if name.startswith("recommended") and "ArcCSELoss" in json.dumps(record["loss"]):
        return record["method"].replace("recommended", "consert + arccse", 1)
    if "packed" in record["settings"]:  # the harness knows it since
        return _by_its_bound(record) if name == "denosent" else record["method"]
    if name == "slt-fai":
        by_types = "low_frequency_by=types"
        rest = ",".join(keyword for keyword in keywords.split(",") if keyword != by_types)
        return f"slt-fai unbounded by {'types' if by_types in keywords else 'mass'}{colon if rest else ''}{rest}"
    first, space, rest = name.partition(" ")
    own = f"{first} as in its paper" if first in ("denosent", "paser") else first
    return own + space + rest + colon + keywords


def _by_its_bound(record: dict) -> str:
    """Name a cell of DenoSent: its bound was 1 by default, and is 0.3."""
    _, _, keywords = record["method"].partition(":")
    named = [keyword for keyword in keywords.split(",") if keyword and not keyword.startswith("balance=")]
    bound = record["loss"]["balance"]
    named += [] if bound == 0.3 else [f"balance={bound:g}"]
    return "denosent" + ":" * bool(named) + ",".join(named)


def _by_its_words(record: dict, named: str) -> str:
    """Name what scored the words, where it is not today's default, and that `recommended` had none or a pass for them."""
    name, _, rest = named.partition(":")
    loss, default = record.get("loss") or {}, "pretrained" if name == "paser" else "embeddings"
    of_words = loss
    keywords = [keyword for keyword in rest.split(",") if keyword and not keyword.startswith("mlm_head=")]
    if name == "recommended":
        keywords = [keyword for keyword in keywords if not keyword.startswith("words=")]
        of_words = loss.get("words", {}).get("settings", {})
        bound = loss["balance"] if of_words else 0
        keywords = ([] if bound == 0.3 else [f"words={bound:g}"]) + keywords
        name += BEFORE_THAT * bool(bound and record["date"] < WORDS_SHARE_SINCE)
    elif name not in ("bag-of-words", "denosent", "paser") or loss.get("decoder_layers"):
        return named
    if of_words:
        # None was the encoder's own head, and a new one was left out where no layers stand before it.
        scored_by = {None: "pretrained", "fresh": "embeddings"}.get(of_words["mlm_head"], of_words["mlm_head"])
        keywords += [] if scored_by == default else [f"mlm_head={scored_by}"]
    return name + ":" * bool(keywords) + ",".join(keywords)


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
    return record["settings"].get("packed", False)


def grids_as_long(text: str, steps: int) -> list[list[dict]]:
    found = [
        records
        for records in all_grids(dev_only=False).values()
        if [records[0]["settings"][key] for key in ("encoder", "text", "steps")] == ["minilm-mlm", text, steps]
        and trained_of(records) == "all"
    ]
    return [merged(found)] if (text, steps) in IN_EITHER_PRECISION else found


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


def but_for_precision(records: list[dict]) -> str:
    """Return a grid's settings as a text, that of grids which differ in their precision alone."""
    return json.dumps(records[0]["settings"] | {"bf16": None}, sort_keys=True)


def made_in_both(grids: list[list[dict]]) -> list[tuple[dict, dict]]:
    """Return the trainings of grids that were made in float32 and in bfloat16, side by side."""
    cells = {(cell["settings"]["bf16"], cell["method"], cell["seed"]): cell for cell in itertools.chain(*grids)}
    return [
        (cell, cells[True, *which])
        for (bf16, *which), cell in cells.items()
        if not bf16 and cell["method"] != "raw" and (True, *which) in cells
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
    """Return cells beside the baseline's of the same seed, on the same machine where there are two."""
    found = {cell["seed"]: cell for cell in reversed(baseline)}  # the first
    near = {(cell["seed"], machine_of(cell)): cell for cell in reversed(baseline)}
    return [(cell, near.get((cell["seed"], machine_of(cell)), found[cell["seed"]])) for cell in cells if cell["seed"] in found]


def machine_of(cell: dict) -> tuple:
    """Return what a cell was computed by: the hardware, and the precision that its training had there."""
    return cell.get("hardware"), cell.get("settings", {}).get("bf16")


def score_of(cell: dict, key: str) -> float:
    return cell["dev"] if key == "dev" else cell["scores"][key]
