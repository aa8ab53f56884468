"""The command line: ``sbert-plugins train | compare | evaluate | methods | mteb``."""

from sbert_plugins.cli.main import build_parser, main

__all__ = ["build_parser", "main"]
