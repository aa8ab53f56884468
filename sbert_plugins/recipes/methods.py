"""The methods: one line each."""

from sbert_plugins.recipes.arccse import ARCCSE
from sbert_plugins.recipes.bag_of_words import BAG_OF_WORDS
from sbert_plugins.recipes.denosent import DENOSENT
from sbert_plugins.recipes.paser import PASER, PASER_SUPERVISED
from sbert_plugins.recipes.pt_bert import PT_BERT
from sbert_plugins.recipes.slt_fai import SLT_FAI

RECIPES = {recipe.method: recipe for recipe in (ARCCSE, PASER, PASER_SUPERVISED, DENOSENT, PT_BERT, SLT_FAI, BAG_OF_WORDS)}
