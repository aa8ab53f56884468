"""A comparison: several methods, each with several seeds, from one start on one text."""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_plugins.recipes.encoders import build_encoder, name_of_encoder, pooling_of
from sbert_plugins.recipes.methods import RECIPES, check_keywords, find_recipe, read_value
from sbert_plugins.recipes.recipe import override
from sbert_plugins.recipes.recommended import RECOMMENDED
from sbert_plugins.recipes.run import (
    check_is_free,
    check_same_run,
    describe_value,
    digest_of_texts,
    digest_of_weights,
    hold,
    name_of_text,
    versions,
)
from sbert_plugins.recipes.train import train

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.evaluation import BaseEvaluator

    from sbert_plugins.evaluation import Change
    from sbert_plugins.evaluation.score import Scores

logger = logging.getLogger(__name__)
RECORDS = "results.jsonl"
# Settings of some recipes that would make their updates more expensive than those of the other methods.
_EQUAL = {"gradient_accumulation_steps": 1, "sam_rho": 0.0, "batch_sampler": "batch_sampler"}


@dataclass(frozen=True)
class Method:
    """A method of a comparison, with keywords of its loss and training arguments of its own."""

    text: str
    name: str
    loss_keywords: dict[str, Any]
    arguments: dict[str, Any]
    protocol: str | None = None


@dataclass(frozen=True)
class Comparison:
    """The results of :func:`compare`.

    Attributes:
        changes: The changes from the start by method, one per score, as means over the seeds.
        rivals: The change of the first score from each other method to the best one, the next best first.
        failed: Why trainings failed, by method and seed.
        page: Path of the page.
    """

    changes: dict[str, list[Change]]
    rivals: list[Change]
    failed: dict[str, str]
    page: Path

    @property
    def headline(self) -> str:
        """The best method in one sentence, compared with the start and with the next best method."""
        from sbert_plugins.evaluation import summarize

        return summarize(self.best, [*self.changes[self.best], *self.rivals[:1]])

    @property
    def best(self) -> str:
        """The method with the largest gain in the first score."""
        return max(self.changes, key=lambda method: self.changes[method][0].gain)

    @property
    def table(self) -> list[list[str]]:
        """The scores as text, with a row for the start and one per method (mean and standard error)."""
        from sbert_plugins.evaluation import format_score

        first = next(iter(self.changes.values()))
        lines = [["", *(one.title for one in first)], ["start", *(format_score(one.before) for one in first)]]
        for method, changes in self.changes.items():
            errors = ["" if one.error is None else f" ± {one.format_error()}" for one in changes]
            scores = [f"{format_score(one.after)}{error}" for one, error in zip(changes, errors, strict=True)]
            lines.append([method, *scores])
        return lines

    @property
    def verdict(self) -> list[str]:
        """One sentence per method and score, and one per method that the best one is compared with."""
        changes = [*self.changes.items(), (self.best, self.rivals)]
        return [f"{method}, {one.sentence}" for method, each in changes for one in each]


def read_method(text: str) -> Method:
    """Read ``name``, ``name:key=value,key=value`` or ``package.module:Class:key=value``.

    A key is a keyword of the loss or a field of :class:`training.TrainingArguments`. ``protocol=paper`` takes
    the settings of a protocol instead of those that all methods share.

    Raises:
        ValueError: For an unknown method or keyword.

    Example:
        >>> read_method("pt-bert:attend_to=pooled,momentum=0.99").loss_keywords
        {'attend_to': 'pooled', 'momentum': 0.99}
    """
    from sbert_plugins.training import TrainingArguments

    name, *others = text.split(":")
    if name not in RECIPES and others and "=" not in others[0]:
        name = f"{name}:{others.pop(0)}"
    recipe = find_recipe(name)
    # A comma separates keywords, or values of one keyword.
    pairs = [part.partition("=") for part in re.split(r",(?=\w+=)", ":".join(others)) if part]
    if bare := next((key for key, equals, _ in pairs if not equals), None):
        raise ValueError(f"A keyword of a method is KEY=VALUE, got {bare!r} in {text!r}.")
    names = {field.name for field in fields(TrainingArguments)}
    values = {key: read_value(value) for key, _, value in pairs}
    protocol = values.pop("protocol", None)
    arguments = {key: value for key, value in values.items() if key in names}
    keywords = {key: value for key, value in values.items() if key not in names}
    if "seed" in arguments:
        raise ValueError(f"All methods have the same seeds, got {text!r}. Give their number with --seeds.")
    check_keywords(recipe, keywords)
    return Method(text, name, keywords, arguments, protocol)


