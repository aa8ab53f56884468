"""A comparison: several methods, each with several seeds, from one start on one text."""

from __future__ import annotations

import importlib.util
import json
import logging
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from sbert_plugins.recipes.encoders import build_encoder, embeds_already, name_of_encoder, pooling_of
from sbert_plugins.recipes.methods import RECIPES, check_keywords, find_recipe, read_value
from sbert_plugins.recipes.recommended import RECOMMENDED, adapt_to
from sbert_plugins.recipes.run import check_same_run, digest_of_sentences, digest_of_weights, hold, versions
from sbert_plugins.recipes.scores import LEVEL, Change, Measured, measure, restore
from sbert_plugins.recipes.train import train

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.evaluation import BaseEvaluator

logger = logging.getLogger(__name__)
RECORDS = "results.jsonl"
# Settings of some recipes that would make their trainings longer than those of the other methods.
_EQUAL = {"gradient_accumulation_steps": 1, "sam_rho": 0.0, "batch_sampler": "batch_sampler"}


@dataclass(frozen=True)
class Method:
    """A method of a comparison, with keywords of its loss and training arguments of its own."""

    text: str
    name: str
    loss_keywords: dict[str, Any]
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A method's results over its seeds: one change from the start per score."""

    method: str
    seeds: list[int]
    changes: list[Change]
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """The results of :func:`compare`: a row per method, why cells failed, and the page."""

    rows: list[Row]
    failed: dict[str, str]
    page: Path

    @property
    def headline(self) -> str:
        """The best result in one sentence."""
        best = max(self.rows, key=lambda row: row.changes[0].after - row.changes[0].before)
        change = best.changes[0]
        return (
            f"{best.method}: {change.after - change.before:+.1f} points over the start on {change.name} ({change.metric}, mean "
            f"over {len(best.seeds)} seed{'s' * (len(best.seeds) > 1)})."
        )

    @property
    def table(self) -> list[list[str]]:
        """The scores as text: a heading, the start, and a row per method with mean and standard error."""
        titles = [f"{change.name}: {change.metric}" for change in self.rows[0].changes]
        start = [f"{change.before:.2f}" for change in self.rows[0].changes]
        lines = [["method", "seeds", *titles, "seconds"], ["start", "", *start, ""]]
        for row in self.rows:
            scores = [
                f"{one.after:.2f}" + ("" if one.error is None else f" ± {one.error:.2f}")
                for one in row.changes
            ]
            lines.append([row.method, str(len(row.seeds)), *scores, f"{row.seconds:.0f}"])
        return lines

    @property
    def verdict(self) -> list[str]:
        """One sentence per method and score."""
        return [f"{row.method}, {change.sentence}" for row in self.rows for change in row.changes]


def read_method(text: str) -> Method:
    """Read ``name``, ``name:key=value,key=value`` or ``package.module:Class:key=value``.

    A key is a keyword of the loss or a field of :class:`training.TrainingArguments`.

    Raises:
        ValueError: For an unknown method or keyword.

    Example:
        >>> read_method("pt-bert:attend_to=pooled,momentum=0.99").loss_keywords
        {'attend_to': 'pooled', 'momentum': 0.99}
    """
    from sbert_plugins.training import TrainingArguments

    first, *others = text.split(":")
    if first not in RECIPES and others and "=" not in others[0]:
        first = f"{first}:{others.pop(0)}"
    recipe = find_recipe(first)
    values: dict[str, str] = {}
    for part in ":".join(others).split(",") if others else []:
        key, equals, value = part.partition("=")
        if equals:
            values[key] = value
        else:  # a value with commas
            values[next(reversed(values))] += f",{part}"
    names = {field.name for field in fields(TrainingArguments)}
    arguments = {key: read_value(value) for key, value in values.items() if key in names}
    keywords = {key: read_value(value) for key, value in values.items() if key not in names}
    check_keywords(recipe, keywords)
    return Method(text, first, keywords, arguments)


