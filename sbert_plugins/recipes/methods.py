"""The methods by name, loss classes of one's own, and keywords of the command line."""

import contextlib
import importlib
import json
from collections.abc import Sequence
from typing import Any

from sbert_plugins.catalogue import check_method
from sbert_plugins.recipes import (
    arccse,
    bag_of_words,
    consert,
    denosent,
    paser,
    pt_bert,
    recommended,
    search,
    simcse,
    slt_fai,
)
from sbert_plugins.recipes.recipe import Recipe

RECIPES = {
    recipe.name: recipe
    for recipe in (
        recommended.RECOMMENDED,
        search.SEARCH,
        arccse.ARCCSE,
        paser.PASER,
        paser.PASER_SUPERVISED,
        denosent.DENOSENT,
        pt_bert.PT_BERT,
        slt_fai.SLT_FAI,
        consert.CONSERT,
        bag_of_words.BAG_OF_WORDS,
        simcse.SIMCSE,
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
        arguments=consert.CONSERT.arguments,
    )


def read_keywords(pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``KEY=VALUE`` texts, such as keywords of a loss.

    Raises:
        ValueError: For a text without ``=``.

    Example:
        >>> read_keywords(["temperature=0.1", "projection_head=false"])
        {'temperature': 0.1, 'projection_head': False}
    """
    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise ValueError(f"A keyword is KEY=VALUE, got {wrong[0]!r}.")
    return {key: read_value(text) for key, _, text in (pair.partition("=") for pair in pairs)}


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
