"""Reading texts, and making the columns that losses train on."""

from .augment import delete_words, duplicate_words, positive_pairs, recombine_roles, swap_words
from .back_translation import back_translate
from .crops import crop_pairs, split_sentences
from .frequencies import TokenFrequencies
from .paser import paser_columns
from .passages import split_passages
from .phrases import ENGLISH_STOP_WORDS, Chunks, Phrase, Rake, hide_phrase, locate_phrases
from .read import load_table, read_documents, read_pairs, read_sentences, read_triplets
from .search_lists import bm25_scores, mix_scores, pseudo_queries, search_rows
from .synonyms import SynonymReplacer, synonyms_if_installed

__all__ = [
    "ENGLISH_STOP_WORDS",
    "Chunks",
    "Phrase",
    "Rake",
    "SynonymReplacer",
    "TokenFrequencies",
    "back_translate",
    "bm25_scores",
    "crop_pairs",
    "delete_words",
    "duplicate_words",
    "hide_phrase",
    "load_table",
    "locate_phrases",
    "mix_scores",
    "paser_columns",
    "positive_pairs",
    "pseudo_queries",
    "read_documents",
    "read_pairs",
    "read_sentences",
    "read_triplets",
    "recombine_roles",
    "search_rows",
    "split_passages",
    "split_sentences",
    "swap_words",
    "synonyms_if_installed",
]
