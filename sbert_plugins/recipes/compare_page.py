"""The page of a comparison: what its records say, in one HTML file."""

from __future__ import annotations

import html
import logging
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from sbert_plugins.recipes.output import updates_text
from sbert_plugins.recipes.provenance import mixed_versions, versions_of
from sbert_plugins.recipes.summary import BEYOND_CHANCE, Number, Summary, digits_of, shown, titled

logger = logging.getLogger(__name__)
Records = Mapping[str, Sequence[Mapping[str, Any]]]


def write_page(
    output: Path,
    start: Mapping[str, Any],
    records: Records,
    rows: Sequence[Summary],
    *,
    units: str = "sentences",
    test_sets: Sequence[str] = (),
) -> Path:
    """Write ``index.html`` from the records of a comparison, and return its path.

    Args:
        output: The directory.
        start: The record of the start.
        records: The records of the cells, by method.
        rows: Their numbers.
        units: What the rows of the text are called.
        test_sets: Names of the test sets among what is scored.
    """
    from sbert_plugins.recipes.pages import filled, page

    done = [cell for cell in _all(records) if "scores" in cell]
    body = filled(
        "sbert_plugins.recipes",
        "compare.html",
        what=html.escape(_what(start, records, units)),
        failed=_failed(rows),
        tests=f"<p>{html.escape(warning_of_tests(test_sets))}</p>",
        table=_table(start, rows),
        differences=_differences(start, rows),
        plots=_plots(start, records, rows),
        cells=_cells(start, records, rows),
        curves=_curves(done),
        neighbours=_neighbours(start, records),
        settings=_settings(start, records),
    )
    path = output / "index.html"
    path.write_text(page("Ways to train, compared", body), encoding="utf-8")
    return path


def warning_of_tests(test_sets: Sequence[str]) -> str:
    """Say what a test set is not for; nothing where there is none."""
    if not test_sets:
        return ""
    return (
        f"{', '.join(test_sets)} are test sets: a method that is chosen by them has been chosen by the test, and its score "
        "there is no measurement any more. Choose by STS-B dev or labels of your own."
    )


def _what(start: Mapping[str, Any], records: Records, units: str) -> str:
    cell = next(iter(records.values()))[0]
    seeds = list(dict.fromkeys(cell["seed"] for cell in _all(records)))
    text = start["text"]["name"] or "a dataset"
    chosen = f"the checkpoint that is best on {cell['selected_by']}" if cell["selected_by"] else "its last update"
    failed = sum("failed" in cell for cell in _all(records))
    of_them = f" {failed} of the trainings failed (below)." if failed else ""
    layers = f" ({start['layers']} layers)" if start.get("layers") and " layers)" not in start["encoder"]["name"] else ""
    return (
        f"{start['encoder']['name']}{layers}, {start['pooling']} pooling, on {cell['sentences']:,} {units} of {text}: "
        f"{len(records)} method{'s' * (len(records) > 1)}, {len(seeds)} seed{'s' * (len(seeds) > 1)} each, all from the same "
        f"start and, but for what the settings below show, in the same way. A training ends with {chosen}.{of_them}"
        + "".join(f" {note}" for note in [*start.get("notes", []), mixed_versions([start, *_all(records)])] if note)
    )


def _all(records: Records) -> list[Mapping[str, Any]]:
    return [cell for cells in records.values() for cell in cells]


def _failed(rows: Sequence[Summary]) -> str:
    lines = [
        f"<li>{html.escape(row.method)}, seed {seed}: {html.escape(reason)}</li>"
        for row in rows
        for seed, reason in row.failed.items()
    ]
    return f'<section class="failed">\n<h2>Failed</h2>\n<ul>{"".join(lines)}</ul>\n</section>' if lines else ""


