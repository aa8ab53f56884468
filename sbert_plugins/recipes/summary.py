"""The numbers of a comparison: each is computed here, once, and table and page show it with one function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple


class Number(NamedTuple):
    """A mean over seeds, the standard deviation (with n - 1), None of one seed, and how many seeds it is of."""

    mean: float
    deviation: float | None
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Number | None:
        """Return the number of some values; None of none."""
        return cls(fmean(values), stdev(values) if len(values) > 1 else None, len(values)) if values else None

    def is_beyond_chance(self) -> bool:
        """Whether the 95 % interval of the mean leaves 0 out, by Student's t; of one seed nothing is known."""
        if self.deviation is None:
            return False
        from scipy.stats import t

        return abs(self.mean) > t.ppf(0.975, self.seeds - 1) * self.deviation / self.seeds**0.5


# Said wherever differences are shown.
BEYOND_CHANCE = (
    "* beyond chance: the 95 % interval of the mean difference, by Student's t over its seeds, leaves 0 out, as it does for "
    "one of twenty differences without an effect. One seed tells nothing of chance, two or three only of large effects."
)


class Summary(NamedTuple):
    """A method over its seeds; ``differences`` are to the first method, seed by seed."""

    method: str
    seeds: list[int]
    scores: dict[str, Number | None]
    differences: dict[str, Number | None]
    seconds: Number | None
    failed: dict[int, str]  # seed -> why


def summarise(records: Mapping[str, Sequence[Mapping[str, Any]]], titles: Sequence[str]) -> list[Summary]:
    """Return a row for each method.

    Args:
        records: By method, the first being what the others are compared with: a record for each seed.
        titles: Of the scores.
    """
    first = _by_seed(next(iter(records.values())))
    rows = []
    for place, (method, cells) in enumerate(records.items()):
        done = _by_seed(cells)
        paired = [seed for seed in done if seed in first] if place else []
        rows.append(
            Summary(
                method=method,
                seeds=list(done),
                scores={title: Number.of([scores[title] for scores in done.values()]) for title in titles},
                differences={
                    title: Number.of([done[seed][title] - first[seed][title] for seed in paired]) for title in titles
                },
                seconds=Number.of([cell["seconds"] for cell in cells if cell.get("seconds") is not None]),
                failed={cell["seed"]: cell["failed"] for cell in cells if "failed" in cell},
            )
        )
    return rows


def shown(number: Number | float | None, *, sign: bool = False, digits: int = 2) -> str:
    """Return a number as table and page have it, the deviation behind it; a difference, ``sign``, with its star."""
    if number is None:
        return "none"
    value = number if isinstance(number, Number) else Number(number, None, 1)
    mean = round(value.mean, digits) + 0.0  # no -0.00
    text = f"{mean:+.{digits}f}" if sign else f"{mean:.{digits}f}"
    spread = "" if value.deviation is None else f" ± {value.deviation:.{digits}f}"
    has_star = sign and mean and value.is_beyond_chance()  # a shown 0 has none: equal scores differ by noise of float
    return f"{text}{spread}{' *' if has_star else ''}"


def digits_of(title: str, start: Mapping[str, Any], rows: Sequence[Summary]) -> int:
    """Return the digits of a score: four of what is not x 100, as no distance is, nor what stays within -1 and 1; else two."""
    if title in (*start.get("lower", ()), *start.get("undirected", ())):
        return 4
    values = [start["scores"][title], *(number.mean for row in rows if (number := row.scores[title]))]
    return 4 if 0 < max((abs(value) for value in values if value is not None), default=0) <= 1 else 2


def titled(title: str, start: Mapping[str, Any]) -> str:
    """Return a score's title, with what is better where that is not the higher."""
    if title in start.get("undirected", ()):
        return f"{title} (neither is better)"
    return f"{title} (lower is better)" if title in start.get("lower", ()) else title


def printed(rows: Sequence[Summary], start: Mapping[str, Any]) -> list[list[str]]:
    """Return the table that is printed: the start, then a line for each method, with its difference to the first.

    Args:
        rows: The numbers.
        start: The record of the start, which names the main scores.
    """
    first, digits = rows[0].method, {title: digits_of(title, start, rows) for title in start["main"]}
    heading = ["", "seeds"]
    for title in digits:
        heading += [titled(title, start), f"minus {first}"] if len(rows) > 1 else [titled(title, start)]
    of_start = [shown(start["scores"][title], digits=count) for title, count in digits.items()]
    lines = [heading, ["start", "", *_spread(of_start, [""] * len(digits), len(rows) > 1)]]
    for row in rows:
        scores = [shown(row.scores[title], digits=count) for title, count in digits.items()]
        gaps = [
            shown(row.differences[title], sign=True, digits=count) if row.method != first else ""
            for title, count in digits.items()
        ]
        lines.append([row.method, str(len(row.seeds)), *_spread(scores, gaps, len(rows) > 1)])
    return [[*line, seconds] for line, seconds in zip(lines, _seconds(rows), strict=True)]


def _seconds(rows: Sequence[Summary]) -> list[str]:
    return ["seconds", "", *(shown(row.seconds, digits=1) for row in rows)]


def _spread(first: Sequence[str], second: Sequence[str], both: bool) -> list[str]:
    return [cell for pair in zip(first, second, strict=True) for cell in pair] if both else list(first)


def _by_seed(cells: Sequence[Mapping[str, Any]]) -> dict[int, dict[str, float]]:
    return {cell["seed"]: cell["scores"] for cell in cells if "scores" in cell}
