"""Write the parts of the site that are read from code and records: ``_generated/`` and ``api/``, both ignored by git.

``conf.py`` calls it, so that no page can be older than what it shows.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import os
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any
from unittest import mock

import quality_tables
from tables import load_record, table

from sbert_plugins import cli, recipes
from sbert_plugins.recipes.keywords import default_keywords

HERE = Path(__file__).parent
ROOMS = ("losses", "losses.official", "functional", "modules", "data", "training", "evaluation", "recipes")
# The steps of speed.json that a method's page shows, and which of them a protocol trains by.
STEPS = {
    "arccse": ("ArcCSE with SAM", "ArcCSE"),
    "paser": ("PaSeR",),
    "denosent": ("DenoSent",),
    "pt-bert": ("PT-BERT pooled", "PT-BERT"),
    "slt-fai": ("SLT-FAI",),
    "consert": ("ConSERT",),
    "recommended": ("recommended",),
    "bag-of-words": ("bag of words",),
}
STEP_OF_PROTOCOL = {
    ("arccse", "paper"): "ArcCSE with SAM",
    ("paser", "paper"): "PaSeR as in its paper",
    ("paser", "official"): "PaSeR as in its paper",
    ("denosent", "paper"): "DenoSent as in its paper",
    ("denosent", "official"): "DenoSent as in its paper",
    ("pt-bert", "paper"): "PT-BERT",
    ("pt-bert", "official"): "PT-BERT pooled",
}
# What a recipe finds for a keyword of its loss, in words.
FOUND = {
    "attend_to": "tokens with mean pooling, else pooled",
    "synonyms": "0.5, where WordNet is installed",
    "warmup_steps": "0.1 epochs, round consert 0.5; at most half of the training",
}
SENTENCES = 30_000  # a text of one's own, for which the pages tell the cost


def main() -> None:
    """Write all of it anew."""
    pages = {f"{room}.md": api_page(room) for room in ROOMS}
    write("api", pages)
    for stub in (HERE / "api").glob("*.rst"):  # autosummary leaves those of names that are no more
        room, _, name = stub.stem.removeprefix("sbert_plugins.").rpartition(".")
        if f"   {name}\n" not in pages.get(f"{room}.md", ""):
            stub.unlink()
    write("_generated", fragments())


def write(folder: str, pages: dict[str, str]) -> None:
    """Write the pages that differ from what is there, so that Sphinx reads no others again."""
    directory = HERE / folder
    directory.mkdir(exist_ok=True)
    for name, text in pages.items():
        path = directory / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def fragments() -> dict[str, str]:
    """Return what pages include, by name."""
    parts = {"methods": methods_table()}
    parts |= {f"settings_{method}": settings_table(recipe) for method, recipe in recipes.RECIPES.items()}
    parts |= {f"expect_{method}": quality_tables.of_method(method) + "\n" + as_measured(method) for method in STEPS}
    parts |= {f"cost_{method}": cost_table(method) for method in STEPS}
    parts |= {f"command_{name}": text for name, text in commands()}
    return {f"{name}.md": text for name, text in parts.items()} | {"quickstart.py": quickstart()}


def api_page(room: str) -> str:
    """Return the page of a room: what its ``__all__`` names, classes and functions with a page each."""
    module = importlib.import_module(f"sbert_plugins.{room}")
    name = module.__name__
    public = {each: getattr(module, each) for each in sorted(module.__all__, key=str.lower)}
    documented = "".join(f"   {each}\n" for each, value in public.items() if callable(value))
    page = (
        f"# {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n\n.. currentmodule:: {name}\n\n"
        f".. autosummary::\n   :toctree:\n   :nosignatures:\n\n{documented}```\n"
    )
    constants = [[f"`{each}`", constant(value)] for each, value in public.items() if not callable(value)]
    return page + ("\n## Constants\n\n" + table(["name", "what it holds"], constants) if constants else "")


def constant(value: Any) -> str:
    """Say what a constant holds."""
    if isinstance(value, recipes.Recipe):
        return f"the recipe of {value.name} ({value.paper})"
    if isinstance(value, Mapping):
        return "by name: " + ", ".join(" ".join(key) if isinstance(key, tuple) else key for key in value)
    if isinstance(value, str):
        return f'"{value}"'
    return f"{len(value)} words" if isinstance(value, Set) else ", ".join(value)


def quickstart() -> str:
    """Return the README's script, which a test runs."""
    readme = (HERE.parent / "README.md").read_text(encoding="utf-8")
    return readme.partition("```python\n")[2].partition("```")[0]


def methods_table() -> str:
    """Return what ``sbert-plugins methods`` prints."""
    rows = [
        [f"`{recipe.method}`", f"[{recipe.name}]({recipe.url}), {recipe.paper}", recipe.columns_text, recipe.equation]
        for recipe in recipes.RECIPES.values()
    ]
    return table(["method", "paper", "columns", "what it does"], rows)


def settings_table(recipe: recipes.Recipe) -> str:
    """Return a table for each protocol of a method, of values and where they stand, beside what is the default here."""
    ours = own_values(recipe)
    protocols = [protocol for (method, _), protocol in recipes.PROTOCOLS.items() if method == recipe.method]
    if not protocols:
        return table(
            ["setting", "here"], [[f"`{name}`", shown(value, name)] for name, value in ours.items() if value is not None]
        )
    tables = []
    for protocol in protocols:
        rows = [
            [f"`{row.setting}`", shown(row.value, row.setting), row.source, shown(ours.get(row.setting, ""), row.setting)]
            for row in protocol.rows
        ]
        rows += [[f"`{name}`", "", "", shown(value, name)] for name, value in ours.items() if protocol[name] is None and value]
        rows = list({row[0]: row for row in reversed(rows)}.values())[::-1]
        title = f"`sbert-plugins train {recipe.method} --protocol {protocol.name}`"
        tables.append(f"{title}\n\n" + table(["setting", protocol.name, "where it stands", "default here"], rows))
    return "\n".join(tables)


