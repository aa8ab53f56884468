"""A loss class of one's own as a method: ``package.module:Class``, built as ``Class(model, **keywords)``."""

from __future__ import annotations

import hashlib
import importlib
import inspect
from functools import cache
from pathlib import Path
from typing import Any

from sbert_plugins.recipes.recommended import RECOMMENDED
from sbert_plugins.recipes.settings import Recipe


def own_recipe(method: str) -> Recipe:
    """Return the recipe of a class that is not this library's: its settings are those of ``recommended``.

    Args:
        method: ``package.module:Class``; the class is an ``nn.Module`` that is called as any loss of sentence-transformers is.

    Raises:
        ValueError: If the module cannot be imported, has no such name, the name is no class of modules that takes a model, or
            it is in no file, or in one that has changed since the class was first asked for, so that another would be trained.
    """
    build = _class_of(method)
    file = source_of(build)
    if file is not None and _digest_when_read(build, file) != digest_of(file):
        raise ValueError(
            f"{file} has changed since {method} was imported, and the old class would be trained: begin in a new process, or "
            "call importlib.reload on its module."
        )
    return Recipe(
        method=method,
        name=method.partition(":")[2],
        paper=f"a loss of your own, {method.partition(':')[0]}",
        url="",
        loss=method,
        columns=("anchor",),
        second_column="positive",
        reads="any",
        equation="",
        settings=RECOMMENDED.settings,
        offline=RECOMMENDED.offline,
        build=build,
    )


def source_of(build: Any) -> str | None:
    """Return the file of a class; None for one that was compiled.

    Raises:
        ValueError: If it has none.
    """
    try:
        file = inspect.getsourcefile(build)
    except (TypeError, OSError):  # of a session without a file
        file = f"<{build.__module__}>"
    if file is not None and not Path(file).is_file():
        raise ValueError(
            f"a loss of your own must be in a file, by which a later run knows it; {build.__name__} is in {file}: write it to "
            "a module, and import it from there."
        )
    return file


def digest_of(file: str | Path) -> str:
    """Return what a file is known by in a record."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


@cache
def _digest_when_read(build: type, file: str) -> str:
    return digest_of(file)


def _class_of(method: str) -> Any:
    module_name, _, name = method.partition(":")
    how = f"a loss of your own is given as package.module:Class, got {method!r}"
    if not name.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise ValueError(f"{how}, which is not of that form.")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the module does when it is read
        raise ValueError(
            f"{how}, and {module_name} cannot be imported ({type(error).__name__}: {error}): it must be installed, or lie in "
            "the current directory or on PYTHONPATH."
        ) from error
    found = getattr(module, name, None)
    if found is None:
        raise ValueError(f"{how}, and {module_name} has no {name}{_others(module)}.")
    from torch import nn

    if not isinstance(found, type) or not issubclass(found, nn.Module):
        kind = "a class" if isinstance(found, type) else f"a {type(found).__name__}"
        raise ValueError(f"{how}, and {name} is {kind} that is not a torch.nn.Module class: a loss is one.")
    try:
        inspect.signature(found).bind(None)
    except TypeError as error:
        taken = ", ".join(str(parameter) for parameter in inspect.signature(found).parameters.values())
        raise ValueError(
            f"{how}, which must be built by {name}(model), its other arguments having defaults; it takes ({taken}) ({error})."
        ) from error
    return found


def _others(module: Any) -> str:
    """Name the classes of a module, for one that was mistyped."""
    names = [name for name, value in vars(module).items() if isinstance(value, type) and value.__module__ == module.__name__]
    return f"; its classes are {', '.join(names)}" if names else ""
