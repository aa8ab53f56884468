"""HTML pages: the builder that all pages share, and the report on the scores of models."""

from __future__ import annotations

import importlib.util
import io
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from .score import Scores, format_score, judge_all, name_similarity, summarize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PACKAGES = ("sbert-plugins", "sentence-transformers", "transformers", "torch")
INK = "#123456"  # replaced by the text colour of the page
# The colours of Okabe and Ito, which colour-blind readers can distinguish. The first model is grey.
_COLOURS = ("#8a96a0", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
_BARS = (
    "Bars span two standard errors on each side, over the pairs, texts or queries. A verdict compares two "
    "models on the same labels, so it can be clear although the bars overlap."
)
_TABLE = (
    "Spearman, purity, v-measure, nDCG, MAP and MRR are multiplied by 100. ± is the standard error over the "
    "pairs, texts or queries. It is not known for scores without it."
)
_NOT_LOGGED = re.compile("^(epoch|step|learning_rate|grad_norm|total_flos)$|_runtime$|_per_second$")


@dataclass(frozen=True)
class Section:
    """A section of a page. Only the parts that are given are shown, in the order of the fields.

    All texts are escaped, except for ``markupsafe.Markup``.

    Attributes:
        title: The heading.
        paragraphs: Paragraphs of text.
        points: Bullet points.
        columns: The head of a table. The table scrolls sideways on a narrow screen.
        rows: The rows of the table. The first cell is the name of the row and stays in sight.
        best: Places (row, column) of the cells in bold. Row 0 follows the head, column 0 holds the names.
        is_text: Whether the cells are words rather than numbers: aligned to the left, with line breaks.
        figure: A matplotlib figure, shown as inline SVG.
        caption: A remark below.
    """

    title: str
    paragraphs: Sequence[str] = ()
    points: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    best: Collection[tuple[int, int]] = ()
    is_text: bool = False
    figure: Figure | None = None
    caption: str = ""

    def image(self) -> Markup:
        """Return the figure as HTML, with the text of ``new_figure`` in the text colour of the page."""
        buffer = io.StringIO()
        self.figure.savefig(buffer, format="svg", transparent=True)  # type: ignore[union-attr]
        svg = buffer.getvalue()
        return Markup(svg[svg.index("<svg") :].replace(INK, "currentColor"))


def render_page(title: str, headline: str, sections: Sequence[Section], *, footer: str = "") -> str:
    """Return an HTML page that needs no other file, is readable on a phone, and has a dark mode.

    Args:
        title: The title.
        headline: The result in one sentence.
        sections: The content.
        footer: A sentence before the date and the versions.

    Example:
        >>> from sbert_plugins import evaluation
        >>> rows = [["pairs", "62.1", "78.3"]]
        >>> table = evaluation.Section("Scores", columns=["", "before", "after"], rows=rows, best={(0, 2)})
        >>> page = evaluation.render_page("My model", "+16.2 points on average", [table])
    """
    loader = FileSystemLoader(Path(__file__).parent)
    template = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True).get_template(
        "page.html"
    )
    versions = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    footer = f"{footer} {datetime.now(UTC).date().isoformat()}; {versions}"
    return template.render(title=title, headline=headline, sections=sections, footer=footer)


