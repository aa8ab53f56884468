"""The section of a model card about a training: base model, data, settings, scores and verdict."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from sbert_plugins.evaluation import format_score
from sbert_plugins.recipes.recipe import Recipe

_BEFORE = "\n## Training Details\n"  # a heading of sentence-transformers' card
_SHOWN = (
    "learning_rate",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "sam_rho",
    "learning_rate_mapping",
)


@contextmanager
def private_examples(model: SentenceTransformer, *, share: bool) -> Iterator[None]:
    """Keep sentences of the training out of the model card while a trainer is built, unless ``share``."""
    card = model.model_card_data
    widget = card.widget
    if not share:
        card.widget = [{}]  # the trainer collects examples where there are none
    yield
    if not share:
        card.widget = widget
        for dataset in card.train_datasets:
            dataset.pop("examples", None)
            dataset.pop("examples_table", None)


def name_data(model: SentenceTransformer, text: str | None) -> None:
    """Name the text in the model card, and do not search the Hub for the name of a local folder."""
    card, transformer = model.model_card_data, model.transformers_model
    if transformer is not None and Path(str(transformer.config.name_or_path)).exists():
        card.local_files_only = True
    if text is not None:
        on_hub = {"id": text} if re.fullmatch(r"[\w.-]+/[\w.-]+", text) else {}
        card.train_datasets = [{"name": text, **on_hub}]


def write_card(folder: Path, recipe: Recipe, results: Mapping[str, Any]) -> None:
    """Insert the section about a training into the card of a saved model.

    Args:
        folder: The folder of the saved model.
        recipe: The method.
        results: What ``results.json`` holds.
    """
    arguments, length = results["arguments"], results["max_seq_length"]
    settings = ", ".join(f"{name} {arguments[name]}" for name in _SHOWN if arguments.get(name))
    about = recipe.about
    source = f"{about.paper}, <{about.url}>" if about.url else about.paper
    updates = f"{results['updates']:,} updates, the model of update {results['saved_update']:,} is saved"
    if recipe.name == "search" and not results["updates"]:
        power = results["log"][-1]["power"]
        weights = f"token weights (idf ** {power:g})" if power else "no token weights"
        updates = f"no updates: the model has {weights} and no linear map"
    lines = [
        "",
        "## How It Was Trained",
        "",
        f"- **Method:** {about.title} ({source})" + (f": {about.summary}" if about.summary else ""),
        f"- **Start:** {results['encoder']}, {results['pooling']} pooling",
        f"- **Text:** {results['text'] or 'not named'}: {results['read'].removeprefix('text: ')}",
        f"- **Length:** {updates}",
        f"- **Settings:** {settings}, seed {results['seed']}, {length['training']} tokens in training, "
        f"{length['model']} in this model",
    ]
    if results["start_weight"]:
        lines.append(f"- **Averaged with the start:** weight {results['start_weight']}")
    if deviations := results["deviations"]:
        listed = ", ".join(f"{name} {value} (paper: {paper})" for name, (paper, value) in deviations.items())
        lines.append(f"- **Settings that differ from the paper's:** {listed}")
    if results["changes"]:
        rows = [
            f"| {one['name']}, {one['metric']} | "
            f"{format_score(one['before'])} | {format_score(one['after'])} |"
            for one in results["changes"]
        ]
        verdict = [f"- {sentence}" for sentence in results["verdict"]]
        lines += ["", "| Score | Start | This model |", "|:--|--:|--:|", *rows, "", *verdict]
    path = folder / "README.md"
    start, _, end = path.read_text(encoding="utf-8").partition(_BEFORE)
    path.write_text("\n".join([start, *lines, _BEFORE, end]), encoding="utf-8")
