"""Write the parts of the site that are read from code and records, into ``_generated/`` and ``api/``.

``conf.py`` calls it, so no page is older than the code and the records. Git ignores both folders.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from statistics import fmean
from types import UnionType
from typing import Any
from unittest import mock

import tables
from tables import RECOMMENDED, table

from sbert_plugins import cli, losses, recipes
from sbert_plugins.recipes import recommended

HERE = Path(__file__).parent
# The public names of each room. None stands for its ``__all__``.
ROOMS: dict[str, tuple[str, ...] | None] = {
    "losses": None,
    "losses.official": None,
    "losses.base": ("Loss",),
    "functional": None,
    "encoder": ("Encoder", "Pass", "View", "TokenRoles"),
    "modules": None,
    "data": None,
    "training": None,
    "evaluation": None,
    "recipes": None,
}


def main() -> None:
    """Write all pages and fragments."""
    pages = {f"{room}.md": api_page(room, names) for room, names in ROOMS.items()}
    write("api", pages)
    for stub in (HERE / "api").glob("*.rst"):  # autosummary keeps the pages of names that were removed
        room, _, name = stub.stem.removeprefix("sbert_plugins.").rpartition(".")
        if f"   {name}\n" not in pages.get(f"{room}.md", ""):
            stub.unlink()
    write("_generated", fragments())


def write(folder: str, pages: dict[str, str]) -> None:
    """Write the pages that differ from the files, so that Sphinx reads no others again."""
    directory = HERE / folder
    directory.mkdir(exist_ok=True)
    for name, text in pages.items():
        path = directory / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def fragments() -> dict[str, str]:
    """Return the texts that pages include, by name."""
    parts = {"methods": methods_table()}
    parts |= {f"settings_{method}": settings_table(method) for method in SETTINGS}
    parts |= {f"expect_{method}": expectations(method) for method in EXPECTED}
    parts |= {f"command_{name}": text for name, text in commands()}
    parts["starts"] = starts_table()
    return {f"{name}.md": text for name, text in parts.items()}


# --- API ----------------------------------------------------------------------------------------------------


def api_page(room: str, names: tuple[str, ...] | None) -> str:
    """Return the page of a room: a list of its public names, each with a page."""
    module = importlib.import_module(f"sbert_plugins.{room}")
    name = module.__name__
    public = {each: getattr(module, each) for each in sorted(names or module.__all__, key=str.lower)}
    documented = "".join(f"   {each}\n" for each, value in public.items() if callable(value))
    page = (
        f"# {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n\n.. currentmodule:: {name}\n\n"
        f".. autosummary::\n   :toctree:\n   :nosignatures:\n\n{documented}```\n"
    )
    constants = [[f"`{each}`", constant(value)] for each, value in public.items() if not callable(value)]
    return page + ("\n## Constants\n\n" + table(["name", "value"], constants) if constants else "")


def constant(value: Any) -> str:
    """Return a short description of a constant."""
    if isinstance(value, Mapping):
        return "a dict with the keys " + ", ".join(
            " ".join(key) if isinstance(key, tuple) else key for key in value
        )
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, UnionType):
        return " or ".join(each.__name__ for each in value.__args__)
    return f"{len(value)} words" if isinstance(value, Set) else ", ".join(value)


# --- Defaults -----------------------------------------------------------------------------------------------


def starts_table() -> str:
    """Return what ``recommended`` does for the two kinds of start."""
    rows = []
    for keep, kind, example in (
        (recommended.KEEP, "an embedding model: it has the file `modules.json`", "all-MiniLM-L6-v2"),
        (0.0, "a plain language model: it has none", "bert-base-uncased"),
    ):
        rows.append([kind, example, f"yes, with weight {keep:g}" if keep else "no"])
    return table(["start", "example", "self-distillation"], rows)


# --- The command line ---------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, str]]:
    """Yield the help of each command, with the same line width on every machine."""
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


# --- The pages of the methods -------------------------------------------------------------------------------


def methods_table() -> str:
    """Return a table of all methods."""
    rows = []
    for recipe in recipes.RECIPES.values():
        columns = ", ".join(recipe.made_columns or recipe.reads) + "".join(
            f" [, {one}]" for one in recipe.optional
        )
        about = recipe.about
        rows.append([f"`{recipe.name}`", f"[{about.paper}]({about.url})", columns, about.summary])
    return table(["method", "source", "columns", "what it computes"], rows)


# The settings that the page of a method shows: names in its protocols, at most fifteen.
SETTINGS = {
    "arccse": (
        "pooling max_seq_length learning_rate per_device_train_batch_size gradient_accumulation_steps "
        "num_train_epochs sam_rho temperature margin_degrees triplet_weight triplet_margin near_mask_ratio "
        "far_mask_ratio min_words projection_head"
    ),
    "paser": (
        "pooling max_seq_length learning_rate per_device_train_batch_size num_train_epochs top_k synonyms "
        "decoder_layers decoder_heads difference_scale product_scale signed normalize_memory mlm_weight "
        "mlm_probability"
    ),
    "denosent": (
        "template pooling max_seq_length positives learning_rate max_steps temperature contrastive_weight "
        "denoising_weight decoder_layers decoder_heads noise_dropout reconstruct projector"
    ),
    "pt-bert": (
        "pooling max_seq_length learning_rate per_device_train_batch_size num_train_epochs temperature "
        "num_pseudo_tokens attend_to queue_size negatives momentum momentum_dropout projection_head"
    ),
    "slt-fai": (
        "backbone pooling max_seq_length learning_rate per_device_train_batch_size temperature warmup_steps "
        "adversarial_weight filtering_weight balance reversal_strength low_frequency_by low_frequency_share "
        "masking_ratio"
    ),
}
# Defaults that no recipe or signature states, because they depend on the text, the pooling or the training.
FOUND_HERE = {
    ("arccse", "max_seq_length"): "the model's limit",
    ("paser", "learning_rate"): "3e-5, decoder 1e-3",
    ("paser", "synonyms"): "0.5 with WordNet, else none",
    ("paser", "top_k"): "3",
    ("denosent", "template"): recipes.DEFAULT_TEMPLATE,
    ("denosent", "positives"): "dropout; --paraphrases FILE",
    ("denosent", "max_steps"): "one epoch, at most 5,000",
    ("pt-bert", "attend_to"): "tokens with mean pooling, else pooled",
    ("pt-bert", "negatives"): "255",
    ("slt-fai", "backbone"): "simcse",
    ("slt-fai", "temperature"): "0.05, ConSERT 0.1",
    ("slt-fai", "warmup_steps"): "0.1 of one epoch; ConSERT: 0.5 epochs",
}


def settings_table(method: str) -> str:
    """Return a table of settings: the paper's, those of its authors' code, and the defaults here."""
    recipe, names = recipes.RECIPES[method], SETTINGS[method].split()
    sources = {"paper": "paper", "official": "authors' code"}
    plans = {
        title: recipes.read_protocol(method, name)
        for name, title in sources.items()
        if name in recipes.protocol_names()[method]
    }
    stated = {title: {one.name: one for one in plan.settings} for title, plan in plans.items()}
    signature = inspect.signature(getattr(losses, recipe.loss_class or recipe.loss)).parameters
    ours: dict[str, Any] = {name: one.default for name, one in signature.items()}
    ours |= {"pooling": recipe.pooling, "max_seq_length": recipe.max_seq_length, **recipe.arguments}
    rows = []
    for name in names:
        section = stated["paper"][name].section
        label = f"`--{name}`" if section == "arguments" or name in ("pooling", "max_seq_length") else name
        label = f"`--loss {name}`" if section == "loss" else label
        here = FOUND_HERE.get((method, name)) or shown(ours[name])
        rows.append(
            [
                label,
                *(shown(values[name].value) if name in values else "" for values in stated.values()),
                here,
            ]
        )
    return table(["setting", *stated, "here"], rows)


def shown(value: Any) -> str:
    """Return the value of a setting as a cell."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return f"{value:.3g}".replace("e-0", "e-")
    return f"{value:,}" if isinstance(value, int) else value


