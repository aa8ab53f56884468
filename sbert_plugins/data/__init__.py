"""Text in, text or datasets out. Knows nothing of models."""

from .columns import paser_columns
from .frequency import TokenFrequencies
from .noise import delete_words, swap_words
from .phrases import ENGLISH_STOP_WORDS, Chunks, Phrase, Rake, hide_phrase, locate_phrases, rank_phrases
from .synonyms import SynonymReplacer
from .text import read_sentences, read_triplets

__all__ = [
    "ENGLISH_STOP_WORDS",
    "Chunks",
    "Phrase",
    "Rake",
    "SynonymReplacer",
    "TokenFrequencies",
    "delete_words",
    "hide_phrase",
    "locate_phrases",
    "paser_columns",
    "rank_phrases",
    "read_sentences",
    "read_triplets",
    "swap_words",
]