def own_values(recipe: recipes.Recipe) -> dict[str, Any]:
    """Return what a recipe trains with unless told otherwise: its settings, and the keywords of what builds the loss."""
    keywords = default_keywords(recipe.method) | {key: FOUND[key] for key in recipe.chosen}
    shown_as = {key: ", ".join(value) if isinstance(value, list) else value for key, value in keywords.items()}
    where = {"encoder": recipes.DEFAULT_MODEL, "text": recipe.text}
    if recipe.prepare is not None:
        by_machine = {"synonyms": FOUND["synonyms"]} if recipe is recipes.PASER else {}
        made = recipe.prepare_with(None, **by_machine)
        where |= {f"columns.{name}": made[name] for name in ("extractor", "top_k", "synonyms")}
    settings = dataclasses.asdict(recipe.settings)
    if settings["max_steps"] > 0:  # which ends the training
        settings["epochs"] = None
    return where | settings | {f"loss.{key}": value for key, value in shown_as.items()}


def shown(value: Any, setting: str) -> str:
    """Return the value of a setting as a cell."""
    if value is None or value == "":
        return ""
    if setting == "max_steps" and value == -1:
        return "by epochs"
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def as_measured(method: str) -> str:
    """Say with which flags the command trains as the tables did, where its own settings are others."""
    own, measured = recipes.RECIPES[method].settings, quality_tables.settings_of_tables()
    changed = {
        name: value
        for name, value in dataclasses.asdict(measured).items()
        if name not in ("epochs", "eval_steps") and value != getattr(own, name)
    }
    if not changed:
        return "The command has the settings of the tables.\n"
    flags = " ".join(flag(name, value) for name, value in changed.items())
    own_way = "trains for an epoch of the text"  # or less of it, as its paper did
    if list(changed) != ["max_steps"]:
        screen = "; [CLS] was, at their rate, by a seed ([what it said](../choose.md#what-decides-as-much-as-the-method))"
        own_way = f"has its paper's settings, which no table here has measured{screen * (own.pooling == 'cls')}"
    return (
        f"The command {own_way}. As in the first table, and with 400 as in the longer one:\n\n```bash\n"
        f"sbert-plugins train {method} sentences.txt --model bert-base-uncased --output runs/as-measured \\\n  {flags}\n```\n"
    )


def flag(setting: str, value: Any) -> str:
    """Return a setting as the command line takes it."""
    name = setting.replace("_", "-")
    return f"--no-{name}" if value is False else f"--{name} {0 if value is None else value}"


def cost_table(method: str) -> str:
    """Return the time of trainings: steps of 64 sentences times the seconds of one in the record."""
    record = load_record("speed.json")
    recipe = recipes.RECIPES[method]
    one_epoch = dataclasses.replace(recipe.settings, epochs=1, max_steps=-1)
    count = SENTENCES * recipe.rows_a_sentence
    trainings = [(f"{SENTENCES:,} sentences, one epoch", STEPS[method], one_epoch, count)]
    if recipe.settings.updates(count) != one_epoch.updates(count):
        trainings.insert(0, (f"{SENTENCES:,} sentences, by default", STEPS[method], recipe.settings, count))
    for (of, name), protocol in recipes.PROTOCOLS.items():
        if of == method:
            steps = (STEP_OF_PROTOCOL.get((of, name), STEPS[method][0]),)
            rows_a_sentence = protocol["columns.top_k"] or recipe.rows_a_sentence
            trainings.append((f"`--protocol {name}`", steps, protocol.settings, protocol["sentences"] * rows_a_sentence))
    rows = []
    for training, of_training, settings, count in trainings:
        updates = settings.updates(count)
        steps = updates * settings.batch_size * settings.gradient_accumulation_steps / 64
        for step in of_training:
            seconds = record["median_seconds"][step]
            rows.append([training, f"{updates:,}", step, f"{seconds:.2f}", f"{steps * seconds / 3600:.1f}"])
    return (
        table(["training", "updates", "step", "seconds for 64 sentences", "hours"], rows)
        + f"\nAn encoder of 6 layers and width 384, length 32, one thread of {record['hardware']}; commit {record['commit']}. "
        "Of bert-base (12 layers, width 768) each layer has four times the weights: about eight times as long.\n"
    )


def commands() -> Iterator[tuple[str, str]]:
    """Yield the help of each command, at one width wherever it is made."""
    with mock.patch.dict(os.environ, {"COLUMNS": "90"}):
        for name, command in subcommands(cli.build_parser()):
            steps = [(f"{name}_{step}", inner) for step, inner in subcommands(command)]
            for title, parser in steps or [(name, command)]:
                yield title, f"```text\n{parser.format_help()}```\n"


def subcommands(parser: argparse.ArgumentParser) -> list[tuple[str, argparse.ArgumentParser]]:
    """Return the commands of a parser."""
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [item for action in actions for item in action.choices.items()]


if __name__ == "__main__":
    main()
