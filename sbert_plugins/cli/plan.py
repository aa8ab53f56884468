"""What a training would be, before anything is loaded: the table of ``train --dry-run``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sbert_plugins import recipes
from sbert_plugins.cli.flags import changed, text_or_default

_SENTENCES = {plan["text"]: plan["sentences"] for plan in recipes.PROTOCOLS.values()}

_POOLINGS = ("pooling", "pooling at test")

# Rows that say what follows from a keyword of the protocol: not of another one.
_FOLLOWS = {"negatives": "loss.queue_size"}


def loss_keywords(options: argparse.Namespace) -> dict[str, Any]:
    """Return the keywords of the loss that flags give; only these need the loss, and torch."""
    keywords = recipes.read_keywords(options.method, options.loss) if options.loss else {}
    if options.backbone and keywords.get("backbone", options.backbone) != options.backbone:
        raise ValueError(f"--backbone {options.backbone} and --loss backbone={keywords['backbone']} differ: give one.")
    return keywords | ({"backbone": options.backbone} if options.backbone else {})


def own_settings(
    options: argparse.Namespace, plan: recipes.Protocol | None, keywords: dict[str, Any], *, is_demo: bool
) -> recipes.Settings:
    """Return the protocol's settings, or the method's."""
    return plan.settings if plan else recipes.settings_of(options.method, keywords, offline=is_demo)


def check_names(options: argparse.Namespace) -> None:
    """Refuse names that can only be paths where nothing is; what is on the Hub only the training finds out."""
    text, model = "a text is a file here, or {} of a dataset on the Hub", "a model is a directory here, or {} on the Hub"
    for flag, name, hint in (
        ("TEXT", options.text, text),
        ("--paraphrases", options.paraphrases, text),
        ("--model", options.model, model),
    ):
        if name is not None and not Path(name).exists():
            from sbert_plugins.data.read import is_path  # it loads what reads tables

            if is_path(name):
                raise FileNotFoundError(f"{flag} {name} does not exist: {hint.format('organization/name')}.")


def planned(
    options: argparse.Namespace, recipe: recipes.Recipe, plan: recipes.Protocol | None, *, is_demo: bool
) -> list[Sequence[str]]:
    """Return rows of setting, value and source: the protocol's, or the method's defaults, with what flags change."""
    keywords = loss_keywords(options)
    own = own_settings(options, plan, keywords, is_demo=is_demo)
    settings = changed(own, options)
    text = str(text_or_default(options, recipe, plan))
    sentences = _SENTENCES.get(text)
    if sentences is not None and options.limit is not None:
        sentences = min(sentences, options.limit)
    if plan is None and options.epochs is None and sentences is not None:
        settings = recipes.shortened(recipe, settings, sentences)
        own = replace(own, epochs=settings.epochs)
    asked = _asked(options, settings, keywords, sentences)
    unread = set() if settings.pooling == "mask" else {"template"}
    unread |= {name for name, keyword in _FOLLOWS.items() if keyword in asked}
    rows = [row for row in plan.rows if row.setting not in unread] if plan else _defaults(recipe, own, options, keywords)
    if options.model and options.pooling is None and settings.pooling != "mask":
        asked |= {
            row.setting: (kept, "--model") for row in rows if row.setting in _POOLINGS and (kept := _pooling(options, row))
        }
    shown = [_changed(row, *asked.pop(row.setting, (row.value, ""))) for row in rows]
    shown += [recipes.Row(key, value, flag) for key, (value, flag) in asked.items()]
    top_k = recipe.rows_a_sentence if plan is None else plan["columns.top_k"] or 1
    is_by_text = sentences is None and settings.max_steps <= 0
    updates = "by the text" if is_by_text else f"up to {settings.updates((sentences or 0) * top_k):,}"
    shown.append(recipes.Row("updates", updates, "of the rows above"))
    return [("setting", "value", "source"), *((row.setting, shown_value(row.value), row.source) for row in shown)]


def _pooling(options: argparse.Namespace, row: recipes.Row) -> str | None:
    """Return what the row of a pooling says of an encoder that may have one; None of a plain transformer."""
    if not Path(options.model).is_dir():
        return f"{row.value}, or its own"  # of a name on the Hub nothing is known here
    return "its own" if (Path(options.model) / "modules.json").is_file() else None


def _defaults(
    recipe: recipes.Recipe, settings: recipes.Settings, options: argparse.Namespace, keywords: dict[str, Any]
) -> list[recipes.Row]:
    """Return a method's defaults, each beside what the paper's protocol says of it."""
    paper = _papers_protocol(recipe, keywords.get("backbone"))
    encoder = "four layers of MiniLM" if options.offline else recipes.DEFAULT_MODEL
    has_own = options.offline and recipe.reads != "triplets"
    text = recipes.offline_sentences_path() if has_own else recipe.text
    values = {name: getattr(settings, name) for name in recipes.SETTINGS}
    own = {"encoder": encoder, "text": text, **values, "seed": 42, "bf16": None}
    rows = [recipes.Row(name, value, _source(paper, name, value)) for name, value in own.items()]
    # Their values are in its signature, which loads torch to be read.
    rows.append(recipes.Row("loss", recipe.losses_text(keywords), "the method's, with its defaults but for rows loss.KEY"))
    if paper is None:
        return rows
    return [recipes.Row("printed", paper.printed, f"{paper.source('printed')}; not of this: --protocol {paper.name}"), *rows]


def _papers_protocol(recipe: recipes.Recipe, backbone: str | None) -> recipes.Protocol | None:
    """Return the paper's protocol; of a method that goes round another, the one round the same."""
    plans = [
        plan for (method, name), plan in recipes.PROTOCOLS.items() if method == recipe.method and name.startswith("paper")
    ]
    return next((plan for plan in plans if backbone in (None, plan["loss.backbone"])), None)


