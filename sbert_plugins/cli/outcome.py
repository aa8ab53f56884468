"""What ``train`` prints when it ends."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from sbert_plugins import recipes
from sbert_plugins.cli.printing import print_table, score_text
from sbert_plugins.cli.reading import PACKAGED, from_hub
from sbert_plugins.recipes.output import time_text, updates_text


def print_results(results: dict[str, Any], options: argparse.Namespace, plan: recipes.Protocol | None) -> None:
    """Print the scores of a training."""
    print()
    rows = [(f"Spearman x 100, {results['pooling']} pooling", "before", "after")]
    rows += [(name, score_text(score), score_text(results["after"][name])) for name, score in results["before"].items()]
    print_table(rows)
    _print_what_is_scored(results["before"])
    _print_lower(results["before"], results["after"])
    _print_printed(options, plan)
    path = Path(options.output) / "model"
    time = f" in {known}" if (known := time_text(results)) else ""
    print(f'\nUpdates: {updates_text(results)}{time}. Model: {path} (SentenceTransformer("{path}") loads it)')
    if options.offline and options.text is None:
        text = "sentences.txt --model bert-base-uncased --output runs/mine"
        print(f"Next, your own text, a sentence a line: sbert-plugins train {options.method} {text}")


def print_seeds(results: dict[str, Any], options: argparse.Namespace, plan: recipes.Protocol | None) -> None:
    """Print mean and deviation of the scores of several seeds."""
    print()
    after = results["after"]
    heading = (f"Spearman x 100, {results['pooling']} pooling", "before", "mean", "deviation", *map(str, results["seeds"]))
    rows = [heading] + [
        (name, *map(score_text, (score, after[name]["mean"], after[name]["deviation"], *after[name]["values"])))
        for name, score in results["before"].items()
    ]
    print_table(rows)
    _print_what_is_scored(results["before"])
    _print_lower(results["before"], {name: score["mean"] for name, score in after.items()})
    _print_printed(options, plan)
    print(f"\nUpdates: {', '.join(results['updates'])}.")
    print(f"All scores: {Path(options.output) / 'results.json'}. Models: {Path(options.output) / 'seed_N' / 'model'}")


def _print_what_is_scored(names: Collection[str]) -> None:
    """Say that the package's pairs are not of the text that was trained on."""
    if PACKAGED in names:
        print(f"({PACKAGED}: 360 English ones that ship with this package, whatever your text; --pairs FILE scores yours.)")


_NOISE = 0.5  # points: seeds of one training differ by as much


def _print_lower(before: Mapping[str, float | None], after: Mapping[str, float | None]) -> None:
    """Say where the encoder stood higher before it was trained, by more than a seed may do."""
    lower = [
        f"{name} ({score_text(was)} to {score_text(now)})"
        for name, was in before.items()
        if was is not None and (now := after[name]) is not None and round(was - now, 2) >= _NOISE
    ]
    if lower:
        advice = "Keep the encoder as it was, or try a lower rate, fewer updates or another method."
        print(f"\nLower than before: {', '.join(lower)}. {advice}")


def _print_printed(options: argparse.Namespace, plan: recipes.Protocol | None) -> None:
    """Say what was printed, where, and what that number has that this one has not."""
    if plan is None:
        return
    print(f"\nPrinted is {plan.printed} ({plan.source('printed')}).")
    if from_hub(options):
        print("Its SICK-R is the 4,927 test pairs, this one all 9,927: the Hub does not say which they are.")
    if plan["text"] == recipes.STS_SENTENCES:
        print("Transductive: that training, too, read the sentences of these tasks, without scores.")
