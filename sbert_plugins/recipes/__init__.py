"""The methods' training settings, and functions that train and compare models with them."""

from sbert_plugins.catalogue import small_budget
from sbert_plugins.recipes.compare import Comparison, compare
from sbert_plugins.recipes.encoders import (
    DEFAULT_TEMPLATE,
    OFFLINE_BASE,
    average_with_start,
    build_encoder,
    embeds_already,
    graded_pairs,
    has_pooling,
    is_installed,
    name_of_model,
    offline_encoder,
    offline_sentences_path,
    pooling_of,
)
from sbert_plugins.recipes.methods import RECIPES, find_recipe, read_keywords
from sbert_plugins.recipes.protocol import Protocol, protocol_names, read_protocol
from sbert_plugins.recipes.recipe import Recipe
from sbert_plugins.recipes.recommended import recommended_loss
from sbert_plugins.recipes.search import SearchFit, adapt_to_search, join_titles
from sbert_plugins.recipes.train import train
from sbert_plugins.recipes.trained_loss import load_loss, reconstruct_phrases

__all__ = [
    "DEFAULT_TEMPLATE",
    "OFFLINE_BASE",
    "RECIPES",
    "Comparison",
    "Protocol",
    "Recipe",
    "SearchFit",
    "adapt_to_search",
    "average_with_start",
    "build_encoder",
    "compare",
    "embeds_already",
    "find_recipe",
    "graded_pairs",
    "has_pooling",
    "is_installed",
    "join_titles",
    "load_loss",
    "name_of_model",
    "offline_encoder",
    "offline_sentences_path",
    "pooling_of",
    "protocol_names",
    "read_keywords",
    "read_protocol",
    "recommended_loss",
    "reconstruct_phrases",
    "small_budget",
    "train",
]