def _source(paper: recipes.Protocol | None, name: str, value: Any) -> str:
    if paper is None:
        return "the method's default"
    if paper[name] == value:
        return paper.source(name)
    return f"the method's default; {shown_value(paper[name])} by {paper.source(name)}"


def _asked(
    options: argparse.Namespace, settings: recipes.Settings, keywords: dict[str, Any], sentences: int | None
) -> dict[str, tuple[Any, str]]:
    """Return value and flag of all that flags give."""
    given: dict[str, tuple[Any, str]] = {
        "encoder": (options.model, "--model"),
        "text": (options.text, "TEXT"),
        "bf16": (options.bf16, "--no-bf16" if options.bf16 is False else "--bf16"),
        "column": (options.column, "--column"),
        "positives": (options.paraphrases or options.positives, "--paraphrases" if options.paraphrases else "--positives"),
        "crops by": (options.crops_by, "--crops-by"),
        "report to": (None if options.report_to == ["none"] else " ".join(options.report_to), "--report-to"),
        "push to": (options.push_to_hub, f"--push-to-hub, {'public' if options.public else 'private'}"),
        "card shows sentences": (options.share_examples or None, "--share-examples"),
    }
    asked = {name: value for name, value in given.items() if value[0] is not None}
    if options.limit is not None:
        asked["sentences"] = (f"up to {options.limit:,}" if sentences is None else sentences, "--limit")
    elif options.text is not None:
        asked["sentences"] = ("all" if sentences is None else sentences, "TEXT")
    if options.seeds is not None:
        asked["seed"] = (f"{options.seed} to {options.seed + options.seeds - 1}", "--seeds")
    elif options.seed != 42:
        asked["seed"] = (options.seed, "--seed")
    for name in recipes.SETTINGS:
        if getattr(options, name) is not None:
            asked[name] = (getattr(settings, name), f"--{name.replace('_', '-')}")
    if options.pooling is not None and options.protocol is not None:
        asked["pooling at test"] = (settings.pooling, "--pooling")
    if options.epochs is not None and options.max_steps is None:
        asked["max_steps"] = (settings.max_steps, "--epochs")
    return asked | {f"loss.{key}": (value, "--backbone" if key == "backbone" else "--loss") for key, value in keywords.items()}


def _changed(row: recipes.Row, value: Any, flag: str) -> recipes.Row:
    return recipes.Row(row.setting, value, f"{flag}; else {shown_value(row.value)}, {row.source}") if flag else row


def shown_value(value: Any) -> str:
    """Return a value as the table has it."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(Path(value).name if isinstance(value, Path) else value)