# The rows of quality.jsonl that the page of a method shows: label and pooling, and the title of the row.
EXPECTED: dict[str, dict[tuple[str, str], str]] = {
    "recommended": {
        (RECOMMENDED, "mean"): "`recommended`",
        ("ConSERT with head", "mean"): "`recommended --loss words=0`",
    },
    "arccse": {
        ("ArcCSE", "mean"): "ArcCSE",
        ("ArcCSE", "cls"): "ArcCSE, [CLS]",
        ("ArcCSE, temperature 0.1", "mean"): "ArcCSE, `temperature=0.1`",
    },
    "paser": {
        ("PaSeR", "mean"): "PaSeR",
        ("PaSeR", "cls"): "PaSeR, [CLS]",
        ("PaSeR, words only", "mean"): "not the paper: `decoder_layers=0`",
    },
    "denosent": {
        ("DenoSent", "mean"): "DenoSent, mean pooling",
        ("DenoSent", "mask"): "DenoSent, template and mask pooling",
        ("SimCSE 0.1 + bag of words", "mean"): "not the paper: SimCSE 0.1 + bag of words",
    },
    "pt-bert": {
        ("PT-BERT", "mean"): "PT-BERT, `attend_to=tokens`",
        ("PT-BERT, pooled", "cls"): "PT-BERT, [CLS], `attend_to=pooled`",
        ("PT-BERT, momentum 0.5", "mean"): "PT-BERT, `momentum=0.5`",
    },
    "slt-fai": {
        ("SLT-FAI", "mean"): "SLT-FAI around SimCSE 0.05",
        ("SLT-FAI, bounded", "mean"): "not the paper: `balance=0.1`",
    },
    "bag-of-words": {
        ("bag of words", "mean"): "bag of words",
        ("bag of words, pretrained head", "mean"): "bag of words, `mlm_head=pretrained`",
        ("SimCSE 0.1 + bag of words", "mean"): "SimCSE 0.1 + bag of words",
        ("ConSERT", "mean"): "ConSERT",
    },
}
COMPARED = {
    ("start", "mean"): "before training",
    ("SimCSE 0.05", "mean"): "SimCSE, temperature 0.05",
    ("SimCSE 0.1", "mean"): "SimCSE, temperature 0.1",
}

