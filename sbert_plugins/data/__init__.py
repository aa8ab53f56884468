"""Text in, text or datasets out. Knows nothing of models."""

from .back_translation import back_translate
from .columns import paser_columns, synonyms_if_installed
from .crops import crop_pairs, split_sentences
from .frequency import TokenFrequencies
from .noise import delete_words, duplicate_words, positive_pairs, recombine_roles, swap_words
from .phrases import ENGLISH_STOP_WORDS, Chunks, Phrase, Rake, hide_phrase, locate_phrases, rank_phrases
from .substitutions import LabelFreeTexts, Substitution, label_free_texts
from .synonyms import SynonymReplacer
from .text import read_documents, read_pairs, read_sentences, read_triplets

__all__ = [
    "ENGLISH_STOP_WORDS",
    "Chunks",
    "LabelFreeTexts",
    "Phrase",
    "Rake",
    "Substitution",
    "SynonymReplacer",
    "TokenFrequencies",
    "back_translate",
    "crop_pairs",
    "delete_words",
    "duplicate_words",
    "hide_phrase",
    "label_free_texts",
    "locate_phrases",
    "paser_columns",
    "positive_pairs",
    "rank_phrases",
    "read_documents",
    "read_pairs",
    "read_sentences",
    "read_triplets",
    "recombine_roles",
    "split_sentences",
    "swap_words",
    "synonyms_if_installed",
]
