"""``sbert-plugins compare``."""

from __future__ import annotations

import argparse
from typing import Any

from sbert_plugins import recipes
from sbert_plugins.cli.common import (
    ARGUMENTS,
    add,
    add_scores,
    add_start,
    build_evaluators,
    build_start,
    given_arguments,
    keep_given_arguments,
    read_text,
    stsb_dev,
)
from sbert_plugins.cli.printing import print_table
from sbert_plugins.cli.train import DEFAULT_MODEL


def add_compare(commands: Any, with_arguments: dict[str, Any]) -> None:
    """Add the command."""
    compare = commands.add_parser(
        "compare",
        help="train several methods on your text and compare them",
        description="Train each METHOD with each seed from one start, with equal settings (by default those of recommended), and "
        "score the results. The same command continues after a kill.",
        epilog=ARGUMENTS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **with_arguments,
    )
    compare.add_argument(
        "methods",
        nargs="+",
        metavar="METHOD",
        help="a name as in train, with keywords if wanted: pt-bert:attend_to=pooled,momentum=0.99",
    )
    add(
        compare,
        "text",
        metavar="TEXT",
        help="as in train (default: Wikipedia; with --offline the built-in sentences)",
    )
    add(compare, "output", required=True, help="a new or empty folder, or that of the comparison to continue")
    add(compare, "seeds", type=int, default=3, metavar="N", help="trainings per method (default: 3)")
    add(compare, "dev", action="store_true", help="select each checkpoint by STS-B dev")
    add_start(compare)
    add_scores(compare)
    keep_given_arguments(compare, with_arguments)
    compare.set_defaults(run=_compare, names_on_hub=_names)


def _text(options: argparse.Namespace) -> str:
    return options.text or (
        str(recipes.offline_sentences_path()) if options.offline else recipes.RECIPES["recommended"].text
    )


def _names(options: argparse.Namespace) -> list[str]:
    return [] if options.offline else [options.model or DEFAULT_MODEL, _text(options)]


def _compare(options: argparse.Namespace) -> None:
    arguments, text = given_arguments(options), _text(options)
    arguments.pop("seed", None)
    comparison = recipes.compare(
        options.methods,
        read_text(options, text),
        model=lambda: build_start(options, DEFAULT_MODEL, "mean"),
        output=options.output,
        evaluators=build_evaluators(options),
        seeds=options.seeds,
        dev=stsb_dev(options) if options.dev else None,
        max_seq_length=options.max_seq_length or 32,
        text=text,
        **arguments,
    )
    print(f"\n{comparison.headline}\n")
    print_table(comparison.table)
    print(f"\nPage: {comparison.page}\n")
    print("\n".join(comparison.verdict))
    if comparison.failed:
        listed = "; ".join(f"{name}: {reason}" for name, reason in comparison.failed.items())
        raise ValueError(f"Some trainings failed. {listed}. The same command tries them again.")
