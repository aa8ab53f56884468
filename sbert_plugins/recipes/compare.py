"""A comparison: several methods, each with several seeds, from one start on one text."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from sbert_plugins.recipes.encoders import build_encoder, embeds_already, name_of_encoder, pooling_of
from sbert_plugins.recipes.methods import RECIPES, check_keywords, find_recipe, read_value
from sbert_plugins.recipes.recommended import RECOMMENDED, adapt_to
from sbert_plugins.recipes.run import check_same_run, digest_of_sentences, digest_of_weights, hold, versions
from sbert_plugins.recipes.scores import Change, Measured, main_score, measure
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
        "scores": [str(evaluator.name) for evaluator in evaluators],
        "text": text,
        "sentences_digest": digest_of_sentences(sentences),
        "encoder": name_of_encoder(start),
        "weights_digest": digest_of_weights(start),
        "pooling": pooling_of(start),
    }
    failed = {}
    with hold(output):
        before, cells = _begin(output, shared, start, evaluators)
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
            row for method in asked if (row := _row(method, numbers, cells, before, evaluators)) is not None
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
        return Measured(first["scores"], {}), {(cell["method"], cell["seed"]): cell for cell in cells}
    logger.info("Scoring the start.")
    before = measure(start, evaluators)
    _append(output, {"method": "start", "shared": shared, "scores": before.metrics, "versions": versions()})
    return Measured(before.metrics, {}), {}


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
        before=before if dev is None else None,
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
    evaluators: Sequence[BaseEvaluator],
) -> Row | None:
    """Return the means over the seeds of a method; None if there is no result."""
    done = [seed for seed in seeds if (method.text, seed) in cells]
    if not done:
        return None
    changes = []
    for evaluator in evaluators:
        name = str(evaluator.name)
        metric, first = main_score(evaluator, before.metrics[name])
        values = [main_score(evaluator, cells[method.text, seed]["scores"][name])[1] for seed in done]
        error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
        basis = f"over {len(values)} seeds" if len(values) > 1 else "one seed"
        changes.append(Change(name, metric, first, fmean(values), error, basis))
    return Row(method.text, done, changes, fmean(cells[method.text, seed]["seconds"] for seed in done))


def _write_page(comparison: Comparison, shared: dict[str, Any], sentences: int) -> None:
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(
        (files("sbert_plugins.recipes") / "compare.html").read_text(encoding="utf-8")
    )
    page = template.render(
        comparison=comparison,
        shared=shared,
        sentences=sentences,
        versions=versions(),
        plots=_plots(comparison),
    )
    comparison.page.write_text(page, encoding="utf-8")


def _plots(comparison: Comparison) -> list[dict[str, Any]]:
    """Return a plot per score: the difference of each method to the start with two standard errors, in percent of the width."""
    plots = []
    for place, first in enumerate(comparison.rows[0].changes):
        changes = [row.changes[place] for row in comparison.rows]
        spans = [(one.after - one.before, 2 * (one.error or 0.0)) for one in changes]
        low = min(0.0, *(difference - error for difference, error in spans))
        high = max(0.0, *(difference + error for difference, error in spans))
        scale = 100 / ((high - low) or 1.0)
        bars = [
            {
                "method": row.method,
                "left": scale * (min(0.0, difference) - low),
                "width": scale * abs(difference),
                "error_left": scale * (difference - error - low),
                "error_width": scale * 2 * error,
                "text": f"{difference:+.2f}",
            }
            for row, (difference, error) in zip(comparison.rows, spans, strict=True)
        ]
        plots.append({"title": f"{first.name}: {first.metric}", "zero": -scale * low, "bars": bars})
    return plots
