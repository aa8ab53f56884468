"""HTML pages: the builder that all pages share, and the report on the scores of models."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator

from .encoding import EmbeddingEvaluator, encode_once, evaluate, named
from .geometry import AlignmentUniformityEvaluator
from .label_free import LabelFreeEvaluator
from .retrieval import RetrievalEvaluator
from .sts import ScoredPairs, pair_cosines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PACKAGES = ("sbert-plugins", "sentence-transformers", "transformers", "torch")
_INK = "#123456"  # replaced by the text colour of the page
# The colours of Okabe and Ito, which colour-blind readers can distinguish. The first model is grey.
_COLOURS = ("#8a96a0", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
_SAMPLES = 300
_CAPTION = (
    "Better and worse mean that the 95% interval of the difference excludes 0. Higher and lower are used "
    "where there is no error estimate."
)
_TWO_SIDED = " Lower is better for both, but neither decides alone."
_SMALL = 0.5  # points; smaller differences without an interval count as none
_COLLAPSED = -0.4  # uniformity if two random sentences have a cosine of 0.9
_RETRIEVAL = {"cosine_ndcg@10": "nDCG@10", "cosine_map@100": "MAP@100", "cosine_mrr@10": "MRR@10"}
_TITLES = {"spearman": "Spearman", "v_measure": "v-measure", "label_free": "score without labels"}
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
        figure: A matplotlib figure, shown as inline SVG, or the bytes of a PNG file.
        caption: A remark below.
    """

    title: str
    paragraphs: Sequence[str] = ()
    points: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    best: Collection[tuple[int, int]] = ()
    is_text: bool = False
    figure: Figure | bytes | None = None
    caption: str = ""

    def image(self) -> Markup:
        """Return the figure as HTML, with the text of ``new_figure`` in the text colour of the page."""
        if isinstance(self.figure, bytes):
            data = base64.b64encode(self.figure).decode()
            return Markup('<img alt="{}" src="data:image/png;base64,{}">').format(self.title, data)
        import matplotlib

        buffer = io.StringIO()
        with matplotlib.rc_context({"svg.hashsalt": self.title}):
            self.figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})  # type: ignore[union-attr]
        svg = buffer.getvalue()
        return Markup(svg[svg.index("<svg") :].replace(_INK, "currentColor"))


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


@dataclass(frozen=True)
class EvaluatorScores:
    """The scores of one model by one evaluator, as a report shows them.

    Attributes:
        kind: A description of the evaluator.
        values: Scores by title, the main score first.
        samples: The scores of 300 bootstrap samples of the pairs by title, for evaluators of graded pairs.
        in_points: Whether the scores are multiplied by 100 and higher is better. If not, they are only shown.
        is_averaged: Whether the main score counts for the average in the headline.
        note: A sentence that readers need to compare the scores with others.
    """

    kind: str
    values: Mapping[str, float]
    samples: Mapping[str, np.ndarray]
    in_points: bool
    is_averaged: bool
    note: str

    @property
    def main(self) -> str:
        """The title of the main score."""
        return next(iter(self.values))

    def interval(self, title: str) -> tuple[float, float, float]:
        """Return a score and its 95% interval, which is the score itself if there are no samples."""
        low, high = np.percentile(self.samples.get(title, self.values[title]), [2.5, 97.5])
        return self.values[title], float(low), float(high)


@dataclass(frozen=True)
class ModelScores:
    """The content of a report on one model, made by ``score_model``."""

    name: str
    scores: Mapping[str, EvaluatorScores]  # by the evaluator's name
    log: Sequence[Mapping[str, Any]]
    origin: Mapping[str, str]


