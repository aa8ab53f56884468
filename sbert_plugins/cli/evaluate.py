"""``sbert-plugins evaluate``."""

from __future__ import annotations

import argparse
import time
from typing import Any

from sbert_plugins import recipes
from sbert_plugins.cli.common import add, add_scores, build_evaluators
from sbert_plugins.cli.printing import print_table


def add_evaluate(commands: Any) -> None:
    """Add the command."""
    evaluate = commands.add_parser(
        "evaluate",
        help="score models",
        description="Score models by your labels, the seven STS tasks, or the graded pairs that ship with the package.",
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
    from sbert_plugins.recipes.scores import main_score, measure

    evaluators = build_evaluators(options)
    rows: list[list[str]] = []
    for place, name in enumerate(options.models, start=1):
        print(f"{place} of {len(options.models)}: {name} ...", flush=True)
        began = time.monotonic()
        model = recipes.build_encoder(name, pooling=None if recipes.has_pooling(name) else options.pooling)
        measured = measure(model, evaluators)
        scores = [main_score(one, measured.metrics[str(one.name)]) for one in evaluators]
        print(f"   {time.monotonic() - began:.0f} s", flush=True)
        rows = rows or [
            [
                "model",
                "pooling",
                *(f"{one.name}: {metric}" for one, (metric, _) in zip(evaluators, scores, strict=True)),
            ]
        ]
        rows.append([name, recipes.pooling_of(model), *(f"{score:.2f}" for _, score in scores)])
    print()
    print_table(rows)