def compare(
    methods: Sequence[str],
    texts: Dataset | Iterable[str],
    *,
    model: str | Callable[[], SentenceTransformer],
    output: str | Path,
    evaluators: Sequence[BaseEvaluator],
    seeds: int | Sequence[int] = 3,
    dev: BaseEvaluator | None = None,
    columns: str | Sequence[str] | None = None,
    max_seq_length: int | None = 32,
    text: str | None = None,
    **arguments: Any,
) -> Comparison:
    """Train each method with each seed from one start, with equal settings, and score the results.

    A finished training is a line of ``output/results.jsonl``. The same call continues after a kill. A call
    with more methods or seeds adds them. The models are in folders of ``output``, and the page is
    ``output/index.html``.

    Args:
        methods: Names, with keywords if wanted (:func:`read_method`).
        texts: As in :func:`train`. Each method reads the columns that it takes.
        model: Path or Hub name of the start, or a function that builds it.
        output: A new or empty folder, or that of the comparison to continue.
        evaluators: Evaluators that score the start and each result. They select nothing.
        seeds: How many seeds, from 0, or which.
        dev: Evaluator that selects the checkpoint of each training; without it the last update counts.
        columns: As in :func:`train`.
        max_seq_length: Tokens per sentence in training.
        text: Name of the text.
        **arguments: Fields of :class:`training.TrainingArguments` for all methods, by default those of
            ``recommended``.

    Raises:
        ValueError: For an unknown method or keyword, or if ``output`` holds a comparison with other settings.
        FileExistsError: If ``output`` holds something else, or another process trains there.
        RuntimeError: If every training failed.

    Example:
        >>> comparison = compare(
        ...     ["recommended", "simcse"], dataset, model=name, output="runs/compared", evaluators=[pairs]
        ... )  # doctest: +SKIP
        >>> print(comparison.headline)  # doctest: +SKIP
    """
    from sentence_transformers import SentenceTransformer
    from transformers import set_seed

    from sbert_plugins import evaluation
    from sbert_plugins.data.columns import describe_texts, read_columns
    from sbert_plugins.evaluation.encoding import named

    if isinstance(model, SentenceTransformer):
        raise ValueError("model must be a path, a Hub name or a function: each training needs a new model.")
    output, asked = Path(output), [read_method(method) for method in methods]
    numbers = _list_seeds(seeds)
    if arguments.get("push_to_hub"):
        raise ValueError("compare trains several models, which cannot share one name on the Hub. Use train.")
    secret = arguments.pop("hub_token", None)

    def build() -> SentenceTransformer:
        set_seed(0)  # what a function draws, such as an adapter, is the same each time
        return model() if callable(model) else build_encoder(str(model))

    start = build()
    rows = read_columns(
        texts,
        ["anchor"],
        optional=["positive", "negative", "title"],
        columns=columns,
        source=text or "The dataset",
    )
    for line in (describe_texts(rows), *map(evaluation.describe_labels, evaluators)):
        logger.info(line)
    settings = override(RECOMMENDED.arguments | _EQUAL, arguments)
    shared: dict[str, Any] = {
        "arguments": describe_value(settings),
        "max_seq_length": max_seq_length,
        "dev": getattr(dev, "name", None),
        "scores": list(named(evaluators)),
        "text": name_of_text(text),
        "read": describe_texts(rows),
        "sentences_digest": digest_of_texts(rows),
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
                has_own = method.protocol is not None or find_recipe(method.name).fit is not None
                folder = output / f"{re.sub(r'[^A-Za-z0-9._=-]', '_', method.text)}_seed{seed}"
                try:
                    results = train(
                        method.name,
                        rows,
                        build(),
                        output=folder,
                        loss_keywords=method.loss_keywords,
                        protocol=method.protocol,
                        max_seq_length=None if has_own else max_seq_length,
                        dev=None if find_recipe(method.name).fit else dev,
                        evaluators=evaluators,
                        before=before,
                        seed=seed,
                        text=text,
                        resume=True,
                        hub_token=secret,
                        **(method.arguments if has_own else override(settings, method.arguments)),
                    )
                except Exception as error:  # the other cells are not lost
                    logger.warning("%s failed: %s", name, error, exc_info=logger.isEnabledFor(logging.DEBUG))
                    failed[name] = f"{type(error).__name__}: {error}"
                    continue
                kept = ("loss_keywords", "arguments", "updates", "saved_update", "seconds", "versions")
                cell = {"method": method.text, "seed": seed, "scores": results["after"]}
                cells[method.text, seed] = cell
                _append(output, cell | {key: results[key] for key in kept})
        scores = {
            method.text: [
                {
                    name: evaluation.Score.from_dict(each)
                    for name, each in cells[method.text, seed]["scores"].items()
                }
                for seed in numbers
                if (method.text, seed) in cells
            ]
            for method in asked
        }
        scores = {method: each for method, each in scores.items() if each}
        if not scores:
            raise RuntimeError(f"Every training failed: {next(iter(failed.values()))}")
        changes = {method: evaluation.judge_all(before, each) for method, each in scores.items()}
        ranked = sorted(changes, key=lambda method: changes[method][0].gain, reverse=True)
        rivals = [
            evaluation.judge_all(scores[method], scores[ranked[0]], against=method)[0]
            for method in ranked[1:]
        ]
        comparison = Comparison(changes, rivals, failed, output / "index.html")
        comparison.page.write_text(_page(comparison, shared, len(rows)), encoding="utf-8")
    return comparison


def _list_seeds(seeds: int | Sequence[int]) -> list[int]:
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not numbers or len({*numbers}) < len(numbers):
        raise ValueError(f"seeds must be a number of seeds, or seeds that differ, got {seeds}.")
    return numbers


def _begin(
    output: Path, shared: dict[str, Any], start: SentenceTransformer, evaluators: Sequence[BaseEvaluator]
) -> tuple[Scores, dict[tuple[str, int], dict[str, Any]]]:
    """Score the start, and return its scores and the cells that are finished."""
    from sbert_plugins import evaluation

    path, first, cells = output / RECORDS, {}, []
    if path.exists():
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]  # a kill may cut the last line
        if whole != text:
            path.write_text(whole, encoding="utf-8")
        first, *cells = [json.loads(line) for line in whole.splitlines()] or [{}]
    else:
        check_is_free(output)
    if cells:
        check_same_run(first["shared"], shared, output, may_differ={"text", "read", "encoder"})
    logger.info("Scoring the start.")
    before = evaluation.measure(start, evaluators)
    for name in shared["scores"] if cells else ():
        now = before[name]
        was = first["scores"][name]["values"][now.metric]
        if not math.isclose(was, now.value, rel_tol=1e-3, abs_tol=1e-3):
            raise ValueError(
                f"The labels of {name} have changed: the start scores {evaluation.format_score(now.value)} "
                f"now, and scored {evaluation.format_score(was)} when the comparison in {output} began. Use "
                "another output."
            )
    if not cells:
        path.unlink(missing_ok=True)  # nothing is finished: the settings may differ
        scores = {name: score.to_dict() for name, score in before.items()}
        _append(output, {"method": "start", "shared": shared, "scores": scores, "versions": versions()})
    return before, {(cell["method"], cell["seed"]): cell for cell in cells}