def score_model(
    model: SentenceTransformer,
    evaluators: Sequence[BaseEvaluator],
    *,
    name: str,
    log: Sequence[Mapping[str, Any]] = (),
    origin: Mapping[str, str] | None = None,
) -> ModelScores:
    """Score a model for ``write_report``. Each text is encoded once.

    Args:
        model: The model.
        evaluators: Evaluators with different names, the same ones for all models of a report.
        name: The name of the model in the report.
        log: The history of its training, ``trainer.state.log_history``.
        origin: Facts about the model, such as ``{"pooling": "mean", "updates": "400"}``.
    """
    scores: dict[str, EvaluatorScores] = {}
    with encode_once(model):
        metrics = evaluate(model, evaluators)
        for key, evaluator in named(evaluators).items():
            pairs: Any = getattr(evaluator, "pairs", {})
            samples = {}
            for task, graded in ({"Spearman": pairs} if isinstance(pairs, ScoredPairs) else pairs).items():
                cosines = pair_cosines(evaluator.encoder(model), graded)  # type: ignore[attr-defined]
                samples[task] = bootstrap_spearman(cosines, graded.scores)
            if isinstance(pairs, dict) and samples:
                samples["average"] = np.mean(list(samples.values()), axis=0)
            in_points = isinstance(evaluator, (EmbeddingEvaluator, RetrievalEvaluator)) and not isinstance(
                evaluator, AlignmentUniformityEvaluator
            )
            scores[key] = EvaluatorScores(
                kind=evaluator.description,
                values=titled_scores(evaluator, metrics[key]),
                samples=samples,
                in_points=in_points,
                is_averaged=in_points and not isinstance(evaluator, LabelFreeEvaluator),
                note=getattr(evaluator, "note", ""),
            )
    return ModelScores(name, scores, log, origin or {})


