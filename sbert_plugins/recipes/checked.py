"""A training before it starts: what is refused, and what makes it this one, as run.json holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sbert_plugins.recipes.building import settings_of
from sbert_plugins.recipes.encoders import check_encoder, pooling_of
from sbert_plugins.recipes.keywords import default_keywords
from sbert_plugins.recipes.methods import recipe_of
from sbert_plugins.recipes.output import RUN_FILE, encoder_mark, encoder_settings, pairs_mark, read_results, text_mark
from sbert_plugins.recipes.own import digest_of, source_of
from sbert_plugins.recipes.protocol import Protocol
from sbert_plugins.recipes.protocols import protocol_of
from sbert_plugins.recipes.settings import Recipe, Settings, shortened
from sbert_plugins.recipes.texts import what_is_unread

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from sbert_plugins.evaluation import ScoredPairs


class Run(NamedTuple):
    """A training that has been checked: nothing is written yet."""

    recipe: Recipe
    settings: Settings
    output: Path
    json: dict[str, Any]  # what run.json will hold
    plan: Protocol | None
    unread: str  # what is said of tokens that the encoder does not know


def checked_run(
    method: str,
    sentences: Dataset,
    model: SentenceTransformer,
    output: str | Path,
    *,
    settings: Settings | None,
    seed: int,
    bf16: bool | None,
    loss_keywords: dict[str, Any] | None,
    columns: dict[str, Any] | None,
    protocol: str | None,
    text: str | None,
    dev: ScoredPairs | None,
    resume: bool = False,
) -> Run:
    """Refuse what cannot be trained; the arguments are those of :func:`train`."""
    recipe = recipe_of(method)
    _check_kinds(sentences, model, settings, dev)
    check_encoder(model)
    plan = None if protocol is None else protocol_of(method, protocol)
    keywords = (plan.loss_keywords if plan else {}) | (loss_keywords or {})
    if settings is None:
        made = replace(recipe, rows_a_sentence=1) if are_columns(recipe, sentences) else recipe
        settings = plan.settings if plan else shortened(made, settings_of(method, keywords), len(sentences))
    if plan is not None:
        if keywords.get("backbone") != plan["loss.backbone"]:
            raise ValueError(
                f"the protocol {plan.name} of {plan.method} goes round {plan['loss.backbone']}, got {keywords['backbone']}: "
                "leave the backbone to the protocol, or train without one."
            )
        bf16 = plan["bf16"] if bf16 is None else bf16
        _check_protocol(plan, settings, sentences, model, columns or {})
    check_seed(seed)
    check_count(sentences)
    check_columns(recipe, sentences.column_names)
    unread = what_is_unread(sentences, model)
    begun = Path(output) / RUN_FILE
    before = read_results(begun).get("prepared") if resume and begun.exists() else None
    prepared = how_prepared(recipe, sentences, (before or {}) | (plan.columns if plan else {}))
    values = run_values(method, sentences, model, settings, seed, bf16, keywords, columns or {}, prepared, text, dev)
    return Run(recipe, settings, Path(output), values | {"protocol": protocol}, plan, unread)


def check_count(sentences: Dataset) -> None:
    """Refuse fewer sentences than a training needs."""
    if len(sentences) < 2:
        raise ValueError(f"training needs at least 2 sentences, got {len(sentences)}: a sentence has no negative but others.")


def _check_kinds(sentences: object, model: object, settings: object, dev: object) -> None:
    """Refuse what is easily taken for a dataset, an encoder, settings and scored pairs."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from sbert_plugins.evaluation import ScoredPairs

    if dev is not None and not isinstance(dev, ScoredPairs):
        raise ValueError(f"dev must be evaluation.ScoredPairs, got {type(dev).__name__}: evaluation.load_sts('STS-B dev').")
    if not isinstance(sentences, Dataset):
        raise ValueError(
            f"sentences must be a datasets.Dataset, got {type(sentences).__name__}: data.read_sentences(path), or "
            "Dataset.from_dict({'anchor': [...]})."
        )
    if not isinstance(model, SentenceTransformer):
        raise ValueError(f"model must be a SentenceTransformer, got {type(model).__name__}: recipes.build_encoder(name).")
    if settings is not None and not isinstance(settings, Settings):
        raise ValueError(
            f"settings must be recipes.Settings, got {type(settings).__name__}: "
            "recipes.with_changes(recipes.settings_of(method), max_steps=60)."
        )


