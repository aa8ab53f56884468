"""A comparison: several methods, each with several seeds, from one start on one text."""

import importlib.util
import json
import logging
import math
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator
from transformers import set_seed

from sbert_plugins import evaluation
from sbert_plugins.data.columns import describe_texts, read_columns
from sbert_plugins.evaluation.encoding import named
from sbert_plugins.evaluation.score import Scores
from sbert_plugins.recipes.encoders import build_encoder, name_of_encoder, pooling_of
from sbert_plugins.recipes.methods import RECIPES, find_recipe, read_keywords
from sbert_plugins.recipes.recipe import Recipe, override
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
from sbert_plugins.training import TrainingArguments

logger = logging.getLogger(__name__)
RECORDS = "results.jsonl"


@dataclass(frozen=True)
class Method:
    """A method of a comparison, with keywords of its loss and training arguments of its own."""

    text: str
    recipe: Recipe
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

    changes: dict[str, list[evaluation.Change]]
    rivals: list[evaluation.Change]
    failed: dict[str, str]
    page: Path

    @property
    def headline(self) -> str:
        """The best method in one sentence, compared with the start and with the next best method."""
        return evaluation.summarize(self.best, [*self.changes[self.best], *self.rivals[:1]])

    @property
    def best(self) -> str:
        """The method with the largest gain in the first score."""
        return max(self.changes, key=lambda method: self.changes[method][0].gain)

    @property
    def table(self) -> list[list[str]]:
        """The scores as text, with a row for the start and one per method (mean and standard error)."""
        first = next(iter(self.changes.values()))
        lines = [
            ["", *(one.title for one in first)],
            ["start", *(evaluation.format_score(one.before) for one in first)],
        ]
        for method, changes in self.changes.items():
            errors = ["" if one.error is None else f" ± {one.format_error()}" for one in changes]
            scores = [
                f"{evaluation.format_score(one.after)}{error}"
                for one, error in zip(changes, errors, strict=True)
            ]
            lines.append([method, *scores])
        return lines

    @property
    def verdict(self) -> list[str]:
        """One sentence per method and score, and one per method that the best one is compared with."""
        return [
            f"{method}, {one.sentence}"
            for method, each in [*self.changes.items(), (self.best, self.rivals)]
            for one in each
        ]


def read_method(text: str) -> Method:
    """Read ``name``, ``name:key=value,key=value`` or ``package.module:Class:key=value``.

    A key is a keyword of the loss or a field of :class:`training.TrainingArguments`. A name that is both is
    written as ``loss.key`` for the loss. ``protocol=paper`` takes the settings of a protocol instead of those
    that all methods share.

    Raises:
        ValueError: For an unknown method or keyword, and for a name that is both.

    Example:
        >>> read_method("pt-bert:attend_to=pooled,momentum=0.99").loss_keywords
        {'attend_to': 'pooled', 'momentum': 0.99}
    """
    name, *others = text.split(":")
    if name not in RECIPES and others and "=" not in others[0]:
        name = f"{name}:{others.pop(0)}"
    recipe = find_recipe(name)
    # A comma separates keywords, or values of one keyword.
    keywords = read_keywords([part for part in re.split(r",(?=[\w.]+=)", ":".join(others)) if part])
    protocol = keywords.pop("protocol", None)
    names = {field.name for field in fields(TrainingArguments)}
    if both := names & {*keywords} & {*(recipe.known_keywords() or ())}:
        raise ValueError(
            f"{min(both)} is a keyword of the loss of {name} and a training argument. Give "
            f"loss.{min(both)}=... for the loss, or --{min(both)} for the trainings of all methods."
        )
    arguments = {key: keywords.pop(key) for key in [*keywords] if key in names}
    keywords = {key.removeprefix("loss."): value for key, value in keywords.items()}
    recipe.check_keywords(keywords)
    return Method(text, recipe, keywords, arguments, protocol)


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
    if isinstance(model, SentenceTransformer):
        raise ValueError("model must be a path, a Hub name or a function: each training needs a new model.")
    if arguments.get("push_to_hub"):
        raise ValueError("compare trains several models, which cannot share one name on the Hub. Use train.")
    arguments.pop("hub_token", None)  # is needed for nothing, and must not be recorded
    output, asked = Path(output), [read_method(method) for method in methods]
    if any("seed" in given for given in (arguments, *(method.arguments for method in asked))):
        raise ValueError("All methods have the seeds 0, 1, ...: give their number with seeds or --seeds.")
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(dict.fromkeys(seeds))

    def build() -> SentenceTransformer:
        set_seed(0)  # what a function draws, such as an adapter, is the same each time
        return model() if callable(model) else build_encoder(str(model))

    start = build()
    rows = read_columns(
        texts,
        ["anchor"],
        optional=["positive", "negative", "title"],
        labels=any(":" in method.recipe.name for method in asked),  # a loss of one's own may read them
        columns=columns,
        source=text or "The dataset",
    )
    for line in (describe_texts(rows), *map(evaluation.describe_labels, evaluators)):
        logger.info(line)
    # Some recipes have settings that would make their updates more expensive than those of others.
    equal = {"gradient_accumulation_steps": 1, "sam_rho": 0.0, "batch_sampler": "batch_sampler"}
    settings = override(RECIPES["recommended"].arguments | equal, arguments)
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
        for seed, method in product(numbers, asked):
            name = f"{method.text}, seed {seed}"
            if (method.text, seed) in cells:
                logger.info("%s: finished before.", name)
                continue
            logger.info("%s", name)
            is_fit = method.recipe.fit is not None
            has_own = is_fit or method.protocol is not None
            folder = output / f"{re.sub(r'[^A-Za-z0-9._=-]', '_', method.text)}_seed{seed}"
            try:
                results = train(
                    method.recipe,
                    rows,
                    build(),
                    output=folder,
                    loss_keywords=method.loss_keywords,
                    protocol=method.protocol,
                    max_seq_length=None if has_own else max_seq_length,
                    dev=None if is_fit else dev,
                    evaluators=[*evaluators, dev] if is_fit and dev is not None else evaluators,
                    before=before,
                    seed=seed,
                    text=text,
                    resume=folder.exists(),
                    **(method.arguments if has_own else override(settings, method.arguments)),
                )
            except Exception as error:  # the other cells are not lost
                logger.warning("%s failed: %s", name, error, exc_info=logger.isEnabledFor(logging.DEBUG))
                failed[name] = f"{type(error).__name__}: {error}"
                continue
            kept = ("loss_keywords", "arguments", "updates", "saved_update", "seconds", "versions")
            cell = {"method": method.text, "seed": seed, "scores": results["after"]}
            with (output / RECORDS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(cell | {key: results[key] for key in kept}, default=str) + "\n")
            cells[method.text, seed] = _read_scores(cell)
        scores = {
            method.text: [cells[method.text, seed] for seed in numbers if (method.text, seed) in cells]
            for method in asked
        }
        scores = {method: each for method, each in scores.items() if each}
        if not scores:
            raise RuntimeError(f"Every training failed: {'; '.join(failed.values())}")
        changes = {method: evaluation.judge_all(before, each) for method, each in scores.items()}
        best, *others = sorted(changes, key=lambda method: changes[method][0].gain, reverse=True)
        comparison = Comparison(
            changes,
            rivals=[evaluation.judge_all(scores[each], scores[best], against=each)[0] for each in others],
            failed=failed,
            page=output / "index.html",
        )
        comparison.page.write_text(_page(comparison, shared, len(rows)), encoding="utf-8")
    return comparison


