"""The figures of the report, drawn by matplotlib: numbers in, a ``Figure`` out. Nothing here encodes or scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

INK, FAINT = "#22303c", "#9aa5ae"
# Okabe and Ito's colours, which the colour-blind tell apart, without their yellow; the baseline has grey.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
_SKIPPED = ("epoch", "step", "grad_norm", "learning_rate", "total_flos")
_TIMES = ("_runtime", "_per_second", "_samples")


class Map(NamedTuple):
    """Points in the plane, (N, 2), and how often the token of each occurs (for a sentence: its tokens on average)."""

    points: np.ndarray
    counts: np.ndarray


def sts_bars(scores: Mapping[str, Mapping[str, float]], *, measure: str = "Spearman x 100") -> Figure:
    """Bars per task and model; the first model is the baseline, a line across its task, and others show the distance.

    Args:
        scores: Scores by model and task. The axis ends at 100, or above the highest of them where that is more or the
            bars are narrow, over which distances stand upright.
        measure: What they are.
    """
    names, tasks = list(scores), list(next(iter(scores.values())))
    bars, rows = len(names) * len(tasks), -(-len(names) // 3)
    figure, (axes,) = _figure(1, 1, width=max(11, 0.14 * bars), height=4 + 0.2 * rows)
    width, is_narrow = 0.82 / len(names), bars > 30
    for place, name in enumerate(names):
        left = np.arange(len(tasks)) - 0.41 + place * width
        heights = np.array([scores[name][task] for task in tasks])
        axes.bar(left, heights, width * 0.92, align="edge", color=_colour(place, len(names)), label=_plain(name),
                 hatch=_hatch(place), edgecolor="white", linewidth=0)  # fmt: skip
        if place:
            for x, height, task in zip(left, heights, tasks, strict=True):
                base = scores[names[0]][task]
                place_of_text = (x + width / 2, max(height, base, 0))
                axes.annotate(f"{height - base:+.1f}", place_of_text, (0, 3), textcoords="offset points", ha="center",
                              fontsize=8, color=INK, rotation=90 if is_narrow else 0)  # fmt: skip
    if len(names) > 1:
        bases = [scores[names[0]][task] for task in tasks]
        axes.hlines(bases, np.arange(len(tasks)) - 0.44, np.arange(len(tasks)) + 0.44, color=INK, lw=1, ls=(0, (3, 2)))
    every = [score for row in scores.values() for score in row.values()]
    lowest, highest = min(every), max(every)
    axes.set_xticks(range(len(tasks)), tasks)
    room = 1.14 if is_narrow else 1.06  # for the distance over a bar
    axes.set_ylim(min(0, lowest - 5), max(room * highest, 1) if highest > 100 or is_narrow else 100)
    axes.set_ylabel(measure)
    axes.grid(axis="y", color=FAINT, alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(ncols=3, frameon=False, loc="lower left", bbox_to_anchor=(0, 1.02), borderaxespad=0)
    return figure


def density_by_level(cosines: Mapping[str, Sequence[np.ndarray]], levels: Sequence[str]) -> Figure:
    """Density of the cosine for each level of gold similarity, a panel per model: PaSeR's Figure 5, its Table 10 beside.

    Args:
        cosines: By model: the cosines of the pairs of each level, lowest level first.
        levels: Names of the levels.
    """
    figure, panels = _figure(1, len(cosines), width=max(5.5, 3.9 * len(cosines)), height=4.2, sharey=True)
    grid = np.linspace(min(c.min() for row in cosines.values() for c in row if len(c)) - 0.1, 1.1, 300)
    colours = colormaps["viridis"](np.linspace(0.1, 0.85, len(levels)))
    for axes, (name, rows) in zip(panels, cosines.items(), strict=True):
        densities = [_density(row, grid) for row in rows]
        scale = 1.5 / max(density.max() for density in densities)
        for place in reversed(range(len(levels))):  # a lower row covers the feet of the one above it
            values = densities[place]
            axes.fill_between(grid, place, place + scale * values, color=colours[place], alpha=0.75, lw=0, zorder=-place)
            axes.plot(grid, place + scale * values, color="white", lw=1, zorder=-place)
            if len(rows[place]):
                mean, variance = rows[place].mean(), rows[place].var()
                axes.plot([mean, mean], [place, place + 0.18], color=INK, lw=1.5)
                axes.text(1.01, place + 0.12, f"{mean:.2f} / {variance:.3f}", transform=axes.get_yaxis_transform(),
                          fontsize=8, color=INK)  # fmt: skip
        axes.text(1.01, len(levels) + 0.1, "mean / var.", transform=axes.get_yaxis_transform(), fontsize=8, color=FAINT)
        axes.set_title(_plain(name), loc="left")
        axes.set_yticks(range(len(levels)), levels)
        axes.set_ylim(-0.05, len(levels) + 0.6)
        axes.set_xlabel("cosine")
        axes.grid(axis="x", color=FAINT, alpha=0.3)
    panels[0].set_ylabel("gold similarity")
    return figure


def alignment_uniformity(points: Mapping[str, tuple[float, float, float]]) -> Figure:
    """Uniformity against alignment, each model with its Spearman x 100 in colour and brackets: PaSeR's Figure 6.

    Args:
        points: By model: uniformity, alignment, Spearman x 100.
    """
    figure, (axes,) = _figure(1, 1, width=6.4, height=4.6)
    uniformity, alignment, spearman = np.array(list(points.values()), dtype=float).T
    dots = axes.scatter(uniformity, alignment, c=spearman, s=110, cmap="viridis", edgecolor=INK, lw=0.8, zorder=3)
    for name, (x, y, score) in points.items():
        to_left = x > (uniformity.min() + uniformity.max()) / 2 and len(points) > 1
        axes.annotate(f"{_plain(name)} ({score:.1f})", (x, y), (-9 if to_left else 9, 6), textcoords="offset points",
                      ha="right" if to_left else "left", fontsize=9, color=INK)  # fmt: skip
    axes.margins(0.28)
    axes.set_xlabel("uniformity  (lower is better)")
    axes.set_ylabel("alignment  (lower is better)")
    axes.grid(color=FAINT, alpha=0.3)
    figure.colorbar(dots, ax=axes, label="STS-B, Spearman x 100")
    return figure


def embedding_maps(maps: Mapping[str, Mapping[str, Map]]) -> Figure:
    """Embeddings in the plane, coloured by token frequency, a row per kind, a column per model: SLT-FAI's Figures 5 and 6.

    Args:
        maps: By model and kind (word, sentence).
    """
    kinds = list(dict.fromkeys(kind for row in maps.values() for kind in row))
    columns = len(maps)
    figure, panels = _figure(len(kinds), columns, width=max(5, 3.7 * columns), height=3.6 * len(kinds))
    grid = np.array(panels).reshape(len(kinds), columns)
    for row, kind in zip(grid, kinds, strict=True):
        shown = {name: of_model[kind] for name, of_model in maps.items() if kind in of_model}
        colours = [np.log10(shape.counts) for shape in shown.values()]
        low, high = min(c.min() for c in colours), max(c.max() for c in colours)
        dots = None
        for axes, name in zip(row, maps, strict=True):
            axes.set_title(f"{_plain(name)}: {kind}", loc="left")
            axes.set_aspect("equal", adjustable="datalim")
            axes.tick_params(labelsize=7)
            if name not in shown:
                axes.text(0.5, 0.5, f"no {kind} of its own", transform=axes.transAxes, ha="center", color=FAINT)
                continue
            points, counts = shown[name]
            order = np.argsort(counts, kind="stable")  # the frequent ones are few: on top
            dots = axes.scatter(
                *points[order].T, c=np.log10(counts[order]), s=4, cmap="plasma", vmin=low, vmax=high, lw=0, alpha=0.8
            )
            axes.plot(0, 0, marker="+", color=INK, ms=12, mew=1.5)
        assert dots is not None  # a kind is of some model
        figure.colorbar(dots, ax=list(row), label="log10 of occurrences", shrink=0.8)
    return figure


def learning_curves(log: Sequence[Mapping[str, Any]]) -> Figure | None:
    """One small panel for each quantity that a training logged; None where nothing was logged twice.

    Args:
        log: The trainer's history, the ``log`` of a run's ``results.json``.
    """
    curves = {key: points for key, points in _curves(log).items() if len(points) > 1}
    if not curves:
        return None
    columns = min(4, len(curves))
    rows = -(-len(curves) // columns)
    figure, panels = _figure(rows, columns, width=2.9 * columns, height=2.2 * rows)
    for axes in panels[len(curves) :]:
        axes.remove()
    for axes, (key, points) in zip(panels, curves.items(), strict=False):
        steps, values = np.array(points, dtype=float).T
        is_score = key.startswith("eval_")
        axes.plot(steps, values, color=COLOURS[1 if is_score else 0], lw=1.5, marker="o" if is_score else None, ms=3)
        axes.set_title(_plain(key.removeprefix("eval_")), loc="left", fontsize=9)
        if values.min() > 0 and values.max() / values.min() > 100:
            axes.set_yscale("log")
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.tick_params(labelsize=7)
        axes.grid(color=FAINT, alpha=0.3)
        axes.set_xlabel("update", fontsize=8)
    return figure


def _curves(log: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Return ``{quantity: [(step, value), ...]}``, scores of evaluations first."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for entry in log:
        for key, value in entry.items():
            if "step" not in entry or key in _SKIPPED or key.startswith("train_") or key.endswith(_TIMES):
                continue
            if isinstance(value, int | float) and np.isfinite(value):
                curves.setdefault(key, []).append((entry["step"], value))
    return dict(sorted(curves.items(), key=lambda item: (not item[0].startswith("eval_"), item[0] != "loss")))


def _density(values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Gaussian kernels of Scott's width, but no hill so narrow that it falls between two points of the grid."""
    if not len(values):
        return np.zeros_like(grid)
    width = values.std(ddof=1) * len(values) ** -0.2 if len(values) > 1 else 0
    width = max(width, 2 * (grid[1] - grid[0]))
    kernels = np.exp(-(((grid[:, None] - values) / width) ** 2) / 2)
    return kernels.mean(axis=1) / (width * np.sqrt(2 * np.pi))


def _plain(name: str) -> str:
    """Return a name that matplotlib takes as it is: dollars would be mathematics, and an underscore in front hides it."""
    return ("\u200b" * name.startswith("_") + name).replace("$", r"\$")


def _figure(rows: int, columns: int, *, width: float, height: float, **keywords: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure that belongs to no window and no global state, and its panels."""
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False, **keywords).flat)
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(FAINT)
        axes.tick_params(color=FAINT, labelcolor=INK)
    return figure, panels


def _colour(place: int, count: int) -> str:
    return FAINT if place == 0 and count > 1 else COLOURS[(place - (count > 1)) % len(COLOURS)]


def _hatch(place: int) -> str:
    """Return what tells a bar from that of the same colour, six places before it."""
    return ("", "///", "...", "xxx")[max(place - 1, 0) // len(COLOURS) % 4]
