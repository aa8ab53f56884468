"""Write the parts of the site that come from code and records: ``_generated/`` and ``api/``, ignored by git.

``conf.py`` calls it before each build. Tables between marks such as ``<!-- demo -->`` are written by
``python benchmarks/tables.py`` instead, because they belong to pages that are also read on GitHub.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from types import ModuleType
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
    """Write all parts."""
    pages = {f"{room}.md": api_page(room) for room in ROOMS}
    write("api", pages)
    for stub in (HERE / "api").glob("*.rst"):  # autosummary does not delete stubs of removed names
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
    parts |= {"result": result(), "demo": tables.demo(), "starts": starts_table()}
    return {f"{name}.md": text for name, text in parts.items()}


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
    constants = [
        [f"`{each}`", constant(value)]
        for each, value in public.items()
        if not callable(value) and not isinstance(value, ModuleType)
    ]
    return page + ("\n## Constants\n\n" + table(["name", "what it holds"], constants) if constants else "")


def constant(value: Any) -> str:
    """Return a description of a constant."""
    if isinstance(value, recipes.Recipe):
        return f"the recipe of {value.title} ({value.paper})"
    if isinstance(value, Mapping):
        return "by name: " + ", ".join(" ".join(key) if isinstance(key, tuple) else key for key in value)
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, Set):
        return f"{len(value)} words"
    return ", ".join(value) if isinstance(value, Sequence) else f"`{value}`"


def result() -> str:
    """Return the picture of the home page, and its caption."""
    known = [(title, before, means["recommended"][0]) for title, before, means in tables.known_changes()]
    if known:
        caption = (
            "all-MiniLM-L6-v2 adapted to the text of each collection with `recommended`, without labels."
        )
    else:
        caption = "all-MiniLM-L6-v2 before and after the [demo](get_started.md#run-the-demo)."
    picture = change_picture(known or tables.demo_changes())
    return f"```{{raw}} html\n{picture}```\n\n*{caption} Scores are multiplied by 100.*\n"


def change_picture(changes: Sequence[tuple[str, float, float]]) -> str:
    """Draw the changes of scores as bars: an SVG with the text colour of the page, readable on a phone."""
    row, left, unit = 46, 60, 200 / max(2.0, *(abs(after - before) for _, before, after in changes))
    parts = []
    for place, (title, before, after) in enumerate(changes):
        change, top = after - before, place * row
        width = abs(change) * unit
        colour, start = ("#0072b2", left) if change >= 0 else ("#d55e00", left - width)
        parts.append(
            f'<text x="{left}" y="{top + 14}">{title}</text>'
            f'<rect x="{start:.1f}" y="{top + 20}" width="{width:.1f}" height="14" fill="{colour}"/>'
            f'<text x="{left + max(width, 0) * (change >= 0) + 6:.1f}" y="{top + 32}">{change:+.1f} '
            f"({before:.1f} to {after:.1f})</text>"
        )
    height = row * len(changes)
    axis = f'<line x1="{left}" y1="0" x2="{left}" y2="{height}" stroke="currentColor"/>'
    return (
        f'<svg viewBox="0 0 460 {height}" role="img" aria-label="Changes of scores" fill="currentColor" '
        f'font-size="14" style="max-width: 34rem; width: 100%">{axis}{"".join(parts)}</svg>\n'
    )


def starts_table() -> str:
    """Return what ``recommended`` does for the two kinds of start."""
    rows = []
    for embeds, kind, example in (
        (True, "an embedding model: it has a pooling layer", "all-MiniLM-L6-v2"),
        (False, "a plain language model: it has none", "bert-base-uncased"),
    ):
        adaptation = recipes.RECIPES["recommended"].adapt_to(embeds=embeds)
        keep = adaptation.loss_keywords.get("keep")
        rate = f"{adaptation.arguments['learning_rate']:g}"
        rows.append([kind, example, rate, f"yes, with weight {keep:g}" if keep else "no"])
    return table(["start", "example", "learning rate", "self-distillation"], rows)


def methods_table() -> str:
    """Return a table of the methods."""
    rows = [
        [
            f"`{recipe.name}`",
            f"[{recipe.title}]({recipe.url}), {recipe.paper}",
            columns_of(recipe),
            recipe.summary,
        ]
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
        f"sbert-plugins train {method} sentences.txt --model bert-base-uncased --output runs/as-measured "
        f"\\\n  {given}\n```\n"
    )


def updates_of(arguments: Mapping[str, Any], sentences: int) -> int:
    """Return how many updates a training makes."""
    if "max_steps" in arguments:
        return arguments["max_steps"]
    rows = arguments["per_device_train_batch_size"] * arguments.get("gradient_accumulation_steps", 1)
    return math.ceil(arguments["num_train_epochs"] * sentences / rows)


def cost_table(method: str) -> str:
    """Return the time of trainings: steps of 64 sentences times the seconds of one step in the record."""
    steps_measured = [line for line in records.read("speed") if line["method"] == STEPS[method]]
    if not steps_measured:
        return ""
    (step,) = steps_measured
    trainings = [(f"{SENTENCES:,} sentences, by default", recipes.RECIPES[method].arguments, SENTENCES)]
    for name in recipes.protocol_names().get(method, []):
        plan = recipes.read_protocol(method, name)
        count = plan.section("about")["sentences"] * plan.section("columns").get("top_k", 1)
        trainings.append((f"`--protocol {name}`", plan.section("arguments"), count))
    rows = []
    for training, arguments, count in trainings:
        updates = updates_of(arguments, count)
        steps = (
            arguments["per_device_train_batch_size"] * arguments.get("gradient_accumulation_steps", 1) / 64
        )
        steps *= 2 if arguments.get("sam_rho") else 1  # SAM makes two passes
        hours = updates * steps * step["seconds"] / 3600
        rows.append([training, f"{updates:,}", f"{step['seconds']:.2f}", f"{hours:.1f}"])
    return (
        table(["training", "updates", "seconds for 64 sentences", "hours"], rows)
        + f"\nAn encoder of 6 layers and width 384, 32 tokens, one thread of {step['hardware']}; commit "
        f"{step['commit']}. "
        "A step of bert-base (12 layers, width 768) takes about eight times as long.\n"
    )


def commands() -> Iterator[tuple[str, str]]:
    """Yield the help of each command, at one width wherever it is made."""
    with mock.patch.dict(os.environ, {"COLUMNS": "90"}):
        yield "main", f"```text\n{cli.build_parser().format_help()}```\n"
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
