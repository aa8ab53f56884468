"""What a model card says of a training: where the model comes from, how it was trained, what it scores."""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_plugins.host import revision_of
from sbert_plugins.recipes.encoders import OFFLINE_BASE, OFFLINE_LAYERS
from sbert_plugins.recipes.texts import file_name, text_name

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from sbert_plugins.evaluation import ScoredPairs


def encoder_name(model: SentenceTransformer) -> str:
    """Return the Hub name of an encoder, or what its folder is called: what may be printed and published."""
    transformer = model.transformers_model
    name = model.model_card_data.base_model or (transformer is not None and transformer.config.name_or_path)
    if name == OFFLINE_BASE and transformer is not None and (layers := transformer.config.num_hidden_layers) < OFFLINE_LAYERS:
        return f"{name} (its first {layers} layers)"
    return folder_name(name) if name and Path(name).exists() else name or type(model[0]).__name__


def folder_name(path: str | Path) -> str:
    """Return the last part of a path, for OUTPUT/model that of OUTPUT."""
    path = Path(path)
    if path.name in ("", ".."):  # of ".", which is a folder all the same
        path = Path(os.path.abspath(path))
    return path.parent.name if path.name == "model" and path.parent.name else path.name


def name_model(model: SentenceTransformer, encoder: str, method: str) -> None:
    """Give the card its heading before a checkpoint is saved, when the host would; a user's is kept, one of ours goes on.

    Args:
        model: The encoder.
        encoder: Its name.
        method: What trains it, with the keywords that somebody chose: words that took part are no fine print.
    """
    card, trained = model.model_card_data, f"{encoder} trained with "
    if card.model_name in (None, "", card.get_default_model_name()):  # the host's, of a model that was saved before
        card.model_name = f"{trained}{method}"
    elif card.model_name.startswith(trained):  # in this process, a training ago
        card.model_name += f", then with {method}"


def name_origin(model: SentenceTransformer, text: str | None) -> None:
    """Name base model, its licence and the text in the card, from what is here.

    The host asks the Hub whether a model of that name exists. Where the encoder lies in a directory its last two parts could
    be the name of somebody else's, so the card of that directory is read instead.

    Args:
        model: The encoder.
        text: A file, the name of a dataset on the Hub, or :data:`STS_SENTENCES`.
    """
    from huggingface_hub import constants

    card = model.model_card_data
    name = model.transformers_model.config.name_or_path if model.transformers_model is not None else ""
    is_local = not name or Path(name).exists()
    if is_local and card.base_model == name:  # the host found somebody else's of that name
        card.base_model = card.base_model_revision = None
    if not card.base_model and not is_local:
        card.base_model = name
    origin = _metadata(Path(name) / "README.md" if is_local else name, revision_of(model)) if name else {}
    if not card.base_model and isinstance(origin.get("base_model"), str):
        card.base_model = origin["base_model"]
    if not card.license and isinstance(origin.get("license"), str):
        card.license = origin["license"]
    card.local_files_only = card.local_files_only or is_local or constants.HF_HUB_OFFLINE
    if any("size" in dataset for dataset in card.train_datasets):  # the host's, of a training before this one
        card.train_datasets = []
    if text is not None and not card.train_datasets:
        path, name = Path(text), text_name(text)
        on_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", text) and not path.exists()  # anything else is somebody's own name for it
        card.train_datasets = [{"name": text, "id": text} if on_hub else {"name": file_name(path) if path.exists() else name}]


def _metadata(card: Path | str, revision: str | None = None) -> dict[str, Any]:
    from huggingface_hub import ModelCard, hf_hub_download

    # It warns of a card without YAML, which many a local encoder has.
    with _silent("huggingface_hub.repocard"):
        try:
            path = card if isinstance(card, Path) else hf_hub_download(card, "README.md", revision=revision)
            return ModelCard.load(path).data.to_dict()
        except Exception:  # no card, no network, no YAML in it: it has nothing to say
            return {}


@contextmanager
def _silent(name: str) -> Iterator[None]:
    named = logging.getLogger(name)
    was, named.disabled = named.disabled, True
    try:
        yield
    finally:
        named.disabled = was


@contextmanager
def examples_kept_private(model: SentenceTransformer, *, share: bool) -> Iterator[None]:
    """Keep sentences of the training out of the card, while a trainer is built that would collect some for it.

    The host shows the first rows as samples, and short sentences in the widget and in the lines of code.

    Args:
        model: The encoder.
        share: Whether to let the host do so.
    """
    card = model.model_card_data
    shown = card.widget
    if not share:
        card.widget = shown or [{}]  # where there is one, none is collected
    try:
        yield
    finally:
        if not share:
            card.widget = shown
            for dataset in (*card.train_datasets, *card.eval_datasets):
                dataset.pop("examples", None)
                dataset.pop("examples_table", None)


def add_earlier_logs(model: SentenceTransformer, history: Sequence[dict[str, Any]], score: str) -> None:
    """Put the updates before an interruption into the card's table: the host has what the last process made.

    Args:
        model: The trained encoder.
        history: The trainer's log, of all updates.
        score: Name of the score that chooses the checkpoint, as an evaluator has it; ``eval_`` is before it in the log.
    """
    card = model.model_card_data
    first = card.training_logs[0]["Step"] if card.training_logs else math.inf
    earlier: dict[int, dict[str, Any]] = {}
    for entry in history:
        found = {column: entry[key] for key, column in (("loss", "Training Loss"), (f"eval_{score}", score)) if key in entry}
        if found and entry["step"] < first:
            earlier.setdefault(entry["step"], {"Epoch": entry["epoch"], "Step": entry["step"]}).update(found)
    card.training_logs[:0] = earlier.values()


def describe_training(
    model: SentenceTransformer,
    settings: dict[str, Any],
    scores: dict[str, tuple[ScoredPairs, float, float]],
    *,
    paths: Sequence[str] = (),
) -> None:
    """Put settings and scores of a finished training into the card.

    Args:
        model: The trained encoder.
        settings: What the host's list of arguments lacks.
        scores: By name: the pairs, the score before and the score after. What was scored during the training, of other
            weights than those that are saved, goes.
        paths: Among the settings of the loss: the card has the last part of each, no folders.
    """
    from sbert_plugins.evaluation import PairsEvaluator

    card = model.model_card_data
    losses: list[Any] = [dataset.get("loss", {}) for dataset in card.train_datasets]
    for path in paths:
        for loss in losses:
            if code := loss.get("config_code"):
                loss["config_code"] = code.replace(json.dumps(path), json.dumps(Path(path).name or path))
    for shown in (card.non_default_hyperparameters, card.all_hyperparameters):
        shown.pop("learning_rate_mapping", None)  # by the names of all weights of the loss; loss_learning_rate says the same
        shown |= settings
    card.eval_results_dict = {}
    for name, (pairs, before, after) in scores.items():
        if math.isfinite(before + after):
            # The host's number of digits is four; these two are what is printed.
            values = {f"{name}_spearman": round(after, 2), f"{name}_before_training": round(before, 2)}
            card.eval_results_dict[PairsEvaluator(pairs, name=name)] = values
