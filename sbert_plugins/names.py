"""The names of the methods, and suggestions for mistyped names. This file loads no torch.

So the command line prints its help, and the answer to a typo, at once.
"""

import difflib
from collections.abc import Iterable

METHODS = (
    "recommended",
    "search",
    "arccse",
    "paser",
    "paser-supervised",
    "denosent",
    "pt-bert",
    "slt-fai",
    "consert",
    "bag-of-words",
    "simcse",
)


def check_method(method: str) -> None:
    """Raise ``ValueError`` for a name that is neither a method nor ``package.module:Class``."""
    if method not in METHODS and ":" not in method:
        raise ValueError(
            f"There is no method {method!r}.{did_you_mean(method, METHODS)} The methods are "
            f"{', '.join(METHODS)}, and package.module:Class for a loss of your own."
        )


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return a sentence with the nearest of some words, or nothing if none is near.

    Example:
        >>> did_you_mean("temprature", ["temperature", "balance"])
        ' Did you mean temperature?'
    """
    near = difflib.get_close_matches(word, list(words), n=1)
    return f" Did you mean {near[0]}?" if near else ""
