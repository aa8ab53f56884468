"""One training with several seeds: a folder each, and the mean and deviation of what they score."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_plugins.recipes.checked import checked_run, read_seeds
from sbert_plugins.recipes.output import (
    RUN_FILE,
    check_same_run,
    encoder_mark,
    has_checkpoint,
    held,
    pairs_mark,
    read_results,
    refuse_file,
    remove_folder,
    updates_text,
    write_json,
)
from sbert_plugins.recipes.provenance import mixed_versions, versions_of
from sbert_plugins.recipes.run import AVERAGE, train
from sbert_plugins.recipes.settings import processes
from sbert_plugins.recipes.summary import Number

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from sbert_plugins.evaluation import ScoredPairs

logger = logging.getLogger(__name__)


def train_seeds(
    method: str,
    sentences: Dataset,
    build: Callable[[], SentenceTransformer],
    *,
    output: str | Path,
    seeds: int | Sequence[int],
    report: Callable[[str], None] = logger.info,
    **how: Any,
) -> dict[str, Any]:
    """Train with each seed into ``output / "seed_N"``, as :func:`train` does; killed, the same call goes on.

    Args:
        method: As in :func:`train`, and so is ``sentences``.
        sentences: What is trained on.
        build: Builds the encoder that each training starts from, the same each time.
        output: A new or empty directory, or that of the seeds to go on with.
        seeds: How many, from 0, or which.
        report: Called with each message for the person who waits.
        **how: Further arguments of :func:`train`, but for ``resume``.

    Returns:
        What ``output / "results.json"`` holds: what all trainings share, and under ``after`` for each score mean, standard
        deviation (with n - 1, None of one seed) and the value of each seed.

    Raises:
        ValueError: As :func:`train`, without seeds, for one that is there twice, in one of several processes, and for a
            seed that was trained otherwise, or scored on other probes, in ``output``, whether it is asked for or not.
        FileExistsError: If ``output`` holds something else, or another process trains one of the seeds.
    """
    output, seeds = Path(output), read_seeds(seeds)
    if hasattr(build, "forward"):
        raise ValueError(f"build must be a function that builds the encoder each time, got a {type(build).__name__}.")
    check_directory(output)
    dev = {} if how.get("dev") is None else {"STS-B dev": how["dev"]}
    there = sorted(int(folder.name[5:]) for folder in output.glob("seed_*") if re.fullmatch(r"seed_(0|[1-9]\d*)", folder.name))
    _check_scores(output, there, {**(how.get("probes") or {}), **dev})
    _check_begun(method, sentences, build, output, there, how)
    results: list[dict[str, Any]] = []
    for place, seed in enumerate(seeds, start=1):
        report(f"{place}/{len(seeds)} seed {seed}")
        model = build()
        if results and encoder_mark(model)["sha256"] != results[0]["encoder"]["sha256"]:
            raise ValueError("build must build one encoder each time, got weights that differ: seed what is random.")
        with held(output / f"seed_{seed}"):
            results.append(_one(method, sentences, model, output / f"seed_{seed}", seed, report, how))
    shared = {key: results[0][key] for key in (*_SHARED, "before")}
    if note := mixed_versions(results):
        report(note)
    summary = shared | {
        "versions": versions_of(results),
        "seeds": list(seeds),
        "updates": [updates_text(result) for result in results],
        "after": {name: _summary(name, results) for name in results[0]["after"]},
    }
    write_json(output / "results.json", summary)
    return summary


_SHARED = ("method", "protocol", "settings", "loss_keywords", "sentences", "text", "encoder", "bf16", "pooling")


def check_directory(output: Path) -> None:
    """Refuse a directory that is somebody else's, and several processes."""
    if processes() > 1:
        raise ValueError("seeds are trained one after the other in one process: under torchrun train one seed at a time.")
    refuse_file(output)
    others = [path.name for path in output.iterdir() if not _is_ours(path)] if output.exists() else []
    if others:
        raise FileExistsError(f"output must be new, empty or that of a training with seeds, got {output} with {others[0]}.")


def _check_scores(output: Path, seeds: Sequence[int], tables: dict[str, ScoredPairs]) -> None:
    """Refuse finished seeds that were scored on something else: no mean is over all."""
    for folder in (output / f"seed_{seed}" for seed in seeds):
        if (folder / "results.json").exists():
            results = read_results(folder / "results.json")
            before, names = results["after"].keys() - {AVERAGE}, {*tables}
            if before != names:
                was, now = (", ".join(sorted(each)) or "nothing" for each in (before, names))
                raise ValueError(
                    f"probes and dev must be those of the finished seeds, got {now}, and {folder} was scored on {was}: "
                    "give the same, or name another output."
                )
            was_on = results.get("scored_on", {})  # which earlier records lack
            marks = {name: pairs_mark(name, tables[name])["sha256"] for name in was_on}
            others = [name for name, mark in marks.items() if mark != was_on[name]]
            if others:
                raise ValueError(
                    f"probes and dev must be those of the finished seeds, and {folder} was scored on other rows of "
                    f"{', '.join(sorted(others))}: give the same, or name another output."
                )


def _check_begun(
    method: str,
    sentences: Dataset,
    build: Callable[[], SentenceTransformer],
    output: Path,
    seeds: Sequence[int],
    how: dict[str, Any],
) -> None:
    """Refuse seeds that were trained otherwise, also earlier ones, before hours go into the others."""
    begun = [seed for seed in seeds if (output / f"seed_{seed}" / RUN_FILE).exists()]
    if not begun:
        return
    identity = ("settings", "bf16", "loss_keywords", "columns", "protocol", "text", "dev")
    asked_for: dict[str, Any] = {key: how.get(key) for key in identity}
    model = build()
    for seed in begun:
        folder = output / f"seed_{seed}"
        check_same_run(folder, checked_run(method, sentences, model, folder, seed=seed, **asked_for).json)


def _is_ours(path: Path) -> bool:
    return path.name.startswith("seed_") or path.name in ("results.json", "results.json.tmp")


def _one(
    method: str,
    sentences: Dataset,
    model: SentenceTransformer,
    folder: Path,
    seed: int,
    report: Callable[[str], None],
    how: dict[str, Any],
) -> dict[str, Any]:
    """Train one seed, go on where it was interrupted, or read what it has left."""
    if (folder / "results.json").exists():
        report("  finished before")
        return read_results(folder / "results.json")
    resume = has_checkpoint(folder)
    if not resume and (folder / RUN_FILE).exists():
        remove_folder(folder)  # killed before its first checkpoint
    return train(method, sentences, model, output=folder, seed=seed, resume=resume, report=report, **how)


def _summary(name: str, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    values = [result["after"][name] for result in results]
    number = Number.of([value for value in values if value is not None])
    mean, deviation, _ = number or (None, None, 0)
    return {"mean": mean, "deviation": deviation, "values": values}
