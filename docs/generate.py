"""Write the parts of the site that are read from code and records: ``_generated/`` and ``api/``, both ignored by git.

``conf.py`` calls it, so that no page can be older than what it shows.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any
from unittest import mock

import records
import tables
from tables import table

from sbert_plugins import cli, recipes

HERE = Path(__file__).parent
ROOMS = ("losses", "losses.official", "functional", "modules", "data", "training", "evaluation", "recipes")
# The steps of benchmarks/results/speed.jsonl that the pages of the methods show.
STEPS = {
    "arccse": "ArcCSE",
    "paser": "PaSeR",
    "denosent": "DenoSent",
    "pt-bert": "PT-BERT",
    "slt-fai": "SLT-FAI",
    "consert": "ConSERT",
    "recommended": "recommended",
    "bag-of-words": "bag of words",
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
    parts |= {f"expect_{method}": tables.of_method(method) + "\n" + as_measured(method) for method in STEPS}
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
        return f"the recipe of {value.title} ({value.paper})"
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
    """Return a table of the methods."""
    rows = [
        [f"`{recipe.name}`", f"[{recipe.title}]({recipe.url}), {recipe.paper}", columns_of(recipe), recipe.summary]
        for recipe in recipes.RECIPES.values()
    ]
    return table(["method", "paper", "columns", "what it computes"], rows)


def columns_of(recipe: recipes.Recipe) -> str:
    """Return the columns that a method reads: ``anchor [, positive]``."""
    return ", ".join(recipe.columns) + (f" [, {recipe.second_column}]" if recipe.second_column else "")


def settings_table(recipe: recipes.Recipe) -> str:
    """Return a table for each protocol of a method: value, source, and the default of the recipe."""
    ours = own_values(recipe)
    names = recipes.protocol_names().get(recipe.name, [])
    if not names:
        return table(["setting", "here"], [[f"`{name}`", shown(value, name)] for name, value in ours.items()])
    prefix = {"loss": "loss.", "columns": "columns."}
    parts = []
    for name in names:
        rows = [
            [f"`{key}`", shown(one.value, key), one.source, shown(ours.get(key, ""), key)]
            for one in recipes.read_protocol(recipe.name, name).settings
            for key in [prefix.get(one.section, "") + one.name]
        ]
        title = f"`sbert-plugins train {recipe.name} --protocol {name}`"
        parts.append(f"{title}\n\n" + table(["setting", name, "where it is stated", "default here"], rows))
    return "\n".join(parts)


def own_values(recipe: recipes.Recipe) -> dict[str, Any]:
    """Return the settings of a recipe."""
    start = {"pooling": recipe.pooling, "max_seq_length": recipe.max_seq_length, "text": recipe.text}
    return start | recipe.arguments


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
    """Return the command that trains as the tables did."""
    given = "--pooling mean --learning_rate 5e-5 --per_device_train_batch_size 64 --max_steps 60"
    return (
        "As in the tables:\n\n```bash\n"
        f"sbert-plugins train {method} sentences.txt --model bert-base-uncased --output runs/as-measured \\\n  {given}\n```\n"
    )


def updates_of(arguments: Mapping[str, Any], sentences: int) -> int:
    """Return how many updates a training makes."""
    if "max_steps" in arguments:
        return arguments["max_steps"]
    rows = arguments["per_device_train_batch_size"] * arguments.get("gradient_accumulation_steps", 1)
    return math.ceil(arguments["num_train_epochs"] * sentences / rows)


def cost_table(method: str) -> str:
    """Return the time of trainings: steps of 64 sentences times the seconds of one step in the record."""
    (step,) = [line for line in records.read("speed") if line["method"] == STEPS[method]]
    trainings = [(f"{SENTENCES:,} sentences, by default", recipes.RECIPES[method].arguments, SENTENCES)]
    for name in recipes.protocol_names().get(method, []):
        plan = recipes.read_protocol(method, name)
        count = plan.section("about")["sentences"] * plan.section("columns").get("top_k", 1)
        trainings.append((f"`--protocol {name}`", plan.section("arguments"), count))
    rows = []
    for training, arguments, count in trainings:
        updates = updates_of(arguments, count)
        steps = arguments["per_device_train_batch_size"] * arguments.get("gradient_accumulation_steps", 1) / 64
        steps *= 2 if arguments.get("sam_rho") else 1  # SAM makes two passes
        hours = updates * steps * step["seconds"] / 3600
        rows.append([training, f"{updates:,}", f"{step['seconds']:.2f}", f"{hours:.1f}"])
    return (
        table(["training", "updates", "seconds for 64 sentences", "hours"], rows)
        + f"\nAn encoder of 6 layers and width 384, 32 tokens, one thread of {step['hardware']}; commit {step['commit']}. "
        "A step of bert-base (12 layers, width 768) takes about eight times as long.\n"
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
