"""What ``train`` reads: sentences, STS-B dev, and the tasks whose average a paper printed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_plugins import recipes
from sbert_plugins.cli.flags import text_or_default

if TYPE_CHECKING:
    from datasets import Dataset


def from_hub(options: argparse.Namespace) -> bool:
    """Return whether the STS tasks are from the Hub."""
    return options.hub or not options.data_dir


def sick_of(options: argparse.Namespace) -> Any:
    """Return which pairs of SICK are scored: as asked, or else those of the papers' table. The Hub has all of them only."""
    return options.sick or ("all" if from_hub(options) else "test")


def has_dev(options: argparse.Namespace, plan: recipes.Protocol | None) -> bool:
    """Return whether there is STS-B dev: where there is a data directory, and where the Hub or a protocol is asked for."""
    return plan is not None or options.hub or bool(options.data_dir)


def dev_of(options: argparse.Namespace, plan: recipes.Protocol | None) -> Any:
    """Return STS-B dev, where there is one."""
    from sbert_plugins import evaluation

    if not has_dev(options, plan):
        return None
    return evaluation.load_sts("STS-B dev", options.data_dir, hub=from_hub(options))


def own_labels(options: argparse.Namespace) -> list[Any]:
    """Return an evaluator for each file of labels that a flag names."""
    from sbert_plugins import evaluation

    given = (
        (options.pairs, evaluation.own_pairs),
        (options.topics, evaluation.own_topics),
        (options.retrieval, evaluation.own_retrieval),
    )
    return [build(path) for path, build in given if path is not None]


def refuse_name_of_scores(name: str, *others: str) -> None:
    """Refuse pairs of one's own that are named as the STS tasks, or others, which are scored beside them."""
    from sbert_plugins import evaluation

    if name in (*evaluation.TASKS, "SICK-R all", "STS-B dev", *others):
        raise ValueError(f"--pairs must not have the name of other scores, got {name!r}: rename the file.")


PACKAGED = "graded pairs"


def graded(options: argparse.Namespace) -> dict[str, Any]:
    """Return graded pairs under their name: one's own, or those of the package."""
    from sbert_plugins import evaluation

    if options.pairs is None:
        return {PACKAGED: recipes.graded_pairs()}
    name = Path(options.pairs).name
    refuse_name_of_scores(name, PACKAGED, recipes.AVERAGE)
    return {name: evaluation.own_pairs(options.pairs).pairs}


def seven_tasks(options: argparse.Namespace, plan: recipes.Protocol | None) -> dict[str, Any]:
    """Return the tasks whose average the paper printed, for a protocol."""
    from sbert_plugins import evaluation

    if plan is None:
        return {}
    hub = from_hub(options)
    names = [*evaluation.TASKS[:-1], "SICK-R all" if hub else "SICK-R"]
    return {name: evaluation.load_sts(name, options.data_dir, hub=hub) for name in names}


def read(
    options: argparse.Namespace, recipe: recipes.Recipe, plan: recipes.Protocol | None
) -> tuple[str | Path, Dataset, dict[str, Any]]:
    """Return what is trained on, its rows, and how they were made."""
    from sbert_plugins import data

    text = text_or_default(options, recipe, plan)
    if recipe.reads == "triplets":
        if options.column is not None:
            raise ValueError(f"--column names a column of sentences, got {options.column!r}: triplets go by names.")
        return text, data.read_triplets(text, limit=options.limit), {}
    given = {"column": options.column, "limit": options.limit}
    if options.paraphrases:
        return text, data.read_pairs(text, options.paraphrases, **given), {"positives": "paraphrases"}
    if options.positives == "crops":
        made = {"by": options.crops_by or "sentences", "seed": options.seed}
        return text, data.crop_pairs(data.read_documents(text, **given), **made), {"positives": "crops", **made}
    sentences = recipes.read_text(text, **given, data_dir=options.data_dir, hub=options.hub)
    if plan and plan["positives"] == "back-translation" and options.positives is None:
        return text, data.back_translate(sentences), {"positives": "back-translation"}
    return text, sentences, {"positives": "dropout"} if recipe.second_column else {}