def _table(start: Mapping[str, Any], rows: Sequence[Summary]) -> str:
    from sbert_plugins.recipes.pages import table_rows

    lines, marks = [["", "start", *(row.method for row in rows)]], []
    for title, value in start["scores"].items():
        numbers = [row.scores[title] for row in rows]
        means = [value, *(None if number is None else number.mean for number in numbers)]
        best = (min if title in start.get("lower", ()) else max)(mean for mean in means if mean is not None)
        is_directed = title not in start.get("undirected", ())
        marks.append(["best" if is_directed and mean == best else "" for mean in means])
        digits = digits_of(title, start, rows)
        lines.append([titled(title, start), *(shown(number, digits=digits) for number in (value, *numbers))])
    for title, cells in (
        ("seeds", [str(len(row.seeds)) for row in rows]),
        ("seconds of training", [shown(row.seconds, digits=1) for row in rows]),
    ):
        lines.append([title, "", *cells])
        marks.append([""] * (len(rows) + 1))
    return table_rows(lines, marks=marks)


def _differences(start: Mapping[str, Any], rows: Sequence[Summary]) -> str:
    from sbert_plugins.recipes.pages import table_rows

    if len(rows) < 2:
        return ""
    lines = [["", *(row.method for row in rows[1:])]]
    for title in rows[0].scores:
        digits = digits_of(title, start, rows)
        lines.append([titled(title, start), *(shown(row.differences[title], sign=True, digits=digits) for row in rows[1:])])
    first = html.escape(rows[0].method)
    note = (
        f"Score minus that of {first} with the same seed: mean and standard deviation of these differences. Above 0 is "
        f"better, but where a row says otherwise. {BEYOND_CHANCE}"
    )
    return _section("differences", f"Difference to {first}", table_rows(lines), note)


def _section(name: str, title: str, rows: str, note: str) -> str:
    """Return a table with its heading and what it is; all of it is HTML already."""
    table = f'<div class="wide"><table>\n{rows}\n</table></div>'
    return f'<section id="{name}">\n<h2>{title}</h2>\n{table}\n<p>{note}</p>\n</section>'


def _cells(start: Mapping[str, Any], records: Records, rows: Sequence[Summary]) -> str:
    from sbert_plugins.recipes.pages import table_rows

    titles = {title: digits_of(title, start, rows) for title in start["scores"]}
    lines = [["", "seed", *titles, "seconds", "updates", "rows"]]
    of_start = [shown(start["scores"][title], digits=digits) for title, digits in titles.items()]
    lines.append(["start", "", *of_start, "", "", ""])
    for method, cells in records.items():
        for cell in cells:
            if "scores" in cell:
                counts = [shown(cell["seconds"], digits=1), updates_text(cell), f"{cell['rows']:,}"]
                scores = [shown(cell["scores"][title], digits=digits) for title, digits in titles.items()]
            else:
                counts, scores = ["", "", ""], ["failed", *[""] * (len(titles) - 1)]
            lines.append([method, str(cell["seed"]), *scores, *counts])
    return table_rows(lines)


def _curves(done: Sequence[Mapping[str, Any]]) -> str:
    from sbert_plugins.recipes.pages import table_rows

    steps = sorted({point["step"] for cell in done for point in cell["curve"]})
    if not steps:
        return ""
    lines = [["", *map(str, steps)]]
    for cell in done:
        at = {point["step"]: point["STS-B dev"] for point in cell["curve"]}
        lines.append([f"{cell['name']}, seed {cell['seed']}", *(shown(at[step]) if step in at else "" for step in steps)])
    return _section("curves", "During training", table_rows(lines), "Scores on STS-B dev, by update.")


def _neighbours(start: Mapping[str, Any], records: Records) -> str:
    found = {"start": start["neighbours"]}
    for method, cells in records.items():  # as many as of the start: a comparison may go on with another number
        for cell in cells:
            if "scores" in cell and len(near := cell.get("neighbours", [])) == len(start["neighbours"]):
                found[f"{method}, seed {cell['seed']}"] = near
                break
    headings = "".join(f"<th>{html.escape(name)}</th>" for name in found)
    lines = [f"<tr><th>sentence</th>{headings}</tr>"]
    for place, row in enumerate(start["neighbours"]):
        before = {near["text"] for near in row["nearest"]}
        lists = "".join(f"<td><ol>{_nearest(rows[place]['nearest'], before)}</ol></td>" for rows in found.values())
        lines.append(f"<tr><th>{html.escape(row['sentence'])}</th>{lists}</tr>")
    return "\n".join(lines)


