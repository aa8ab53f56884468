"""Where rows that were made are kept, and what tells them from those that another function would make."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from datasets import config

_INSTALLED = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]


def cache_folder() -> Path:
    """Return the folder of this library in the cache of ``datasets``, made where it is missing."""
    folder = Path(config.HF_DATASETS_CACHE) / "sbert_plugins"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def code_of(made_by: Any) -> str | None:
    """Return a hash of the files that a callable or an object's class is written in; None where there is none to read.

    ``datasets`` takes a function of an imported module for unchanged as long as its name is. One of ``__main__`` it reads
    itself, but not what that calls elsewhere. Read are the file of the callable and the modules of one's own that it reaches
    by a name in its module; of installed packages that of the callable alone. This library's own have its version.
    """
    files = set(_files_reached(made_by))
    while isinstance(made_by, functools.partial):
        made_by = made_by.func
    written = made_by if inspect.isroutine(made_by) or inspect.isclass(made_by) else type(made_by)
    if (written.__module__ or "__main__").split(".")[0] not in ("__main__", "sbert_plugins", "builtins"):
        with suppress(TypeError):  # compiled
            files.add(Path(inspect.getsourcefile(inspect.unwrap(written)) or ""))
    found = sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file())
    return hashlib.sha256("".join(found).encode()).hexdigest() if found else None


def _files_reached(made_by: Any) -> Iterator[Path]:
    """Yield the files of one's own modules that a callable or an object reaches."""
    seen: dict[int, Any] = {}  # what is held keeps its id
    waiting = [made_by]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if not isinstance(thing, ModuleType):
            waiting += _parts(thing)
        elif _is_ones_own(thing):
            yield Path(str(thing.__file__))
            waiting += [part for part in vars(thing).values() if isinstance(part, ModuleType | FunctionType | type)]


def _parts(thing: Any) -> Iterable[Any]:
    """Return what a callable, a class or an object is made of."""
    if isinstance(thing, functools.partial):
        return thing.func, *thing.args, *thing.keywords.values()
    if inspect.ismethod(thing):
        return thing.__func__, thing.__self__
    written = thing if isinstance(thing, FunctionType | type) else type(thing)
    module = sys.modules.get(written.__module__)
    wrapped = (thing.__wrapped__,) if hasattr(thing, "__wrapped__") else ()
    if written.__module__ != "__main__" and not _is_ones_own(module):
        return wrapped
    if isinstance(thing, FunctionType):
        named = (thing.__globals__[name] for name in _names(thing.__code__) if name in thing.__globals__)
        return module, *wrapped, *_held(thing), *named
    if isinstance(thing, type):
        return module, *thing.__mro__[1:], *vars(thing).values()
    return type(thing), *wrapped, *getattr(thing, "__dict__", {}).values()


def _held(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # one that is empty yet
            yield cell.cell_contents


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _is_ones_own(module: ModuleType | None) -> bool:
    """Whether a module is neither ``__main__``, nor this library's, nor installed."""
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__.split(".")[0] in ("__main__", "sbert_plugins"):
        return False
    return not any(Path(file).is_relative_to(folder) for folder in _INSTALLED)
