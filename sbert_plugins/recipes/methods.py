"""The methods: one line each."""

from sbert_plugins.recipes.arccse import ARCCSE
from sbert_plugins.recipes.denosent import DENOSENT
from sbert_plugins.recipes.paser import PASER, PASER_SUPERVISED
from sbert_plugins.recipes.pt_bert import PT_BERT

RECIPES = {recipe.method: recipe for recipe in (ARCCSE, DENOSENT, PASER, PASER_SUPERVISED, PT_BERT)}
