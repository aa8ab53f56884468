"""Flags that several commands have, and what is made of them."""

from __future__ import annotations

import argparse
import os
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

from sbert_plugins import recipes

_TYPES = {"int": int, "int | None": int, "float": float, "float | None": float, "str": str}  # of a setting, by its annotation
_DATA_VARIABLE = "SBERT_PLUGINS_DATA"


class Flags(Protocol):
    """A parser, or a group of its flags."""

    def add_argument(self, *names: Any, **keywords: Any) -> argparse.Action:
        """Add one."""
        ...


def add_start(parser: argparse.ArgumentParser) -> None:
    """Add the flags about the text and the encoder of a training."""
    parser.add_argument(
        "--column",
        help="column of a table or Hub dataset (default: text, of pairs anchor, of documents document, or the only one of "
        "strings)",
    )
    parser.add_argument("--limit", type=int, help="use the first LIMIT sentences, or documents")
    parser.add_argument(
        "--model", help=f"path or Hub name (default: {recipes.DEFAULT_MODEL}, with --offline four layers of MiniLM)"
    )
    parser.add_argument(
        "--offline",
        action="store_true",
        help="use no network: encoder and text from installed packages; without --model the settings are the demo's: one "
        "epoch of TEXT, for most methods at a higher rate",
    )


def add_settings(parser: argparse.ArgumentParser, default: str, values: recipes.Settings | None = None) -> Flags:
    """Add a flag for each field of Settings; where there is one set of defaults, ``values``, the help shows it."""
    settings = parser.add_argument_group(f"settings (default: {default})")
    for field in fields(recipes.Settings):
        kind = {"action": argparse.BooleanOptionalAction} if field.type == "bool" else {"type": _TYPES[str(field.type)]}
        default_here = None if values is None else getattr(values, field.name)
        if field.name == "epochs" and values is not None and values.max_steps > 0:
            default_here = None  # updates are counted
        shown = "" if default_here is None else f"(default: {default_here})"
        text = " ".join(filter(None, [field.metadata.get("help"), shown])) or None
        given = {"default": None, **kind, **field.metadata, "help": text}
        settings.add_argument("--" + field.name.replace("_", "-"), **given)
    settings.add_argument(
        "--bf16", action=argparse.BooleanOptionalAction, help="mixed precision (default: where a GPU has it)"
    )
    return settings


def add_labels(parser: Flags) -> None:
    """Add files of one's own labels."""
    parser.add_argument("--pairs", metavar="FILE", help="graded pairs: tab-separated grade, sentence, sentence")
    parser.add_argument("--topics", metavar="FILE", help="texts with their topics: tab-separated topic, text")
    parser.add_argument(
        "--retrieval",
        metavar="DIR",
        help="queries.tsv (id, text), corpus.tsv (id, text), qrels.tsv (query id, text id, 1), tab-separated; .gz too",
    )


def add_sts(parser: Flags) -> None:
    """Add where the STS tasks are from."""
    add_hub(parser)
    parser.add_argument("--sick", choices=["test", "all"], help="4,927 test pairs (the papers), or all 9,927 (mteb)")


def add_hub(parser: Flags) -> None:
    """Add that they are from the Hub."""
    parser.add_argument("--hub", action="store_true", help="take the STS tasks from the Hub even if a data directory is set")


def add_data(parser: Flags) -> None:
    """Add the directory of the data."""
    parser.add_argument(
        "--data-dir",
        default=os.environ.get(_DATA_VARIABLE),
        help=f"directory with the folder sts (default: the environment variable {_DATA_VARIABLE})",
    )


def text_width() -> int:
    """Return the columns that a text of the help may take."""
    return max(shutil.get_terminal_size().columns - 2, 20)  # argparse's own; a terminal may say that it has none


def text_or_default(options: argparse.Namespace, recipe: recipes.Recipe, plan: recipes.Protocol | None = None) -> str | Path:
    """Return what is trained on: TEXT, or the protocol's or the recipe's own."""
    if options.text is not None:  # an empty name is a mistake, not a wish for the default
        return options.text
    if plan is not None:
        return plan["text"]
    if options.offline and recipe.reads == "triplets":
        raise ValueError(f"{recipe.method} reads triplets, and none ship with the package: name a file of them as TEXT.")
    return recipes.offline_sentences_path() if options.offline else recipe.text


def changed(settings: recipes.Settings, options: argparse.Namespace) -> recipes.Settings:
    """Return settings with those that flags give."""
    given = recipes.with_changes(settings, **{field.name: getattr(options, field.name) for field in fields(recipes.Settings)})
    if options.epochs is not None and (options.max_steps or -1) > 0:
        raise ValueError("--epochs and --max-steps are two lengths of a training: give one.")
    return given


def encoder_to_train(
    options: argparse.Namespace, settings: recipes.Settings, *, is_demo: bool, plan: recipes.Protocol | None = None
) -> Any:
    """Build the encoder that a training starts from."""
    default = plan["encoder"] if plan else recipes.DEFAULT_MODEL
    if options.model is not None and not options.model.strip():
        raise ValueError(f"--model must name an encoder, got {options.model!r}: leave it out for {default}.")
    name = "the offline encoder" if is_demo else options.model or default
    template = {"template": plan["template"]} if plan and plan["template"] else {}
    if is_demo:
        model = recipes.offline_encoder(max_seq_length=256)  # the whole model's own limit
    else:
        model = recipes.build_encoder(name, pooling=settings.pooling, **template)
    own = recipes.pooling_of(model)
    if options.pooling not in (None, own, "mask"):  # a template is put on any model
        raise ValueError(
            f"--pooling {options.pooling} is for a plain transformer, and {name} is a sentence-transformers model "
            f"with {own} pooling of its own: leave --pooling out."
        )
    return model


def say_of_embedders(options: argparse.Namespace, *learning_rates: float) -> None:
    """Say before trainings at these rates start what more of it did to an encoder that embeds well already."""
    if options.model and recipes.has_pooling(options.model):
        advice = "If yours was, too, take --learning-rate 1e-5. Look" if max(learning_rates) > 1e-5 else "Look"
        print(
            f"{options.model} is a sentence encoder already. One that was trained with labels, all-MiniLM-L6-v2, gained up to "
            "a point of sentence similarity by 60 updates on a collection's text (on questions recommended lost up to one), "
            "and lost in search: hardly at 1e-5, points at 5e-5. By bag-of-words it lost in both "
            "(https://sbert-plugins.github.io/sbert-plugins/guides/text.html). "
            f"{advice} at labels of your own before and after."
        )
