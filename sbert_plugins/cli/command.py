"""The entry point of the command line. Nothing here imports torch before a command runs."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sbert_plugins import __version__, recipes
from sbert_plugins.cli.compare import add_compare
from sbert_plugins.cli.evaluate import add_evaluate
from sbert_plugins.cli.mteb import add_mteb
from sbert_plugins.cli.printing import print_table
from sbert_plugins.cli.train import add_train
from sbert_plugins.recipes.recipe import did_you_mean

_SECONDS = 8  # to wait for the Hub


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        0, or after a one-line error 2, or 130 if it was interrupted.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    is_first = os.environ.get("RANK", "0") == "0"
    logging.getLogger("sbert_plugins").setLevel(logging.INFO if is_first else logging.ERROR)
    sys.path.append(os.getcwd())  # a loss of one's own may be here
    is_connected = True
    try:
        if "--offline" in words:
            os.environ["HF_HUB_OFFLINE"] = "1"  # before huggingface_hub is imported
        if not sys.stderr.isatty():
            os.environ |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
        options = _parse(words)
        if any(not Path(name).exists() for name in options.names_on_hub(options)):
            is_connected = _go_offline_without_connection()
        options.run(options)
    except KeyboardInterrupt:
        print("sbert-plugins: interrupted.", file=sys.stderr)
        return 130
    except Exception as error:
        if "--traceback" in words:
            raise
        text = str(error).splitlines()[0] if str(error) else ""
        if not isinstance(error, ValueError | OSError | ImportError):
            text = f"{type(error).__name__}: {text} (--traceback shows where.)"
        elif isinstance(error, OSError) and not is_connected:
            text = f"{text} There is no connection to the Hugging Face Hub: give local paths, or --offline."
        print(f"sbert-plugins: error: {text}", file=sys.stderr)
        return 2
    return 0


def build_parser(*, complete: bool = False) -> argparse.ArgumentParser:
    """Build the parser.

    Args:
        complete: Whether ``train`` and ``compare`` take all training arguments, which imports torch. The help needs none.
    """
    base: type[argparse.ArgumentParser] = argparse.ArgumentParser
    with_arguments: dict[str, Any] = {}
    if complete:
        from transformers import HfArgumentParser

        from sbert_plugins.training import TrainingArguments

        base, with_arguments = HfArgumentParser, {"dataclass_types": TrainingArguments}

    class Parser(base):  # type: ignore[misc, valid-type]
        def __init__(self, **keywords: Any) -> None:
            super().__init__(**keywords | {"allow_abbrev": False})

        def error(self, message: str) -> Any:
            raise ValueError(f"{message}. See {self.prog} --help.")

    parser = Parser(
        prog="sbert-plugins",
        description="Adapt sentence embedding models to text without labels, and check the result.",
    )
    parser.add_argument("--version", action="version", version=f"sbert-plugins {__version__}")
    parser.add_argument("--traceback", action="store_true", help="show where an error comes from")
    parser.set_defaults(names_on_hub=lambda _: [])
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    add_train(commands, with_arguments)
    add_compare(commands, with_arguments)
    add_evaluate(commands)
    methods = commands.add_parser("methods", help="list the methods", description="List the methods.")
    methods.set_defaults(run=_print_methods)
    add_mteb(commands)
    return parser


def _parse(words: list[str]) -> argparse.Namespace:
    """Parse a command line; TEXT may follow options, and unknown options get a suggestion."""
    command = next((word for word in words if not word.startswith("-")), "")
    asks_for_help = bool({"-h", "--help"} & {*words})
    parser = build_parser(complete=command in ("train", "compare") and not asks_for_help)
    options, rest = parser.parse_known_args(words)
    if len(rest) == 1 and not rest[0].startswith("-") and getattr(options, "text", "") is None:
        options.text = rest.pop()
    if rest:
        known = [f"--{name}" for name in vars(options)]
        raise ValueError(
            f"{command} has no option {rest[0]}.{did_you_mean(rest[0].replace('-', '_').replace('__', '--', 1), known)}"
        )
    return options


def _go_offline_without_connection() -> bool:
    """Return whether the Hugging Face Hub can be reached; otherwise let its libraries use their cache, without retries."""
    if os.environ.get("HF_HUB_OFFLINE"):
        return False
    reached = threading.Event()

    def ask() -> None:
        endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
        try:
            urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=_SECONDS)
        except urllib.error.HTTPError:
            pass  # an answer
        except OSError:
            return
        reached.set()

    thread = threading.Thread(target=ask, daemon=True)  # a name server may take longer than the timeout
    thread.start()
    thread.join(_SECONDS)
    if not reached.is_set():
        from huggingface_hub import constants

        os.environ["HF_HUB_OFFLINE"] = "1"
        constants.HF_HUB_OFFLINE = True  # it was imported with the parser
    return reached.is_set()


def _print_methods(options: argparse.Namespace) -> None:
    print_table(
        [("method", "what it computes")]
        + [(recipe.name, recipe.summary) for recipe in recipes.RECIPES.values()]
    )
    print()
    for recipe in recipes.RECIPES.values():
        print(f"{recipe.title} ({recipe.paper}): {recipe.url}")
        if budget := recipes.small_budget(recipe.name):
            print(f"  {budget}")