def compare(
    methods: Sequence[str],
    sentences: Dataset,
    *,
    model: str | Callable[[], SentenceTransformer],
    output: str | Path,
    evaluators: Sequence[BaseEvaluator],
    seeds: int | Sequence[int] = 3,
    dev: BaseEvaluator | None = None,
    max_seq_length: int | None = 32,
    text: str | None = None,
    **arguments: Any,
) -> Comparison:
    """Train each method with each seed from one start, with equal settings, and score the results.

    A finished training is a line of ``output/results.jsonl``. The same call continues after a kill; a call with more methods or
    seeds adds them. The models are in folders of ``output``, the page is ``output/index.html``.

    Args:
        methods: Names, with keywords if wanted (:func:`read_method`).
        sentences: The column ``anchor``, and ``positive`` where there are positives.
        model: Path or Hub name of the start, or a function that builds it.
        output: A new or empty folder, or that of the comparison to continue.
        evaluators: Evaluators that score the start and each result. They select nothing.
        seeds: How many seeds, from 0, or which.
        dev: Evaluator that selects the checkpoint of each training; without it the last update counts.
        max_seq_length: Tokens per sentence in training.
        text: Name of the text.
        **arguments: Fields of :class:`training.TrainingArguments` for all methods, by default those of ``recommended``.

    Returns:
        The results by method.

    Raises:
        ValueError: For an unknown method or keyword, or if ``output`` holds a comparison with other settings.
        RuntimeError: If every training failed.

    Example:
        >>> comparison = compare(["recommended", "simcse"], dataset, model=name, output="runs/compared", evaluators=[pairs])
        ... # doctest: +SKIP
        >>> print(comparison.headline)  # doctest: +SKIP
    """
    from sbert_plugins.evaluation.encoding import named

    output, asked = Path(output), [read_method(method) for method in methods]
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    build = model if callable(model) else lambda: build_encoder(str(model))
    start = build()
    shared = {
        "arguments": RECOMMENDED.arguments
        | adapt_to(embeds=embeds_already(start)).arguments
        | _EQUAL
        | arguments,
        "max_seq_length": max_seq_length,
        "dev": getattr(dev, "name", None),
        "scores": list(named(evaluators)),
        "text": text,
        "sentences_digest": digest_of_sentences(sentences),
        "encoder": name_of_encoder(start),
        "weights_digest": digest_of_weights(start),
        "pooling": pooling_of(start),
    }
    failed = {}
    with hold(output):
        before, cells = _begin(output, shared, start, [*evaluators, *([dev] if dev is not None else [])])
        del start
        for seed in numbers:
            for method in asked:
                name = f"{method.text}, seed {seed}"
                if (method.text, seed) in cells:
                    logger.info("%s: finished before.", name)
                    continue
                logger.info("%s", name)
                try:
                    cell = _run_cell(
                        method, seed, sentences, build(), output, evaluators, dev, before, shared
                    )
                except Exception as error:  # the other cells are not lost
                    logger.warning("%s failed: %s", name, error, exc_info=logger.isEnabledFor(logging.DEBUG))
                    failed[name] = f"{type(error).__name__}: {error}"
                    continue
                cells[method.text, seed] = cell
                _append(output, cell)
        rows = [
            row for method in asked if (row := _row(method, numbers, cells, before)) is not None
        ]
        if not rows:
            raise RuntimeError(f"Every training failed: {next(iter(failed.values()))}")
        comparison = Comparison(rows, failed, output / "index.html")
        _write_page(comparison, shared, len(sentences))
    return comparison


def _begin(
    output: Path, shared: dict[str, Any], start: SentenceTransformer, evaluators: Sequence[BaseEvaluator]
) -> tuple[Measured, dict[tuple[str, int], dict[str, Any]]]:
    """Return the scores of the start and the cells that are finished; in a new folder score the start."""
    path = output / RECORDS
    if path.exists():
        first, *cells = (
            json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")
        )
        check_same_run(first["shared"], shared, output, may_differ={"text", "encoder"})
        return restore(first["scores"]), {(cell["method"], cell["seed"]): cell for cell in cells}
    logger.info("Scoring the start.")
    before = measure(start, evaluators)
    _append(output, {"method": "start", "shared": shared, "scores": before.values, "versions": versions()})
    return before, {}


