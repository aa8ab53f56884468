"""Write the parts of the site that are read from code and records: ``_generated/`` and ``api/``, both ignored by git.

``conf.py`` calls it, so that no page can be older than what it shows.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

import report

from sbert_plugins import cli, losses, recipes

HERE = Path(__file__).parent
ROOMS = ("losses", "functional", "modules", "data", "training", "evaluation", "recipes")
# Of a paper's page: the steps of speed.json, the rows of PaSeR's columns a sentence, and the paper's sentences and epochs.
COSTS = {
    "arccse": (("ArcCSE", "ArcCSE with SAM"), 1, 1_000_000, 1),
    "paser": (("PaSeR",), 3, 29_510, 5),
    "denosent": (("DenoSent",), 1, 1_000_000, 1),
    "pt-bert": (("PT-BERT", "PT-BERT pooled"), 1, 1_000_000, 1),
    "slt-fai": (("SLT-FAI",), 1, 1_000_000, 1),
}
SENTENCES = 30_000  # a text of one's own, for which the pages tell the cost


def main() -> None:
    """Write all of it anew."""
    write("api", {f"{room}.md": api_page(room) for room in ROOMS})
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
    parts |= {f"expect_{method}": report.of_method(method) for method in (*COSTS, "consert", "words")}
    parts |= {f"cost_{method}": cost_table(method) for method in COSTS}
    parts |= {f"command_{name}": text for name, text in commands()}
    return {f"{name}.md": text for name, text in parts.items()} | {"quickstart.py": quickstart()}


def api_page(room: str) -> str:
    """Return the page of a room: what its ``__all__`` names, each with a page of its own."""
    module = importlib.import_module(f"sbert_plugins.{room}")
    names = "".join(f"   {name}\n" for name in sorted(module.__all__, key=lambda name: (name.isupper(), name.lower())))
    name = module.__name__
    return (
        f"# {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n\n.. currentmodule:: {name}\n\n"
        f".. autosummary::\n   :toctree:\n   :nosignatures:\n\n{names}```\n"
    )


def quickstart() -> str:
    """Return the README's script, which a test runs."""
    readme = (report.ROOT / "README.md").read_text(encoding="utf-8")
    return readme.partition("```python\n")[2].partition("```")[0]


def methods_table() -> str:
    """Return what ``sbert-plugins methods`` prints."""
    rows = [
        [f"`{recipe.method}`", f"[{recipe.name}]({recipe.url}), {recipe.paper}", recipe.columns_text, recipe.equation]
        for recipe in recipes.RECIPES.values()
    ]
    return report.table(["method", "paper", "columns", "what it does"], rows)


def settings_table(recipe: recipes.Recipe) -> str:
    """Return the settings of a recipe and the keywords of its loss, beside those with which the loss is the paper's."""
    rows = [[f"`{name}`", shown(value), ""] for name, value in asdict(recipe.settings).items()]
    for name, value in keywords_of(recipe).items():
        rows.append([f"`{name}`", shown(value), shown(recipe.paper_keywords.get(name, value))])
    return report.table(["setting", f"`train {recipe.method}`", "the paper's keyword"], rows)


def keywords_of(recipe: recipes.Recipe) -> dict[str, Any]:
    """Return the defaults of what builds the loss; a recipe that goes round another loss has those of its class."""
    found: dict[str, Any] = {}
    for build in (getattr(losses, recipe.loss), recipe.build):
        for name, parameter in inspect.signature(build).parameters.items() if build else ():
            if parameter.kind is parameter.KEYWORD_ONLY:
                found[name] = parameter.default
    return {name: value for name, value in found.items() if value is not inspect.Parameter.empty}


def shown(value: Any) -> str:
    """Return a value as a cell."""
    return "" if value is None else f"`{value}`" if isinstance(value, str | tuple | bool) else f"{value:,}"


def cost_table(method: str) -> str:
    """Return the time of trainings: steps of 64 sentences times the seconds of one in the record."""
    record = json.loads((report.RESULTS / "speed.json").read_text(encoding="utf-8"))
    steps, rows_a_sentence, paper_sentences, paper_epochs = COSTS[method]
    trainings = {
        f"{SENTENCES:,} sentences, one epoch": SENTENCES * rows_a_sentence,
        f"the paper's {paper_sentences:,} sentences, {paper_epochs} epoch{'s' * (paper_epochs > 1)}": (
            paper_sentences * rows_a_sentence * paper_epochs
        ),
    }
    rows = []
    for training, sentences in trainings.items():
        updates = -(-sentences // 64)
        for step in steps:
            seconds = record["median_seconds"][step]
            rows.append([training, step, f"{updates:,}", f"{seconds:.2f}", f"{updates * seconds / 3600:.1f}"])
    return (
        report.table(["training", "step", "steps of 64", "seconds a step", "hours"], rows)
        + f"\nAn encoder of 6 layers and width 384, length 32, one thread of {record['hardware']}; commit {record['commit']}. "
        "Of bert-base (12 layers, width 768) each layer has four times the weights: about eight times as long.\n"
    )


def commands() -> Iterator[tuple[str, str]]:
    """Yield the help of each command, at one width wherever it is made."""
    with mock.patch.dict(os.environ, {"COLUMNS": "100", "SBERT_PLUGINS_DATA": ""}):
        parser = cli.build_parser()
        for name, command in subcommands(parser):
            yield name.replace(" ", "_"), f"```text\n{command.format_help()}```\n"
            for step, inner in subcommands(command):
                yield f"{name}_{step}", f"```text\n{inner.format_help()}```\n"


def subcommands(parser: argparse.ArgumentParser) -> list[tuple[str, argparse.ArgumentParser]]:
    """Return the commands of a parser."""
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [item for action in actions for item in action.choices.items()]


if __name__ == "__main__":
    main()
