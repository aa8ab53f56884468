"""Keywords of a method's loss: which there are, what each takes, and how the text of a command line becomes a value."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from sbert_plugins.recipes.methods import recipe_of
from sbert_plugins.recipes.settings import Settings

_FOUND = ("pairs",)  # by the recipe, of the dataset: no one's to give
_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class _Kind(NamedTuple):
    """A type in a signature: its name in words, how text is read as one, and which values are one."""

    words: str
    read: Callable[[str], Any]  # raises ValueError or KeyError for any other text
    fits: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number(text: str) -> int | float:
    value = json.loads(text) if text.strip().lstrip("-").isdigit() else float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _none(text: str) -> None:
    if text.lower() not in ("none", "null"):
        raise ValueError(text)


def _list(text: str) -> list[str]:
    values = json.loads(text) if text.startswith("[") else [part.strip() for part in text.split(",") if part.strip()]
    if not all(isinstance(value, str) for value in values):
        raise ValueError(text)
    return values


# By the name in a signature; of a union the first that reads a text has it, so that "none" is None before it is a string.
_KINDS = {
    "None": _Kind("none", _none, lambda value: value is None),
    "bool": _Kind("true or false", lambda text: _WORDS[text.lower()], lambda value: isinstance(value, bool)),
    "int": _Kind("a whole number", int, lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "float": _Kind("a finite number", _number, _is_number),
    "Sequence[str]": _Kind(
        "words with commas between",
        _list,
        lambda value: not isinstance(value, str) and isinstance(value, Sequence) and all(isinstance(v, str) for v in value),
    ),
    "str": _Kind("a word", str, lambda value: isinstance(value, str)),
    "Any": _Kind("a value", lambda text: read_value(text), lambda value: True),
}


def read_value(text: str) -> Any:
    """Read a value whose type nothing says: what json reads, Python's True, False and None; anything else is a string."""
    try:
        return {"True": True, "False": False, "None": None}[text] if text in ("True", "False", "None") else json.loads(text)
    except json.JSONDecodeError:
        return text


def known_keywords(method: str) -> dict[str, tuple[str, ...]]:
    """Return each keyword of a method's loss with the types that its signature gives it.

    A recipe that builds its loss by a function has the function's keywords and, where it passes others on, the loss's. A class
    of one's own has all arguments behind the model, by keyword or not.
    """
    known = {name: _types(parameter.annotation) for name, parameter in _parameters(method).items()}
    return known | ({"official": ("bool",)} if recipe_of(method).official else {})


def default_keywords(method: str) -> dict[str, Any]:
    """Return what a method's loss is built with unless told otherwise, as far as json can hold it."""
    found = {}
    for name, parameter in _parameters(method).items():
        if parameter.default is not parameter.empty:
            try:
                found[name] = json.loads(json.dumps(parameter.default, allow_nan=False))
            except (TypeError, ValueError):
                continue
    return found


def _parameters(method: str) -> dict[str, inspect.Parameter]:
    from sbert_plugins import losses

    recipe = recipe_of(method)
    sources = [recipe.build or getattr(losses, recipe.loss)]
    kinds = [inspect.Parameter.KEYWORD_ONLY, *([inspect.Parameter.POSITIONAL_OR_KEYWORD] if recipe.reads == "any" else [])]
    if recipe.reads != "any" and _passes_on(sources[0]):
        sources.append(getattr(losses, recipe.loss))
    known: dict[str, inspect.Parameter] = {}
    for source in sources:
        for place, (name, parameter) in enumerate(inspect.signature(source).parameters.items()):
            if place and parameter.kind in kinds:  # the first is the model
                known.setdefault(name, parameter)
    return known


def _passes_on(build: Callable[..., Any]) -> bool:
    """Whether a function or class takes keywords that its signature does not name."""
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in inspect.signature(build).parameters.values())


def _types(annotation: Any) -> tuple[str, ...]:
    """Split an annotation, which is text under postponed evaluation, at its bars; a type that is not known takes anything."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "Any")
    names = [name.strip() for name in text.split("|")]
    return tuple(name for name in _KINDS if name in names) if set(names) <= set(_KINDS) else ("Any",)


def read_keywords(method: str, pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``KEY=VALUE`` texts as keywords of a method's loss, by the types of its signature.

    Raises:
        ValueError: For a text without ``=``, a keyword that the loss has not (with those it has), a value of another type
            (with what the keyword takes), and a keyword that is given twice.
    """
    keywords: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not key.isidentifier() or not equals:
            raise ValueError(f"--loss takes KEY=VALUE, got {pair!r}: a TEXT goes before --loss.")
        if key in _FOUND:
            raise ValueError(f"{key} follows from the columns, got {text!r}: leave it out.")
        if key in keywords:
            raise ValueError(f"--loss must name a keyword once, got {key} twice.")
        keywords[key] = _read_as(_types_of(method, key), key, text)
    return keywords


def check_keywords(method: str, keywords: dict[str, Any]) -> None:
    """Refuse keywords that a method's loss has not, and values of another type than its signature gives.

    Raises:
        ValueError: With the keyword's name, and the keywords that there are or what it takes.
    """
    for key, value in keywords.items():
        types = _types_of(method, key)
        if not any(_KINDS[name].fits(value) for name in types):
            raise ValueError(_refusal(key, types, value))


def read_setting(key: str, text: str) -> Any:
    """Read text as a value of a field of :class:`Settings`.

    Raises:
        ValueError: With what the setting takes.
    """
    (annotation,) = (field.type for field in fields(Settings) if field.name == key)
    return _read_as(_types(annotation), key, text)


def _read_as(types: Sequence[str], key: str, text: str) -> Any:
    for name in types:
        try:
            return _KINDS[name].read(text)
        except (ValueError, KeyError):
            continue
    raise ValueError(_refusal(key, types, text))


def _types_of(method: str, key: str) -> tuple[str, ...]:
    known = known_keywords(method)
    if key in known:
        return known[key]
    recipe = recipe_of(method)
    if recipe.reads == "any" and recipe.build is not None and _passes_on(recipe.build):
        return ("Any",)
    told = [name for name in known if name not in _FOUND]
    listed = f"must be among {', '.join(told)}" if told else "are none"
    raise ValueError(f"keywords of {method}'s loss {listed}; got {key}.")


def _refusal(key: str, types: Sequence[str], value: Any) -> str:
    return f"{key} takes {' or '.join(_KINDS[name].words for name in types)}, got {value!r}."
