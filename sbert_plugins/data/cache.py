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
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from datasets import config
from datasets.fingerprint import Hasher

_STANDARD = Path(sysconfig.get_path("stdlib"))
_WRITTEN = (ModuleType, FunctionType, MethodType, functools.partial, type)
_PLAIN = (str, bytes, int, float, complex, type(None))


def cache_folder() -> Path:
    """Return the folder of this library in the cache of ``datasets``, made where it is missing."""
    folder = Path(config.HF_DATASETS_CACHE) / "sbert_plugins"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def hash_of(value: Any, *, held: str) -> str:
    """Return a hash of a value by which rows that it made are known again.

    Raises:
        ValueError: If ``held``, what of it is the user's, cannot be pickled.
    """
    try:
        return Hasher.hash(value)
    except TypeError as error:
        raise ValueError(
            f"{held} must be a callable that can be pickled, by which what it made is known again, got one that cannot "
            f"({error}): make what it holds (a client, a lock) inside of the call."
        ) from error


def code_of(made_by: Any) -> str | None:
    """Return a hash of the files that a callable or an object's class is written in; None where there is none to read.

    ``datasets`` takes a function of an imported module for unchanged as long as its name is. One of ``__main__`` it reads
    itself, but not what that calls elsewhere. Read are the file of the callable and the modules of one's own that it reaches
    by a name in its module, not what it imports in its body; of installed packages that of the callable alone. This library's
    own have its version.
    """
    files = set(_files_reached(made_by))
    while isinstance(made_by, functools.partial):
        made_by = made_by.func
    written = made_by if inspect.isroutine(made_by) or inspect.isclass(made_by) else type(made_by)
    if (getattr(written, "__module__", None) or "__main__").split(".")[0] not in ("__main__", "sbert_plugins", "builtins"):
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
            if file := vars(thing).get("__file__"):
                yield Path(file)
            waiting += [part for part in vars(thing).values() if isinstance(part, _WRITTEN)]


def _parts(thing: Any) -> list[Any]:
    """Return what a callable, a class or an object is made of; no object is asked for anything, which it might compute."""
    if type(thing) in (list, tuple, set, frozenset, dict):
        values = thing.values() if isinstance(thing, dict) else thing
        return [value for value in values if not isinstance(value, _PLAIN)]
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, staticmethod | classmethod | MethodType):
        return [thing.__func__, *([thing.__self__] if isinstance(thing, MethodType) else [])]
    written = thing if isinstance(thing, FunctionType | type) else type(thing)
    is_main = written.__module__ == "__main__"
    module = sys.modules.get(written.__module__)
    wrapped = [one for one in [inspect.getattr_static(thing, "__wrapped__", None)] if isinstance(one, FunctionType)]
    if not (is_main or _is_ones_own(module)):
        return wrapped
    if isinstance(thing, FunctionType):
        reached = [thing.__globals__[name] for name in _names(thing.__code__) if name in thing.__globals__]
        # What else a module holds may come and go, a model that is loaded at the first call; of __main__ dill reads it.
        return [module, *wrapped, *_held(thing), *(one for one in reached if is_main or isinstance(one, _WRITTEN))]
    if isinstance(thing, type):
        return [module, *thing.__mro__[1:], *vars(thing).values()]
    return [type(thing), *_attributes(thing)]


def _attributes(thing: Any) -> Iterable[Any]:
    with suppress(AttributeError):  # one with slots
        return object.__getattribute__(thing, "__dict__").values()
    return ()


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
    """Whether a module, or a folder of modules, is neither ``__main__``, nor this library's, nor installed."""
    if module is None or module.__name__.split(".")[0] in ("__main__", "sbert_plugins"):
        return False
    file = vars(module).get("__file__")
    places = [Path(place) for place in ([file] if file else vars(module).get("__path__", ()))]
    return bool(places) and not any(
        {"site-packages", "dist-packages"} & set(place.parts) or place.is_relative_to(_STANDARD) for place in places
    )