def _append(output: Path, record: dict[str, Any]) -> None:
    with (output / RECORDS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, default=str) + "\n")


def _run_cell(
    method: Method,
    seed: int,
    sentences: Dataset,
    model: SentenceTransformer,
    output: Path,
    evaluators: Sequence[BaseEvaluator],
    dev: BaseEvaluator | None,
    before: Measured,
    shared: dict[str, Any],
) -> dict[str, Any]:
    folder = output / f"{re.sub(r'[^A-Za-z0-9._=-]', '_', method.text)}_seed{seed}"
    results = train(
        method.name,
        sentences,
        model,
        output=folder,
        loss_keywords=method.loss_keywords,
        max_seq_length=shared["max_seq_length"],
        dev=dev,
        evaluators=evaluators,
        before=before,
        seed=seed,
        text=shared["text"],
        resume=True,
        **(shared["arguments"] | method.arguments),
    )
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return {"method": method.text, "seed": seed, "scores": results["after"]} | {
        key: results[key]
        for key in ("loss_keywords", "arguments", "updates", "saved_update", "seconds", "versions")
    }


def _row(
    method: Method,
    seeds: Sequence[int],
    cells: dict[tuple[str, int], dict[str, Any]],
    before: Measured,
    names: Sequence[str],
) -> Row | None:
    """Return the means over the seeds of a method; None if there is no result."""
    done = [seed for seed in seeds if (method.text, seed) in cells]
    if not done:
        return None
    changes = []
    for name in names:
        metric, first = next(iter(before.values[name].items()))
        values = [cells[method.text, seed]["scores"][name][metric] for seed in done]
        error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
        basis = f"over {len(values)} seeds" if len(values) > 1 else f"one seed, level means less than {LEVEL} points"
        changes.append(Change(name, metric, first, fmean(values), error, basis))
    return Row(method.text, done, changes, fmean(cells[method.text, seed]["seconds"] for seed in done))


def _write_page(comparison: Comparison, shared: dict[str, Any], sentences: int) -> None:
    from sbert_plugins import evaluation

    heading, *lines = comparison.table
    about = (
        f"{len(comparison.rows)} methods from {shared['encoder']} ({shared['pooling']} pooling) on {sentences:,} sentences of "
        f"{shared['text'] or 'a text without a name'}, with equal settings."
    )
    caption = "Mean over the seeds ± standard error. The start is the model before training."
    sections = [
        evaluation.Section("Verdict", [about], points=comparison.verdict),
        evaluation.Section("Scores", columns=heading, rows=lines, caption=caption),
    ]
    if importlib.util.find_spec("matplotlib"):
        figure = evaluation.plot_scores(_intervals(comparison.rows))
        caption = "Points are means over the seeds, bars span two standard errors on each side."
        sections.insert(1, evaluation.Section("Start and methods", figure=figure, caption=caption))
    if comparison.failed:
        reasons = [f"{name}: {reason}" for name, reason in comparison.failed.items()]
        sections.insert(0, evaluation.Section("Failed trainings", points=reasons))
    settings = [[name, str(value)] for name, value in shared["arguments"].items()]
    settings.append(["max_seq_length", str(shared["max_seq_length"])])
    sections.append(evaluation.Section("Settings", columns=["", "value"], rows=settings, is_text=True))
    page = evaluation.render_page("Comparison of training methods", comparison.headline, sections)
    comparison.page.write_text(page, encoding="utf-8")


def _intervals(rows: Sequence[Row]) -> dict[str, dict[str, tuple[float, float, float]]]:
    """Return the scores of the start and the methods with the ends of their error bars."""
    start = {f"{one.name}: {one.metric}": (one.before, one.before, one.before) for one in rows[0].changes}
    bars = {"start": start}
    for row in rows:
        spans = [(one, 2 * (one.error or 0.0)) for one in row.changes]
        bars[row.method] = {
            f"{one.name}: {one.metric}": (one.after, one.after - span, one.after + span) for one, span in spans
        }
    return bars
