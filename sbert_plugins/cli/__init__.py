"""The command line: ``sbert-plugins train | compare | evaluate | methods | mteb``."""

from sbert_plugins.cli.command import build_parser, main, parse

__all__ = ["build_parser", "main", "parse"]
