"""The command line: ``sbert-plugins train | compare | evaluate | mteb | methods``; what is heavy is imported when needed."""

from sbert_plugins.cli.command import build_parser, main

__all__ = ["build_parser", "main"]