def write_report(
    models: Mapping[str, Scores],
    directory: str | Path,
    *,
    facts: Mapping[str, Mapping[str, str]] | None = None,
    logs: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> Path:
    """Write ``index.html``, a page that needs no other file, and the numbers as ``report.json``.

    The page begins with the verdicts on the differences from the first model (``judge``). Figures need the
    extra ``plot``.

    Args:
        models: The scores of each model (``measure``) by the name that the page shows. The others are
            compared with the first.
        directory: A folder, created if needed. An earlier report in it is replaced.
        facts: Facts about models by name, such as ``{"mine": {"pooling": "mean", "updates": "400"}}``.
        logs: Histories of trainings by name, ``trainer.state.log_history``.

    Returns:
        The path of the page.

    Raises:
        FileExistsError: If the folder holds another page.

    Example:
        >>> from sbert_plugins import evaluation, recipes
        >>> pairs = evaluation.PairsEvaluator(recipes.graded_pairs(), name="graded pairs")
        >>> page = evaluation.write_report({"my model": evaluation.measure(model, [pairs])}, "report")
    """
    page, numbers = Path(directory) / "index.html", Path(directory) / "report.json"
    if page.exists() and not numbers.exists():
        raise FileExistsError(f"{page} is not the page of an earlier report. Choose another folder.")
    facts, (baseline, start) = facts or {}, next(iter(models.items()))
    changes = {
        name: judge_all(start, scores, against=baseline)
        for name, scores in models.items()
        if name != baseline
    }
    sections = [
        Section(f"{name} compared with {baseline}", points=[change.sentence for change in each])
        for name, each in changes.items()
    ]
    if importlib.util.find_spec("matplotlib"):
        bars = {
            name: {
                f"{score.name}: {score.metric}": (score.value, 2 * (score.error or 0.0))
                for score in scores.values()
            }
            for name, scores in models.items()
        }
        sections.append(Section("Scores", figure=plot_scores(bars), caption=_BARS))
    else:
        sections.append(Section("Figures", ['Figures need matplotlib: pip install "sbert-plugins[plot]"']))
    sections.append(_score_table(models))
    curves = {name: plot_learning_curves(log) for name, log in (logs or {}).items()}
    sections += [
        Section(f"Training of {name}", figure=figure, caption="What the training logged, by update.")
        for name, figure in curves.items()
        if figure
    ]
    if keys := list(dict.fromkeys(key for each in facts.values() for key in each)):
        rows = [[key, *(facts.get(name, {}).get(key, "") for name in models)] for key in keys]
        sections.append(Section("Models", columns=["", *models], rows=rows, is_text=True))
    content = {
        name: {
            "scores": {key: score.to_dict() for key, score in scores.items()},
            "changes": [asdict(change) for change in changes.get(name, [])],
            "facts": dict(facts.get(name, {})),
        }
        for name, scores in models.items()
    }
    page.parent.mkdir(parents=True, exist_ok=True)
    numbers.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    values = "; ".join(f"{one.name}: {one.metric} {format_score(one.value)}" for one in start.values())
    headline = " ".join(summarize(name, each) for name, each in changes.items()) or f"{baseline}: {values}."
    page.write_text(render_page("Evaluation of sentence embeddings", headline, sections), encoding="utf-8")
    return page


def _score_table(models: Mapping[str, Scores]) -> Section:
    rows: list[list[str]] = []
    best: set[tuple[int, int]] = set()
    first, *_ = models.values()
    for name, score in first.items():
        for title in score.values:
            values = [scores[name].values[title] for scores in models.values()]
            if score.higher_is_better and len(values) > 1 and "deviation" not in title:
                best |= {(len(rows), place) for place, one in enumerate(values, 1) if one == max(values)}
            errors = [
                "" if title != score.metric or (error := scores[name].error) is None else f" ± {error:.2f}"
                for scores in models.values()
            ]
            cells = [f"{format_score(one)}{error}" for one, error in zip(values, errors, strict=True)]
            rows.append([f"{name}: {title}", *cells])
    collapsed = [
        f"{name} has collapsed: all its embeddings are nearly the same."
        for name, scores in models.items()
        # -0.4 is the uniformity if two random sentences have a cosine of 0.9.
        if any(score.values.get("uniformity", -math.inf) > -0.4 for score in scores.values())
    ]
    notes = dict.fromkeys(score.note for score in first.values() if score.note)
    notes |= dict.fromkeys(name_similarity(name, scores) for name, scores in models.items())
    bold = ["The best score of a row is bold."] if best else []
    caption = " ".join(filter(None, [_TABLE, *bold, *notes, *collapsed]))
    return Section("All scores", columns=["", *models], rows=rows, best=best, caption=caption)


def new_figure(height: float, titles: Sequence[str] = ("",)) -> tuple[Figure, list[Axes]]:
    """Return a matplotlib figure that fits a phone, and its axes.

    Args:
        height: Height of a row of panels in inches. The figure is 5.2 inches wide.
        titles: Titles of the panels. There are two in a row.
    """
    from matplotlib.figure import Figure

    columns = min(len(titles), 2)
    rows = -(-len(titles) // columns)
    figure = Figure(figsize=(5.2, height * rows), layout="constrained")
    axes = [figure.add_subplot(rows, columns, place) for place in range(1, len(titles) + 1)]
    for panel, title in zip(axes, titles, strict=True):
        panel.set_title(title, loc="left", fontsize=10.5, color=INK, parse_math=False)
        panel.spines[["top", "right"]].set_visible(False)
        panel.spines[["left", "bottom"]].set_color(INK)
        panel.tick_params(colors=INK, labelsize=10.5)
        panel.grid(color=_COLOURS[0], alpha=0.3)
        panel.set_axisbelow(True)
    return figure, axes


def plot_scores(scores: Mapping[str, Mapping[str, tuple[float, float]]]) -> Figure:
    """Draw one row per score and one point with an error bar per model.

    Args:
        scores: Scores with half of the length of their error bars, by model and title. The first model is
            grey.
    """
    titles = list(next(iter(scores.values())))
    figure, (axes,) = new_figure(0.6 + 0.24 * len(scores) + 0.42 * len(titles))
    for place, (model, rows) in enumerate(scores.items()):
        points, errors = np.array([rows[title] for title in titles]).T
        heights = np.arange(len(titles)) + 0.6 * ((place + 0.5) / len(scores) - 0.5)
        colour = _COLOURS[place % len(_COLOURS)]
        axes.errorbar(points, heights, xerr=errors, fmt="o", ms=4, color=colour, label=model)
    axes.set_yticks(range(len(titles)), [title.replace(": ", ":\n") for title in titles])
    axes.set_ylim(len(titles) - 0.5, -0.5)
    figure.legend(loc="outside upper left", frameon=False, fontsize=10.5, labelcolor=INK)
    return figure


def plot_learning_curves(log: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Draw one panel per quantity that a training logged at least twice. Return None if there is none.

    Args:
        log: The history of the training, ``trainer.state.log_history``.
    """
    keys = dict.fromkeys(key for entry in log for key in entry if not _NOT_LOGGED.search(key))
    curves = {key: np.array([(entry["step"], entry[key]) for entry in log if key in entry]) for key in keys}
    curves = {key: points for key, points in curves.items() if len(points) > 1}
    if not curves:
        return None
    figure, panels = new_figure(1.7, list(curves))
    for axes, points in zip(panels, curves.values(), strict=True):
        axes.plot(*points.T, color=_COLOURS[1], marker="o", ms=3)
    return figure