CAPTION = """
Average of the {term}`seven STS tasks` ({term}`Spearman`): mean ± {term}`standard error` over five seeds, or
over the number in brackets. Encoder: minilm-mlm (six layers, width 384). It descends from all-MiniLM-L6-v2,
so a part of each gain is recovered knowledge. 64 sentences per update, mean pooling unless noted.
SimCSE is a {term}`contrastive loss` on two {term}`dropout views <dropout view>`.
The first three columns are trainings on 20,000, 26,000 and 117,000 short sentences. STS-B dev selected the
checkpoint. The last column is what a training of 400 updates lost in STS-B dev between its best checkpoint
and its end.
"""


def expectations(method: str) -> str:
    """Return a table of the average of the seven STS tasks after trainings of a method."""
    recommended = {} if method == "recommended" else {(RECOMMENDED, "mean"): "`recommended`"}
    rows = []
    for (label, pooling), title in (COMPARED | EXPECTED[method] | recommended).items():
        cells = [measured(label, pooling, *budget) for budget in tables.BUDGETS.values()]
        if label == "start":
            rows.append([title, *[f"{cells[0][0]['scores']['avg7']:.1f}"] * len(cells), ""])
        elif any(cells):
            falls = [max(dev for _, dev in cell["curve"]) - cell["curve"][-1][1] for cell in cells[1]]
            means = [tables.mean_text([one["scores"]["avg7"] for one in cell], digits=1) for cell in cells]
            rows.append([title, *means, f"{fmean(falls):.1f}" if falls else ""])
    return table(["", *tables.BUDGETS, "fall after the best, 400"], rows) + CAPTION


def measured(label: str, pooling: str, text: str, updates: int) -> list[dict[str, Any]]:
    """Return the records of a training, at 5e-5 or else at the 3e-5 of the papers."""
    at_default = tables.find(label, text, updates, pooling=pooling)
    return at_default or tables.find(label, text, updates, pooling=pooling, learning_rate=3e-5)


if __name__ == "__main__":
    main()
