"""The entry point of the command line. Nothing here imports torch before a command runs."""

import argparse
import importlib.util
import logging
import os
import re
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sbert_plugins import __version__
from sbert_plugins.catalogue import check_method, did_you_mean
from sbert_plugins.cli import options as tables
from sbert_plugins.cli.printing import print_methods

WITH_ARGUMENTS = ("train", "compare")  # commands that take training arguments
_SECONDS = 8  # to wait for the Hub
# The files of other packages that define the training arguments.
_ARGUMENT_FILES = (
    ("transformers", "training_args.py"),
    ("sentence_transformers", "base/training_args.py"),
    ("sentence_transformers", "sentence_transformer/training_args.py"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        0, or after a one-line error 2, or 130 if it was interrupted.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    sys.path.append(os.getcwd())  # a loss of one's own may be here
    is_connected = True
    try:
        if "--offline" in words:
            os.environ["HF_HUB_OFFLINE"] = "1"  # before huggingface_hub is imported
        if not sys.stderr.isatty():
            os.environ |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
        options = parse([word for word in words if word != "--traceback"])
        _check_labels(options)
        if options.command == "methods":
            print_methods()
            return 0
        from sbert_plugins.cli import run

        logging.getLogger("sbert_plugins").setLevel(logging.INFO if run.is_first_process() else logging.ERROR)
        logging.getLogger("sbert_plugins.evaluation").setLevel(logging.WARNING)  # the tables have its scores
        if options.command in WITH_ARGUMENTS:
            run.fill_in(options)
        if options.command in (*WITH_ARGUMENTS, "evaluate") and run.names_on_hub(options):
            is_connected = _go_offline_without_connection()
        getattr(run, options.command)(options)
    except KeyboardInterrupt as stop:
        print(f"sbert-plugins: interrupted. {stop}".rstrip(), file=sys.stderr)
        return 130
    except Exception as error:
        if "--traceback" in words:
            raise
        print(f"sbert-plugins: error: {_describe(error, is_connected)}", file=sys.stderr)
        return 2
    return 0


def _describe(error: Exception, is_connected: bool) -> str:
    """Return the message of an error, with its type if the message may not suffice."""
    if not isinstance(error, ValueError | OSError | ImportError | argparse.ArgumentError):
        return f"{type(error).__name__}: {error} (--traceback shows where.)"
    if isinstance(error, OSError) and not is_connected:
        return f"{error} There is no connection to the Hugging Face Hub: give local paths, or --offline."
    return str(error)


class Parser(argparse.ArgumentParser):
    """A parser that raises ``ValueError``."""

    def error(self, message: str) -> Any:
        """Raise ``ValueError``, from which :func:`main` makes one line."""
        raise ValueError(f"{message}. See {self.prog} --help.")


def build_parser(arguments: Iterable[str] = ()) -> argparse.ArgumentParser:
    """Build the parser of the command's own options.

    Args:
        arguments: Names of training arguments, which are read with at most one value and not shown.
    """
    parser = Parser(
        prog="sbert-plugins",
        description="Adapt embedding models to text without labels, and check the result.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"sbert-plugins {__version__}")
    parser.add_argument("--traceback", action="store_true", help="show where an error comes from")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_commands(commands, tables.COMMANDS, arguments=arguments)
    mteb = commands.add_parser("mteb", help="score a model with MTEB, submit to its leaderboard")
    _add_commands(mteb.add_subparsers(required=True, metavar="STEP"), tables.MTEB, "mteb_")
    return parser


def _add_commands(
    commands: Any,
    table: dict[str, tuple[str, dict[str, dict[str, Any]]]],
    prefix: str = "",
    arguments: Iterable[str] = (),
) -> None:
    """Add commands. Each calls the function of ``run.py`` with its name, behind the prefix."""
    for name, (about, options) in table.items():
        command = commands.add_parser(
            name,
            help=about[0].lower() + about[1:].split(".")[0],
            description=about,
            allow_abbrev=False,
        )
        if name in WITH_ARGUMENTS:
            command.epilog = tables.ARGUMENTS
            command.formatter_class = argparse.RawDescriptionHelpFormatter
            hidden = {"nargs": "?", "default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
            options = {f"--{each}": hidden for each in arguments} | options
        for option, keywords in options.items():  # with underscores or dashes
            command.add_argument(*dict.fromkeys([option, option.replace("_", "-")]), **keywords)
        command.set_defaults(command=prefix + name)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse a command line. The training arguments that were given are in ``arguments``.

    Mistyped options and methods are found before torch is imported.

    Raises:
        ValueError: For an unknown option or method, with the nearest one, and for a number below 1.
    """
    names = _read_argument_names() if words and words[0] in WITH_ARGUMENTS else set()
    options, rest = build_parser(names).parse_known_args(words)
    if len(rest) == 1 and not rest[0].startswith("-") and getattr(options, "text", "") is None:
        options.text = rest.pop()  # it followed an option
    if rest:
        name = rest[0].partition("=")[0].lstrip("-").replace("-", "_")
        hint = did_you_mean(name, {*vars(options), *names} - {"command"})
        raise ValueError(f"There is no option {rest[0]}.{hint}")
    for method in [getattr(options, "method", None), *getattr(options, "methods", [])]:
        if method is not None:
            check_method(method)
    if few := [name for name, value in vars(options).items() if type(value) is int and value < 1]:
        raise ValueError(f"--{few[0]} must be at least 1, got {vars(options)[few[0]]}.")
    given = {name: vars(options).pop(name) for name in [*vars(options)] if name in names}
    if given:
        from transformers import HfArgumentParser

        from sbert_plugins.training import TrainingArguments

        training = HfArgumentParser(
            TrainingArguments,  # type: ignore[arg-type]
            allow_abbrev=False,
            exit_on_error=False,
            add_help=False,
        )
        words = [f"--{name}" if value is None else f"--{name}={value}" for name, value in given.items()]
        arguments = training.parse_args(words)
        given = {name: getattr(arguments, name) for name in given}
    options.arguments = given
    return options


def _check_labels(options: argparse.Namespace) -> None:
    """Raise for labels that are not there, before anything is loaded."""
    is_there = {"FILE": Path.is_file, "DIR": Path.is_dir}
    for option, about in tables.SCORES.items():
        path, kind = getattr(options, option.lstrip("-"), None), about.get("metavar")
        if path and kind in is_there and not is_there[kind](Path(path)):
            raise FileNotFoundError(
                f"{option} {path} is not a {'folder' if kind == 'DIR' else 'file'}. It takes {about['help']}."
            )


def _read_argument_names() -> set[str]:
    """Return the names of the training arguments, read from their source files, which takes no import."""
    names = {"sam_rho"}  # the only one of this package
    for package, file in _ARGUMENT_FILES:
        spec = importlib.util.find_spec(package)
        assert spec is not None and spec.origin is not None
        source = (Path(spec.origin).parent / file).read_text(encoding="utf-8")
        names |= {*re.findall(r"^    (\w+): ", source, re.MULTILINE)}
    return names


def _go_offline_without_connection() -> bool:
    """Return whether the Hugging Face Hub answers; if not, let its libraries use their cache at once."""
    from huggingface_hub import constants, utils

    if constants.HF_HUB_OFFLINE:
        return False
    reached = threading.Event()

    def ask() -> None:
        with suppress(Exception):
            utils.get_session().head(constants.ENDPOINT, timeout=_SECONDS)
            reached.set()  # an error of the Hub is an answer, too

    thread = threading.Thread(target=ask, daemon=True)  # a name server may take longer than the timeout
    thread.start()
    thread.join(_SECONDS)
    if not reached.is_set():
        os.environ["HF_HUB_OFFLINE"] = "1"
        constants.HF_HUB_OFFLINE = True  # it was imported before
    return reached.is_set()