def titled_scores(evaluator: BaseEvaluator, metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the scores of ``evaluate`` that a table shows, by title. The main score comes first.

    Scores of retrieval are multiplied by 100. Of an evaluator from elsewhere only the main score is shown.
    """
    if isinstance(evaluator, RetrievalEvaluator):
        return {title: 100 * metrics[key] for key, title in _RETRIEVAL.items()}
    main = evaluator.primary_metric or next(iter(metrics))
    main = main.removeprefix(f"{getattr(evaluator, 'name', '')}_")
    shown = (
        [main, *(key for key in metrics if key != main)]
        if isinstance(evaluator, EmbeddingEvaluator)
        else [main]
    )
    return {"average" if key.startswith("avg") else _TITLES.get(key, key): metrics[key] for key in shown}


def bootstrap_spearman(cosines: np.ndarray, grades: Sequence[float], *, seed: int = 0) -> np.ndarray:
    """Return the Spearman correlation, times 100, of 300 bootstrap samples of the pairs.

    The samples depend only on the number of pairs and the seed. The differences of two models on the same
    pairs are therefore differences on the same samples.
    """
    draw, values = np.random.default_rng(seed), np.asarray(grades)
    rows = (draw.integers(len(values), size=len(values)) for _ in range(_SAMPLES))
    return np.nan_to_num([100 * spearmanr(cosines[row], values[row]).statistic for row in rows])


def write_report(models: Sequence[ModelScores], directory: str | Path) -> Path:
    """Write ``index.html``, a page that needs no other file, and the numbers as ``report.json``.

    The page begins with the difference between the best other model and the first. Error bars are 95%
    intervals over bootstrap samples of the pairs. Figures need the extra ``plot``.

    Args:
        models: From ``score_model``. The others are compared with the first.
        directory: A folder, created if needed. An earlier report in it is replaced.

    Returns:
        The path of the page.

    Raises:
        FileExistsError: If the folder holds another page.
        ValueError: If two models have the same name.

    Example:
        >>> from sbert_plugins import evaluation, recipes
        >>> pairs = evaluation.PairsEvaluator(recipes.graded_pairs(), name="graded pairs")
        >>> scores = evaluation.score_model(model, [pairs], name="my model")
        >>> page = evaluation.write_report([scores], "report")
    """
    page, numbers = Path(directory) / "index.html", Path(directory) / "report.json"
    if page.exists() and not numbers.exists():
        raise FileExistsError(f"{page} is not the page of an earlier report. Choose another folder.")
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        raise ValueError(f"Each model needs a name of its own, got {names}.")
    sections = []
    for model in models[1:]:
        title = f"{model.name} compared with {names[0]}"
        sections.append(Section(title, points=_verdicts(models[0], model), caption=_CAPTION))
    sections.append(_score_table(models))
    if importlib.util.find_spec("matplotlib"):
        sections[-1:-1] = _score_figure(models)
        curves = [(model.name, plot_learning_curves(model.log)) for model in models]
        caption = "What the training logged, by update."
        sections += [
            Section(f"Training of {name}", figure=each, caption=caption) for name, each in curves if each
        ]
    else:
        sections.append(Section("Figures", ['Figures need matplotlib: pip install "sbert-plugins[plot]"']))
    if facts := list(dict.fromkeys(fact for model in models for fact in model.origin)):
        rows = [[fact, *(model.origin.get(fact, "") for model in models)] for fact in facts]
        sections.append(Section("Models", columns=["", *names], rows=rows, is_text=True))
    content = {
        model.name: {
            "scores": {name: dict(each.values) for name, each in model.scores.items()},
            "intervals": {
                name: {title: each.interval(title)[1:] for title in each.samples}
                for name, each in model.scores.items()
            },
            "origin": dict(model.origin),
        }
        for model in models
    }
    page.parent.mkdir(parents=True, exist_ok=True)
    numbers.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    page.write_text(
        render_page("Evaluation of sentence embeddings", _headline(models), sections), encoding="utf-8"
    )
    return page


def _headline(models: Sequence[ModelScores]) -> str:
    def average(model: ModelScores) -> tuple[float, np.ndarray | None]:
        groups = [model.scores[name] for name in counted]
        samples = [group.samples[group.main] for group in groups if group.main in group.samples]
        mean = float(np.mean([group.values[group.main] for group in groups]))
        return mean, np.mean(samples, axis=0) if len(samples) == len(groups) else None

    first, *others = models
    counted = [name for name, group in first.scores.items() if group.is_averaged] or list(first.scores)[:1]
    single = "average" if first.scores[counted[0]].main == "average" else counted[0]
    over = f"on average over {len(counted)} scores" if len(counted) > 1 else f"on {single}"
    if not others:
        return f"{first.name}: {average(first)[0]:.1f} points {over}."
    best = max(others, key=lambda model: average(model)[0])
    name = best.name + (f", the best of {len(others)} models" if len(others) > 1 else "")
    (before, old), (after, new) = average(first), average(best)
    change, values, _ = _compared(before, after, old, new)
    return f"{name}: {change} points {over} compared with {first.name} ({values})."


def _compared(
    before: float, after: float, old: np.ndarray | None, new: np.ndarray | None
) -> tuple[str, str, str]:
    """Return the change, the values and a verdict, which uses the bootstrap samples if there are any."""
    change, values = after - before, f"{after:.1f} instead of {before:.1f}"
    if old is None or new is None:
        word = "about the same" if abs(change) < _SMALL else "higher" if change > 0 else "lower"
    else:
        low, high = np.percentile(new - old, [2.5, 97.5])
        values += f"; 95% interval {low:+.1f} to {high:+.1f}"
        word = "better" if low > 0 else "worse" if high < 0 else "no clear difference"
    return f"{change:+.1f}", values, word


def _verdicts(first: ModelScores, model: ModelScores) -> list[str]:
    """Return a sentence per evaluator on the difference between two models."""
    sentences = []
    for name, new in model.scores.items():
        old, main = first.scores[name], new.main
        if new.in_points:
            samples = old.samples.get(main), new.samples.get(main)
            change, values, word = _compared(old.values[main], new.values[main], *samples)
            text = f"{word}, {change} {main} ({values})."
        else:
            values = ", ".join(
                f"{key} {value:.3f} instead of {old.values[key]:.3f}" for key, value in new.values.items()
            )
            text = f"{values}." + _TWO_SIDED * ("uniformity" in new.values)
        sentences.append(f"{new.kind} ({name}): {text}")
    return sentences


def _score_table(models: Sequence[ModelScores]) -> Section:
    rows: list[list[str]] = []
    best: set[tuple[int, int]] = set()
    for name, group in models[0].scores.items():
        for title in group.values:
            cells = [model.scores[name].interval(title) for model in models]
            if group.in_points and len(models) > 1:
                best |= {
                    (len(rows), place) for place, cell in enumerate(cells, start=1) if cell == max(cells)
                }
            digits = 2 if group.in_points else 3
            texts = (
                f"{value:.{digits}f}" + (f" ±{(high - low) / 2:.1f}" if high > low else "")
                for value, low, high in cells
            )
            rows.append([f"{name}: {title}", *texts])
    collapsed = [
        f"{model.name} has collapsed: all its embeddings are nearly the same."
        for model in models
        if any(group.values.get("uniformity", -np.inf) > _COLLAPSED for group in model.scores.values())
    ]
    caption = [
        "Spearman, v-measure, purity, nDCG, MAP and MRR are multiplied by 100. ± is half of the 95% interval "
        "over 300 bootstrap samples of the pairs. Other scores have no error estimate.",
        *(["The best score of a row is bold."] if best else []),
        *dict.fromkeys(group.note for group in models[0].scores.values() if group.note),
        *collapsed,
    ]
    columns = ["", *(model.name for model in models)]
    return Section("All scores", columns=columns, rows=rows, best=best, caption=" ".join(caption))


def _score_figure(models: Sequence[ModelScores]) -> list[Section]:
    points = {
        model.name: {
            f"{name}: {title}": group.interval(title)
            for name, group in model.scores.items()
            if group.is_averaged
            for title in group.values
        }
        for model in models
    }
    caption = "Points are scores, bars 95% intervals over bootstrap samples of the pairs."
    return [Section("Scores", figure=plot_scores(points), caption=caption)] if points[models[0].name] else []


def new_figure(height: float, panels: tuple[int, int] = (1, 1)) -> tuple[Figure, list[Axes]]:
    """Return a matplotlib figure that fits a phone (5.2 inches wide), and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, height), layout="constrained")
    axes = list(figure.subplots(*panels, squeeze=False).flat)
    for panel in axes:
        panel.spines[["top", "right"]].set_visible(False)
        panel.spines[["left", "bottom"]].set_color(_INK)
        panel.tick_params(colors=_INK, labelsize=9)
        panel.grid(color=_COLOURS[0], alpha=0.3)
        panel.set_axisbelow(True)
    return figure, axes