def _append(output: Path, record: dict[str, Any]) -> None:
    with (output / RECORDS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, default=str) + "\n")


def _page(comparison: Comparison, shared: dict[str, Any], sentences: int) -> str:
    """Return the page: headline, verdict, plot, table and settings."""
    from sbert_plugins import evaluation

    heading, *lines = comparison.table
    text = shared["text"] or "a text without a name"
    about = (
        f"{len(comparison.changes)} methods from {shared['encoder']} ({shared['pooling']} pooling) on "
        f"{sentences:,} sentences of {text}. All have the settings below, unless a method's name gives "
        "others."
    )
    caption = (
        "Mean over the seeds ± standard error of the difference from the start, which counts the variation "
        "between seeds and between pairs, texts or queries. The start is the model before training."
    )
    sections = [
        evaluation.Section("Verdict", [about], points=comparison.verdict),
        evaluation.Section("Scores", columns=heading, rows=lines, caption=caption),
    ]
    if importlib.util.find_spec("matplotlib"):
        figure = evaluation.plot_scores(_bars(comparison.changes))
        caption = (
            "Points are means over the seeds. A method is level with the start if its bar contains the start."
        )
        sections.insert(1, evaluation.Section("Start and methods", figure=figure, caption=caption))
    if comparison.failed:
        reasons = [f"{name}: {reason}" for name, reason in comparison.failed.items()]
        sections.insert(0, evaluation.Section("Failed trainings", points=reasons))
    settings = [[name, str(value)] for name, value in shared["arguments"].items()]
    settings.append(["max_seq_length", str(shared["max_seq_length"])])
    sections.append(evaluation.Section("Settings", columns=["", "value"], rows=settings, is_text=True))
    return evaluation.render_page("Comparison of training methods", comparison.headline, sections)


def _bars(changes: dict[str, list[Change]]) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the scores of the start and the methods with the length of their error bars."""
    first = next(iter(changes.values()))
    return {"start": {one.title: (one.before, 0.0) for one in first}} | {
        method: {one.title: (one.after, one.margin or 0.0) for one in each}
        for method, each in changes.items()
    }