def _nearest(nearest: Sequence[Mapping[str, Any]], before: Container[str]) -> str:
    """Return neighbours as items of a list, those that are new marked."""
    marks = ["" if near["text"] in before else ' class="best"' for near in nearest]
    return "".join(
        f"<li{mark}>{html.escape(near['text'])} ({near['cosine']:.0f})</li>" for mark, near in zip(marks, nearest, strict=True)
    )


def _settings(start: Mapping[str, Any], records: Records) -> str:
    """Return the settings of each method, and where all of it was made."""
    from sbert_plugins.recipes.pages import table_rows

    firsts = [cells[0] for cells in records.values()]
    lines = [["", *records]]
    settings = [cell["settings"] | {"pooling": start["pooling"]} for cell in firsts]  # the encoder's own, if it has one
    lines += [[key, *(_setting(key, values) for values in settings)] for key in settings[0]]
    lines.append(["keywords of the loss", *(_words(cell["loss_keywords"]) for cell in firsts)])
    lines.append(["mixed precision", *(_word(cell["bf16"]) for cell in firsts)])
    for key in ("commit", "hardware", "threads"):
        lines.append([key, *(", ".join(dict.fromkeys(_word(cell[key]) for cell in cells)) for cells in records.values())])
    made = [versions_of(cells) for cells in records.values()]
    packages = dict.fromkeys(package for versions in made for package in versions)
    lines += [[package, *(versions.get(package, "unknown") for versions in made)] for package in packages]
    text, encoder = start["text"], start["encoder"]
    lines.append(["text, and a hash of it", *[f"{text['name'] or 'a dataset'}, {text['sha256']}"] * len(firsts)])
    lines.append(["encoder, and a hash of its weights", *[f"{encoder['name']}, {encoder['sha256']}"] * len(firsts)])
    return table_rows(lines)


def _setting(key: str, settings: Mapping[str, Any]) -> str:
    if key == "epochs" and settings["max_steps"] > 0:
        return "as many as max_steps takes"
    return "by epochs" if key == "max_steps" and settings[key] < 0 else _word(settings[key])


def _word(value: Any) -> str:
    return {None: "none", True: "yes", False: "no"}[value] if value is None or isinstance(value, bool) else str(value)


def _words(keywords: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in keywords.items()) or "its defaults"


def _plots(start: Mapping[str, Any], records: Records, rows: Sequence[Summary]) -> str:
    """Return the plots; a line on how to have them where matplotlib is not installed."""
    from sbert_plugins.recipes.pages import drawing, figure_section, png

    try:
        draw = drawing()
    except ModuleNotFoundError as error:
        logger.warning("The page has no plots: %s", error)
        return f"<p>Without plots: {html.escape(str(error))}</p>"
    means = {row.method: _means(row.scores) for row in rows}
    bars = {name: scores for name, scores in {"start": dict(start["scores"]), **means}.items() if scores}
    figures = []
    if len(bars) > 1:
        caption = "Means over the seeds. The dashed line is the start, the numbers are the distance to it."
        figures.append(("bars", "Start and methods", caption, draw.sts_bars(bars, measure="score")))
    for place, (method, cells) in enumerate(records.items()):
        shows = next((cell for cell in cells if "scores" in cell), cells[0])
        curves = draw.learning_curves(shows.get("log", []))
        if curves is not None:
            caption = f"What the training with seed {shows['seed']} logged by update, evaluations in orange."
            figures.append((f"learning_{place}", f"Learning curves of {method}", caption, curves))
    return "\n".join(figure_section(*figure, png(figure[-1])) for figure in figures)


def _means(scores: Mapping[str, Number | None]) -> dict[str, float]:
    return {title: number.mean for title, number in scores.items() if number is not None}
