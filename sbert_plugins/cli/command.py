"""The command line: ``sbert-plugins train | compare | evaluate | mteb | methods``; what is heavy is imported when needed."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

from sbert_plugins import __version__, recipes
from sbert_plugins.cli.compare import add_compare
from sbert_plugins.cli.evaluate import add_evaluate
from sbert_plugins.cli.mteb import add_mteb
from sbert_plugins.cli.printing import print_table
from sbert_plugins.cli.train import add_train


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0, or after one line 2 (what is wrong), 130 (interrupted) or 141 (its reader has gone)."""
    options = _parsed(arguments)
    if getattr(options, "offline", False):
        os.environ["HF_HUB_OFFLINE"] = "1"  # read where huggingface_hub is imported, which checks of methods do, too
    if hasattr(sys.stdout, "reconfigure"):
        # Of a long training in a file or a pipe, too, each line as it comes; and no sign ends it that the encoding has not.
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("sbert_plugins").setLevel(logging.DEBUG if options.debug else logging.INFO)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # where a loss of one's own may lie; last, so that it hides nothing
    try:
        options.run(options)
    except KeyboardInterrupt:
        print("sbert-plugins: interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as ``head``, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # takes what Python writes at its end
        print("sbert-plugins: stopped, because nothing reads the output any more.", file=sys.stderr)
        return 141  # as where SIGPIPE ends a program
    except Exception as error:
        said = _said(error, options)
        if options.debug or said is None:
            raise
        print(f"sbert-plugins: error: {said}", file=sys.stderr)
        return 2
    return 0


def _said(error: Exception, options: argparse.Namespace) -> str | None:
    """Return the line about what is wrong, or None where the program is."""
    if isinstance(error, ValueError | OSError | ImportError):
        return str(error)
    kind = type(error).__name__  # of packages that are not loaded here
    if kind == "OutOfMemoryError":
        smaller = " or ".join(f"--{name.replace('_', '-')}" for name in ("batch_size", "max_seq_length") if name in options)
        said, _, _ = str(error).partition("\n")  # statistics follow
        return f"{said} Give a lower {smaller}."
    if kind == "SafetensorError":
        return f"weights cannot be written or read: {error}. Is the disk full?"
    return None


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command; TEXT may stand behind flags, where argparse has already settled that there is none."""
    parser = build_parser()
    options, rest = parser.parse_known_args(arguments)
    if len(rest) == 1 and not rest[0].startswith("-") and getattr(options, "text", "") is None:
        options.text = rest.pop()
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return options


class _Parser(argparse.ArgumentParser):
    """No flag is taken for the beginning of another: compare has no --seed, and would read it as --seeds."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords | {"allow_abbrev": False})


def build_parser() -> argparse.ArgumentParser:
    """Build the parser without importing torch."""
    parser = _Parser(
        prog="sbert-plugins",
        description="Self-supervised sentence embeddings: train with a recipe, compare methods, evaluate, list the methods.",
    )
    parser.add_argument("--version", action="version", version=f"sbert-plugins {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_train(commands)
    add_compare(commands)
    add_evaluate(commands)
    add_mteb(commands)
    about = "list the methods, their papers, losses and the columns they read"
    methods = commands.add_parser("methods", help=about, description=f"{about.capitalize()}.")
    methods.set_defaults(run=_methods)
    return parser


def _methods(options: argparse.Namespace) -> None:
    rows = [("method", "paper", "loss", "columns", "what it does")]
    rows += [(r.method, f"{r.name}, {r.paper}", r.losses_text(), r.columns_text, r.equation) for r in recipes.RECIPES.values()]
    print_table(rows)
    print()
    for recipe in recipes.RECIPES.values():
        print(f"{recipe.name}: {recipe.url}")
