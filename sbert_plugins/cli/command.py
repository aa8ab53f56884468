"""The entry point of the command line. Nothing here imports torch before a command runs."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import logging
import os
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from sbert_plugins import __version__
from sbert_plugins.cli import options as tables
from sbert_plugins.cli import run
from sbert_plugins.recipes.methods import find_recipe
from sbert_plugins.recipes.recipe import did_you_mean
from sbert_plugins.recipes.run import is_first_process

_SECONDS = 8  # to wait for the Hub


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        0, or after a one-line error 2, or 130 if it was interrupted.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("sbert_plugins").setLevel(logging.INFO if is_first_process() else logging.ERROR)
    logging.getLogger("sbert_plugins.evaluation").setLevel(logging.WARNING)  # its scores are in the tables
    sys.path.append(os.getcwd())  # a loss of one's own may be here
    is_connected = True
    try:
        if "--offline" in words:
            os.environ["HF_HUB_OFFLINE"] = "1"  # before huggingface_hub is imported
        if not sys.stderr.isatty():
            os.environ |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
        options = _parse(words)
        if options.run in (run.train, run.compare, run.evaluate) and run.names_on_hub(options):
            is_connected = _go_offline_without_connection()
        options.run(options)
    except KeyboardInterrupt:
        print("sbert-plugins: interrupted.", file=sys.stderr)
        return 130
    except Exception as error:
        if "--traceback" in words:
            raise
        text = str(error)
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
        complete: Whether ``train`` and ``compare`` take the training arguments, which imports torch. Their
            help does not need it.
    """
    base: type[argparse.ArgumentParser] = argparse.ArgumentParser
    training: dict[str, Any] = {
        "epilog": tables.ARGUMENTS,
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }
    names: list[str] = []
    if complete:
        from transformers import HfArgumentParser

        from sbert_plugins.training import TrainingArguments

        base, names = HfArgumentParser, [field.name for field in fields(TrainingArguments)]
        training["dataclass_types"] = TrainingArguments

    class Parser(base):  # type: ignore[misc, valid-type]
        def __init__(self, **keywords: Any) -> None:
            super().__init__(**keywords | {"allow_abbrev": False})

        def error(self, message: str) -> Any:
            raise ValueError(f"{message}. See {self.prog} --help.")

    def add_command(commands: Any, name: str, act: Any, about: str, *options: Any, **more: Any) -> Any:
        command = commands.add_parser(
            name, help=about[0].lower() + about[1:].split(".")[0], description=about, **more
        )
        tables.add_options(command, *options)
        command.set_defaults(
            run=act, argument_names=names if more else [], **dict.fromkeys(names if more else ())
        )
        return command

    parser = Parser(
        prog="sbert-plugins",
        description="Adapt embedding models to text without labels, and check the result.",
    )
    parser.add_argument("--version", action="version", version=f"sbert-plugins {__version__}")
    parser.add_argument("--traceback", action="store_true", help="show where an error comes from")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    about = "Train a model on sentences without labels. The model is then in OUTPUT/model."
    add_command(commands, "train", run.train, about, tables.TRAIN, tables.SCORES, **training)
    about = "Compare methods on your text. All have one start and equal settings."
    add_command(commands, "compare", run.compare, about, tables.COMPARE, tables.SCORES, **training)
    about = "Score models by your labels. Without labels: on STS, or with --offline on built-in pairs."
    add_command(commands, "evaluate", run.evaluate, about, tables.EVALUATE, tables.SCORES)
    add_command(commands, "methods", run.list_methods, "List the methods.")
    mteb = commands.add_parser("mteb", help="score a model with MTEB, submit to its leaderboard")
    steps = mteb.add_subparsers(required=True, metavar="STEP", parser_class=Parser)
    add_command(steps, "run", run.mteb_run, "Score a model with mteb.", tables.MTEB_RUN)
    about = "Check the results of a public model. If they are complete, pass them to mteb's submission."
    add_command(steps, "submit", run.mteb_submit, about, tables.MTEB_SUBMIT)
    return parser


def _parse(words: list[str]) -> argparse.Namespace:
    """Parse a command line. TEXT may follow options, and unknown options get a suggestion."""
    command = next((word for word in words if not word.startswith("-")), "")
    asks_for_help = bool({"-h", "--help"} & {*words})
    trains = command in ("train", "compare") and not asks_for_help
    options, rest = build_parser().parse_known_args(words)
    _check_names(options, rest, _read_argument_names() if trains else set())
    if trains:
        options, rest = build_parser(complete=True).parse_known_args(words)
    if len(rest) == 1 and not rest[0].startswith("-") and getattr(options, "text", "") is None:
        options.text = rest.pop()
    if getattr(options, "data_dir", "") is None:
        options.data_dir = os.environ.get("SBERT_PLUGINS_DATA")
    _check_names(options, rest, set())
    return options


def _check_names(options: argparse.Namespace, rest: Sequence[str], arguments: set[str]) -> None:
    """Raise for an unknown option or method, before anything heavy is imported."""
    known = {*vars(options), *arguments} - {"run", "argument_names"}
    for word in rest:
        name = word.partition("=")[0].lstrip("-").replace("-", "_")
        if (word.startswith("--") or not arguments) and name not in arguments:
            raise ValueError(f"There is no option {word}.{did_you_mean(name, known)}")
    for method in [getattr(options, "method", None), *getattr(options, "methods", [])]:
        if method is not None and ":" not in method:
            find_recipe(method)


def _read_argument_names() -> set[str]:
    """Return the names of the training arguments, read from their source files, which takes no import."""
    places = [("transformers", "training_args.py"), ("sentence_transformers", "base/training_args.py")]
    places += [("sentence_transformers", "sentence_transformer/training_args.py")]
    places += [("sbert_plugins", "training/arguments.py")]
    names: set[str] = set()
    for package, file in places:
        spec = importlib.util.find_spec(package)
        assert spec is not None and spec.origin is not None
        tree = ast.parse(Path(spec.origin).with_name("__init__.py").parent.joinpath(file).read_text("utf-8"))
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        fields = [field for each in classes for field in each.body if isinstance(field, ast.AnnAssign)]
        names |= {field.target.id for field in fields if isinstance(field.target, ast.Name)}
    return names


def _go_offline_without_connection() -> bool:
    """Return whether the Hugging Face Hub answers; if not, let its libraries use their cache at once."""
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
