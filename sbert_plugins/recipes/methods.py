"""The methods: one line each."""

from __future__ import annotations

from sbert_plugins.recipes.arccse import ARCCSE
from sbert_plugins.recipes.bag_of_words import BAG_OF_WORDS
from sbert_plugins.recipes.consert import CONSERT
from sbert_plugins.recipes.denosent import DENOSENT
from sbert_plugins.recipes.own import own_recipe
from sbert_plugins.recipes.paser import PASER, PASER_SUPERVISED
from sbert_plugins.recipes.pt_bert import PT_BERT
from sbert_plugins.recipes.recommended import RECOMMENDED
from sbert_plugins.recipes.settings import Recipe
from sbert_plugins.recipes.simcse import SIMCSE
from sbert_plugins.recipes.slt_fai import SLT_FAI

RECIPES = {
    recipe.method: recipe
    for recipe in (
        RECOMMENDED,
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


def recipe_of(method: str) -> Recipe:
    """Return the recipe of a method's name, or of ``package.module:Class``, a loss class of one's own.

    Raises:
        ValueError: For a name that is neither.
    """
    if method in RECIPES:
        return RECIPES[method]
    if ":" in method:
        return own_recipe(method)
    raise ValueError(
        f"method must be one of {', '.join(RECIPES)}, or package.module:Class for a loss of your own, got {method!r}."
    )


def name_of(method: str) -> str:
    """Return what people call a method; a class of one's own is not imported for it."""
    return RECIPES[method].name if method in RECIPES else method.rpartition(":")[2]
