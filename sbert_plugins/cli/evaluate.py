"""``sbert-plugins evaluate``."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from sbert_plugins import recipes
from sbert_plugins.cli.common import add, add_scores, build_evaluators, build_geometry
from sbert_plugins.cli.printing import print_table
from sbert_plugins.recipes.run import RESULTS_FILE, read_json


def add_evaluate(commands: Any) -> None:
    """Add the command."""
    evaluate = commands.add_parser(
        "evaluate",
        help="score models",
        description="Score models by your labels, or else on the seven STS tasks, or with --offline and without a data "
        "folder on the graded pairs that ship with the package.",
    )
    evaluate.add_argument("models", nargs="+", metavar="MODEL", help="path or Hub name")
    add_scores(evaluate)
    add(
        evaluate,
        "pooling",
        choices=["cls", "mean", "lasttoken", "mask"],
        help="for a plain transformer (default: mean)",
    )
    add(evaluate, "offline", action="store_true", help="use no network")
    add(
        evaluate,
        "report",
        metavar="DIR",
        help="write DIR/index.html with plots; the first MODEL is the baseline",
    )
    evaluate.set_defaults(
        run=_evaluate, names_on_hub=lambda options: [] if options.offline else options.models
    )


def _evaluate(options: argparse.Namespace) -> None:
    from sbert_plugins import evaluation

    has_labels = options.pairs or options.topics or options.retrieval
    options.sts = options.sts or not (has_labels or (options.offline and not options.data_dir))
    evaluators = build_evaluators(options)
    if options.report:
        evaluators += build_geometry(options)
    scored: list[evaluation.ModelScores] = []
    rows: list[list[str]] = []
    for place, name in enumerate(options.models, start=1):
        listed = ", ".join(str(one.name) for one in evaluators)
        print(f"{place} of {len(options.models)}: scoring {name} on {listed} ...", flush=True)
        began = time.monotonic()
        model = recipes.build_encoder(name, pooling=None if recipes.has_pooling(name) else options.pooling)
        training = read_json(Path(name).resolve().parent / RESULTS_FILE) if Path(name).name == "model" else {}
        facts = {"pooling": recipes.pooling_of(model)}
        facts |= {fact: str(training[fact]) for fact in ("method", "text", "updates", "seed") if fact in training}
        log = training.get("log", [])
        scored.append(evaluation.score_model(model, evaluators, name=name, log=log, origin=facts))
        print(f"   took {time.monotonic() - began:.0f} s", flush=True)
        values = {f"{each}: {title}": value for each, one in scored[-1].scores.items() for title, value in one.values.items()}
        rows = rows or [["model", "pooling", *values]]
        rows.append([name, facts["pooling"], *(f"{value:.2f}" for value in values.values())])
    print()
    print_table(rows)
    if options.report:
        print(f"Report: {evaluation.write_report(scored, options.report)}")
