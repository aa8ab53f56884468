"""The methods by name, loss classes of one's own, and the keywords of a method's loss."""

import contextlib
import importlib
import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sbert_plugins import losses
from sbert_plugins.catalogue import check_method, did_you_mean
from sbert_plugins.recipes.arccse import ARCCSE
from sbert_plugins.recipes.bag_of_words import BAG_OF_WORDS
from sbert_plugins.recipes.consert import CONSERT
from sbert_plugins.recipes.denosent import DENOSENT
from sbert_plugins.recipes.paser import PASER, PASER_SUPERVISED
from sbert_plugins.recipes.pt_bert import PT_BERT
from sbert_plugins.recipes.recipe import Recipe
from sbert_plugins.recipes.recommended import RECOMMENDED
from sbert_plugins.recipes.search import SEARCH
from sbert_plugins.recipes.simcse import SIMCSE
from sbert_plugins.recipes.slt_fai import SLT_FAI

RECIPES = {
    recipe.name: recipe
    for recipe in (
        RECOMMENDED,
        SEARCH,
        ARCCSE,
        PASER,
        PASER_SUPERVISED,
        DENOSENT,
        PT_BERT,
        SLT_FAI,
        CONSERT,
        BAG_OF_WORDS,
        SIMCSE,
    )
}


def find_recipe(method: str) -> Recipe:
    """Return the recipe of a method, or one with the settings of ConSERT for a loss class of one's own.

    Args:
        method: A name in :data:`RECIPES`, or ``package.module:Class`` for a class that is built as
            ``Class(model)``.

    Raises:
        ValueError: For an unknown name, with the nearest one.
        ImportError: If the module cannot be imported.
    """
    check_method(method)
    if method in RECIPES:
        return RECIPES[method]
    module, _, name = method.partition(":")
    loss = getattr(importlib.import_module(module), name)
    roles = getattr(loss, "columns", ("anchor", "positive", "negative"))
    required = len(roles) - getattr(loss, "optional_columns", len(roles) - 1)
    return Recipe(
        name=method,
        loss=loss,
        reads=roles[:required],
        optional=roles[required:],
        arguments=CONSERT.arguments,
    )


def read_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``KEY=VALUE`` texts, such as keywords of a loss.

    Raises:
        ValueError: For a text without ``=``.

    Example:
        >>> read_pairs(["temperature=0.1", "projection_head=false"])
        {'temperature': 0.1, 'projection_head': False}
    """
    found = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise ValueError(f"A keyword is KEY=VALUE, got {pair!r}.")
        found[key] = read_value(text)
    return found


def check_keywords(recipe: Recipe, keywords: Mapping[str, Any]) -> None:
    """Raise for a keyword that the loss of a recipe does not have, or a word in place of true or false.

    Raises:
        ValueError: With the nearest keyword.
    """
    known = known_keywords(recipe)
    for key, value in keywords.items():
        if known is not None and key not in known:
            raise ValueError(
                f"The loss of {recipe.name} has no keyword {key!r}.{did_you_mean(key, known)} It has "
                f"{', '.join(known)}."
            )
        if known is not None and isinstance(known[key], bool) and isinstance(value, str):
            raise ValueError(f"{key} is true or false, got {value!r}.")


def known_keywords(recipe: Recipe) -> dict[str, Any] | None:
    """Return the keywords of a recipe's loss with their defaults; None if it takes any."""
    builders = [
        getattr(losses, each) if isinstance(each, str) else each
        for each in (recipe.loss_class or recipe.loss, recipe.loss)
    ]
    found = [each for build in builders for each in inspect.signature(build).parameters.values()]
    if not recipe.loss_class and any(each.kind is each.VAR_KEYWORD for each in found):
        return None
    known = {each.name: each.default for each in found if each.default is not each.empty}
    if isinstance(recipe.loss, str) and hasattr(losses.official, recipe.loss):
        known["official"] = False
    others = (*recipe.arguments, "seed") if recipe.fit else ()
    return {name: default for name, default in known.items() if name not in others}


def read_value(text: str) -> Any:
    """Read a value of the command line: none, true, false, a number, a list with commas, or a word.

    Example:
        >>> [read_value(text) for text in ("none", "0.05", "True", "dropout,token_cutoff", "tokens")]
        [None, 0.05, True, ['dropout', 'token_cutoff'], 'tokens']
    """
    words = {"none": None, "null": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for read in (json.loads, float):  # JSON has no number that begins with its point
        with contextlib.suppress(ValueError):
            return read(text)
    return [read_value(part) for part in text.split(",") if part] if "," in text else text
