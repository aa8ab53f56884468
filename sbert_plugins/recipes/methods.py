"""The methods by name, loss classes of one's own, and the keywords of a method's loss."""

import contextlib
import importlib
import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sbert_plugins.recipes.arccse import ARCCSE
from sbert_plugins.recipes.bag_of_words import BAG_OF_WORDS
from sbert_plugins.recipes.consert import CONSERT
from sbert_plugins.recipes.denosent import DENOSENT
from sbert_plugins.recipes.paser import PASER, PASER_SUPERVISED
from sbert_plugins.recipes.pt_bert import PT_BERT
from sbert_plugins.recipes.recipe import Recipe, did_you_mean
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
        ImportError: If the class cannot be imported.
    """
    if method in RECIPES:
        return RECIPES[method]
    if ":" not in method:
        raise ValueError(
            f"There is no method {method!r}.{did_you_mean(method, RECIPES)} The methods are "
            f"{', '.join(RECIPES)}, and "
            "package.module:Class for a loss of your own."
        )
    module, _, name = method.partition(":")
    found = importlib.import_module(module)
    if not hasattr(found, name):
        raise ImportError(f"{module} has no {name}.{did_you_mean(name, vars(found))}")
    loss = getattr(found, name)
    roles = getattr(loss, "columns", ("anchor", "positive", "negative"))
    required = len(roles) - getattr(loss, "optional_columns", len(roles) - 1)
    return Recipe(
        name=method,
        title=name,
        paper="a loss of your own",
        url="",
        summary="",
        loss=loss,
        reads=roles[:required],
        optional=roles[required:],
        arguments=CONSERT.arguments,
    )


def read_keywords(recipe: Recipe, pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``KEY=VALUE`` texts as keywords of a method's loss, and check that the loss has them.

    Raises:
        ValueError: For a text without ``=``, or a key that the loss does not have, with the nearest one.

    Example:
        >>> read_keywords(RECIPES["arccse"], ["temperature=0.1", "projection_head=false"])
        {'temperature': 0.1, 'projection_head': False}
    """
    keywords = read_pairs(pairs)
    check_keywords(recipe, keywords)
    return keywords


def read_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``KEY=VALUE`` texts.

    Example:
        >>> read_pairs(["top_k=5", "synonyms=0.3"])
        {'top_k': 5, 'synonyms': 0.3}
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
    from sbert_plugins import losses

    is_ours = recipe.name in RECIPES
    if recipe.fit is not None:
        known = _keywords_of(recipe.loss)
        return {name: value for name, value in known.items() if name not in (*recipe.arguments, "seed")}
    build: Any = getattr(losses, recipe.loss) if isinstance(recipe.loss, str) else recipe.loss
    known = _keywords_of(build, is_ours=is_ours)
    if any(one.kind is one.VAR_KEYWORD for one in inspect.signature(build).parameters.values()):
        if not is_ours:
            return None
        known = _keywords_of(getattr(losses, recipe.loss_class)) | known
    if isinstance(recipe.loss, str) and hasattr(losses.official, recipe.loss):
        known["official"] = False
    return known


def _keywords_of(build: Any, *, is_ours: bool = True) -> dict[str, Any]:
    """Return the keywords of a function or class; of a user's class also the arguments after the model."""
    parameters = list(inspect.signature(build).parameters.values())[1:]
    return {
        one.name: one.default
        for one in parameters
        if one.kind is one.KEYWORD_ONLY or (one.kind is one.POSITIONAL_OR_KEYWORD and not is_ours)
    }


def read_value(text: str) -> Any:
    """Read a value of the command line: none, true, false, a number, a list with commas, or a word.

    Example:
        >>> [read_value(text) for text in ("none", "0.05", "True", "dropout,token_cutoff", "tokens")]
        [None, 0.05, True, ['dropout', 'token_cutoff'], 'tokens']
    """
    if text.lower() in ("none", "null"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for read in (json.loads, float):  # JSON has no number that begins with its point
        with contextlib.suppress(ValueError):
            return read(text)
    return [read_value(part) for part in text.split(",") if part] if "," in text else text