def _check_protocol(
    plan: Protocol, settings: Settings, sentences: Dataset, model: SentenceTransformer, columns: dict[str, Any]
) -> None:
    """Refuse text or encoder with which the protocol would be another training, unless that is said."""
    own = pooling_of(model)
    if settings.pooling not in (own, "mask"):  # a template is put on any model
        raise ValueError(
            f"the protocol {plan.name} of {plan.method} pools by {settings.pooling}, and the model by {own}: build it with "
            f"recipes.build_encoder(name, pooling={settings.pooling!r}) from a plain transformer, or give settings with the "
            f"model's own (--pooling {own})."
        )
    if plan["positives"] and len(sentences.column_names) == 1 and "positives" not in columns:
        raise ValueError(
            f"the protocol {plan.name} of {plan.method} has positives by {plan['positives']}, got sentences alone: "
            "data.back_translate(sentences) makes them; columns={'positives': 'dropout'} says that you want none."
        )


def check_seed(seed: int) -> None:
    """Refuse a seed that numpy does not take."""
    if not (isinstance(seed, int) and 0 <= seed < 2**32):
        raise ValueError(f"seed must be a whole number in [0, {2**32 - 1}], got {seed!r}.")


def read_seeds(seeds: int | Sequence[int]) -> list[int]:
    """Return the seeds that a number, from 0, or a list of them is."""
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not numbers:
        raise ValueError(f"seeds must be at least 1, or a list of them, got {seeds}.")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"seeds must differ, got {numbers}.")
    for seed in numbers:
        check_seed(seed)
    return numbers


def check_patience(patience: int | None, *, has_dev: bool) -> None:
    """Refuse a patience that nothing is evaluated for."""
    if patience is not None and not has_dev:
        raise ValueError(
            f"patience counts evaluations by STS-B dev, and there is none, got {patience}: give dev (on the command line "
            "--data-dir or --hub), or leave patience out."
        )


def how_prepared(recipe: Recipe, sentences: Dataset, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return how the method's columns will be made of the sentences; empty where none are, or there is no choice."""
    if recipe.prepare is None or are_columns(recipe, sentences):
        return {}
    return recipe.prepare_with(sentences, **(given or {}))


def are_columns(recipe: Recipe, sentences: Dataset) -> bool:
    """Return whether the rows are the method's own columns, and not sentences that they are to be made of."""
    return tuple(sentences.column_names) == recipe.columns


def run_values(
    method: str,
    sentences: Dataset,
    model: SentenceTransformer,
    settings: Settings,
    seed: int,
    bf16: bool | None,
    loss_keywords: dict[str, Any],
    columns: dict[str, Any],
    prepared: dict[str, Any],
    text: str | None,
    dev: ScoredPairs | None,
) -> dict[str, Any]:
    """Return what makes a training this one: two that differ in none of it are the same. It is what run.json holds."""
    from sbert_plugins.training.precision import has_bf16

    return {
        "method": method,
        "settings": asdict(settings),
        "seed": seed,
        "sentences": len(sentences),
        "loss_keywords": loss_keywords,
        # Those of another version may be others.
        "loss_class": recipe_of(method).loss,
        "loss_defaults": {key: value for key, value in default_keywords(method).items() if key not in loss_keywords},
        "loss_files": _files(method, loss_keywords),
        "columns": columns,
        "prepared": prepared,
        "text": text_mark(sentences, text),
        "dev": None if dev is None else pairs_mark("STS-B dev", dev),
        "encoder": encoder_mark(model),
        "encoder_settings": encoder_settings(model),
        "bf16": has_bf16(model.device) if bf16 is None else bf16,
    }


def _files(method: str, keywords: dict[str, Any]) -> dict[str, str]:
    """Return hashes of what a record names and does not hold: the module of a class of one's own, files of keywords."""
    build = recipe_of(method).build
    named = {key: value for key, value in keywords.items() if isinstance(value, str) and Path(value).is_file()}
    if ":" in method and build is not None and (file := source_of(build)):
        named[method] = file
    return {key: digest_of(value) for key, value in named.items()}


_LABELS = ("label", "labels", "score", "scores")  # of the host's collator


def check_columns(recipe: Recipe, names: list[str]) -> None:
    """Refuse columns that the loss would not read, or would read as something else."""
    if recipe.reads == "any":
        return
    if labels := [name for name in names if name in _LABELS]:
        raise ValueError(
            f"the columns must be texts, got {labels[0]}, which the host reads as labels: rename it, or drop it with "
            "dataset.remove_columns."
        )
    widths = (3,) if recipe.reads == "triplets" else (1, 2) if recipe.second_column else (1,)
    if len(names) not in widths and tuple(names) != recipe.columns:
        raise ValueError(
            f"{recipe.method} reads {'' if recipe.prepare is None else recipe.reads + ' or '}{recipe.columns_text}, got "
            f"{', '.join(names)}: drop what is too much with dataset.select_columns."
        )