def _begin(
    output: Path, shared: dict[str, Any], start: SentenceTransformer, evaluators: Sequence[BaseEvaluator]
) -> tuple[Scores, dict[tuple[str, int], Scores]]:
    """Score the start, and return its scores and those of the cells that are finished."""
    path = output / RECORDS
    if not path.exists():
        check_is_free(output)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]  # a kill may cut the last line
    first, *cells = [json.loads(line) for line in whole.splitlines()] or [{}]
    if cells:
        check_same_run(first["shared"], shared, output, may_differ={"text", "read", "encoder"})
    logger.info("Scoring the start.")
    before = evaluation.measure(start, evaluators)
    for name in before if cells else ():  # also of dev, which selects checkpoints
        was, now = first["scores"][name]["values"][before[name].metric], before[name].value
        if not math.isclose(was, now, rel_tol=1e-3, abs_tol=1e-3):
            raise ValueError(
                f"The labels of {name} have changed: the start scores {evaluation.format_score(now)} now, "
                f"and scored {evaluation.format_score(was)} when the comparison in {output} began. Use "
                "another output."
            )
    if not cells:  # while nothing is finished, the settings may differ
        if first.get("shared") != shared:
            for begun in output.glob("*_seed*/run.json"):
                shutil.rmtree(begun.parent)
        first = {
            "method": "start",
            "shared": shared,
            "scores": {name: score.to_dict() for name, score in before.items()},
            "versions": versions(),
        }
        whole = json.dumps(first, default=str) + "\n"
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return before, {(cell["method"], cell["seed"]): _read_scores(cell) for cell in cells}


def _read_scores(cell: dict[str, Any]) -> Scores:
    return {name: evaluation.Score.from_dict(score) for name, score in cell["scores"].items()}


def _page(comparison: Comparison, shared: dict[str, Any], sentences: int) -> str:
    """Return the page: headline, verdict, plot, table and settings."""
    changes, (heading, *lines) = comparison.changes, comparison.table
    about = (
        f"{len(changes)} methods from {shared['encoder']} ({shared['pooling']} pooling) on {sentences:,} "
        f"sentences of {shared['text'] or 'a text without a name'}. All have the settings below, unless a "
        "method's name gives others."
    )
    settings = shared["arguments"] | {"max_seq_length": shared["max_seq_length"]}
    sections = [
        evaluation.Section("Verdict", [about], points=comparison.verdict),
        evaluation.Section(
            "Scores",
            columns=heading,
            rows=lines,
            caption="Mean over the seeds ± standard error of the difference from the start, which counts the "
            "variation between seeds and between pairs, texts or queries. The start is the model before "
            "training.",
        ),
        evaluation.Section(
            "Settings",
            columns=["", "value"],
            rows=[[name, str(value)] for name, value in settings.items()],
            is_text=True,
        ),
    ]
    if importlib.util.find_spec("matplotlib"):
        bars = {"start": {one.title: (one.before, 0.0) for one in next(iter(changes.values()))}}
        bars |= {
            method: {one.title: (one.after, one.margin or 0.0) for one in each}
            for method, each in changes.items()
        }
        sections.insert(
            1,
            evaluation.Section(
                "Start and methods",
                figure=evaluation.plot_scores(bars),
                caption="Points are means over the seeds. A method is level with the start if its bar "
                "contains the start.",
            ),
        )
    if comparison.failed:
        sections.insert(
            0,
            evaluation.Section(
                "Failed trainings",
                points=[f"{name}: {reason}" for name, reason in comparison.failed.items()],
            ),
        )
    return evaluation.render_page("Comparison of training methods", comparison.headline, sections)
