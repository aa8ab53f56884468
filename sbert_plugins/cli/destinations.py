"""Where a training's numbers and its model go besides OUTPUT, trackers and the Hub, and what the card shows there."""

from __future__ import annotations

import argparse

from sbert_plugins import recipes


def add_destinations(train: argparse.ArgumentParser) -> None:
    """Add the flags."""
    train.add_argument(
        "--report-to",
        nargs="+",
        default=["none"],
        metavar="TRACKER",
        help="log to these as well: tensorboard, wandb, mlflow, trackio or what else transformers knows (default: none)",
    )
    train.add_argument(
        "--push-to-hub",
        metavar="ID",
        help="push the trained model to this new repository on the Hub, user/name; it is private",
    )
    train.add_argument("--public", action="store_true", help="make the repository of --push-to-hub public")
    train.add_argument(
        "--share-examples", action="store_true", help="let the model card show sentences of TEXT; without it, it shows none"
    )


def check_destinations(options: argparse.Namespace) -> None:
    """Refuse a tracker that is not there, and a push that could not work: after the training would be too late."""
    recipes.check_report_to(options.report_to)
    if options.public and not options.push_to_hub:
        raise ValueError("--public is about --push-to-hub ID, which is not there: name an ID, or leave --public out.")
    if options.push_to_hub is None:
        return
    if options.offline:
        raise ValueError(
            "--push-to-hub needs the network, and --offline uses none: leave one of them out, or push the finished model by "
            "hand, hf upload ID OUTPUT/model."
        )
    if options.seeds is not None:
        raise ValueError("--push-to-hub pushes one model, and --seeds trains several: choose, then hf upload ID OUTPUT/model.")
    recipes.check_hub(options.push_to_hub)


def prepare_push(options: argparse.Namespace) -> None:
    """Make the repository, where a push is asked for, before anything is trained."""
    if options.push_to_hub is not None:
        recipes.prepare_push(options.push_to_hub, private=not options.public)


def push(options: argparse.Namespace) -> None:
    """Push the trained model, where that is asked for."""
    if options.push_to_hub is not None:
        address = recipes.push_to_hub(options.output, options.push_to_hub, private=not options.public)
        print(f"Pushed to {address} ({'public' if options.public else 'private'}).")