def plot_scores(scores: Mapping[str, Mapping[str, tuple[float, float, float]]]) -> Figure:
    """Draw one row per score and one point with an error bar per model.

    Args:
        scores: Scores with the lower and the upper end of their error bars, by model and title. The first
            model is grey.
    """
    titles = list(next(iter(scores.values())))
    figure, (axes,) = new_figure(0.5 + 0.22 * len(scores) + 0.3 * len(titles))
    for place, (model, rows) in enumerate(scores.items()):
        points, low, high = np.array([rows[title] for title in titles]).T
        heights = np.arange(len(titles)) + 0.6 * ((place + 0.5) / len(scores) - 0.5)
        errors = np.maximum([points - low, high - points], 0)
        colour = _COLOURS[place % len(_COLOURS)]
        axes.errorbar(points, heights, xerr=errors, fmt="o", ms=4, color=colour, label=_plain(model))
    axes.set_yticks(range(len(titles)), [_plain(title) for title in titles])
    axes.invert_yaxis()
    figure.legend(loc="outside upper left", frameon=False, fontsize=9, labelcolor=_INK)
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
    figure, panels = new_figure(1.7 * -(-len(curves) // 2), (-(-len(curves) // 2), 2))
    for axes, (key, points) in zip(panels, curves.items(), strict=False):
        axes.plot(*points.T, color=_COLOURS[1], marker="o", ms=3)
        axes.set_title(_plain(key), loc="left", fontsize=9, color=_INK)
    for axes in panels[len(curves) :]:
        axes.remove()
    return figure


def _plain(name: str) -> str:
    """Return a name that matplotlib does not read as a formula and does not omit from the legend."""
    return ("\u200b" if name.startswith("_") else "") + name.replace("$", r"\$")
