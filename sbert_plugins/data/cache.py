"""Where rows that were made are kept, and what tells them from those that another function would make."""

from __future__ import annotations

import functools
import hashlib
import inspect
from pathlib import Path
from typing import Any

from datasets import config


def cache_folder() -> Path:
    """Return the folder of this library in the cache of ``datasets``, made where it is missing."""
    folder = Path(config.HF_DATASETS_CACHE) / "sbert_plugins"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def code_of(made_by: Any) -> str | None:
    """Return a hash of the file that a callable or an object's class is written in; None where there is none to read.

    ``datasets`` takes a function of an imported module for unchanged as long as its name is. One of ``__main__`` it reads
    itself, and this library's own have its version.
    """
    while isinstance(made_by, functools.partial):
        made_by = made_by.func
    written = made_by if inspect.isroutine(made_by) or inspect.isclass(made_by) else type(made_by)
    if (written.__module__ or "__main__").split(".")[0] in ("__main__", "sbert_plugins", "builtins"):
        return None
    try:
        file = inspect.getsourcefile(inspect.unwrap(written))
        return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else None
    except (TypeError, OSError):  # compiled, or typed into a notebook
        return None
