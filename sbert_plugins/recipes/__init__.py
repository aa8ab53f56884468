"""The papers' training settings, and one function that trains a plain sentence-transformers model with them.

Each constant stands beside the sentence of the paper. Importing this package loads no torch, so that the command line can
print its tables at once.
"""

from sbert_plugins.recipes.arccse import ARCCSE
from sbert_plugins.recipes.bag_of_words import BAG_OF_WORDS
from sbert_plugins.recipes.building import build_loss, settings_of
from sbert_plugins.recipes.compare import Comparison, compare
from sbert_plugins.recipes.consert import CONSERT
from sbert_plugins.recipes.denosent import DENOSENT
from sbert_plugins.recipes.encoders import (
    build_encoder,
    graded_pairs,
    has_pooling,
    offline_encoder,
    offline_sentences_path,
    pooling_of,
)
from sbert_plugins.recipes.glossary import LOGGED, meaning
from sbert_plugins.recipes.hub import check_hub, prepare_push, push_to_hub
from sbert_plugins.recipes.keywords import known_keywords, read_keywords
from sbert_plugins.recipes.methods import RECIPES, name_of, recipe_of
from sbert_plugins.recipes.output import check_output, load_loss, read_results, reconstructions
from sbert_plugins.recipes.paser import PASER, PASER_SUPERVISED, paser_rows, paser_supervised_loss, paser_supervised_rows
from sbert_plugins.recipes.protocol import SETTINGS, Protocol, Row
from sbert_plugins.recipes.protocols import PROTOCOLS, STS_SENTENCES, protocol_of, protocol_table
from sbert_plugins.recipes.pt_bert import PT_BERT
from sbert_plugins.recipes.recommended import RECOMMENDED, recommended_loss
from sbert_plugins.recipes.reporting import check_report_to
from sbert_plugins.recipes.run import AVERAGE, score, train
from sbert_plugins.recipes.seeds import train_seeds
from sbert_plugins.recipes.settings import Recipe, Settings, shortened, with_changes
from sbert_plugins.recipes.simcse import SIMCSE, simcse_loss
from sbert_plugins.recipes.slt_fai import SLT_FAI, slt_fai_loss, slt_fai_settings
from sbert_plugins.recipes.texts import read_text

DEFAULT_MODEL = "bert-base-uncased"
DEFAULT_TEXT = ARCCSE.text

__all__ = [
    "ARCCSE",
    "AVERAGE",
    "BAG_OF_WORDS",
    "CONSERT",
    "DEFAULT_MODEL",
    "DEFAULT_TEXT",
    "DENOSENT",
    "LOGGED",
    "PASER",
    "PASER_SUPERVISED",
    "PROTOCOLS",
    "PT_BERT",
    "RECIPES",
    "RECOMMENDED",
    "SETTINGS",
    "SIMCSE",
    "SLT_FAI",
    "STS_SENTENCES",
    "Comparison",
    "Protocol",
    "Recipe",
    "Row",
    "Settings",
    "build_encoder",
    "build_loss",
    "check_hub",
    "check_output",
    "check_report_to",
    "compare",
    "graded_pairs",
    "has_pooling",
    "known_keywords",
    "load_loss",
    "meaning",
    "name_of",
    "offline_encoder",
    "offline_sentences_path",
    "paser_rows",
    "paser_supervised_loss",
    "paser_supervised_rows",
    "pooling_of",
    "prepare_push",
    "protocol_of",
    "protocol_table",
    "push_to_hub",
    "read_keywords",
    "read_results",
    "read_text",
    "recipe_of",
    "recommended_loss",
    "reconstructions",
    "score",
    "settings_of",
    "shortened",
    "simcse_loss",
    "slt_fai_loss",
    "slt_fai_settings",
    "train",
    "train_seeds",
    "with_changes",
]
