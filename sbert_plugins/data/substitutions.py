"""Texts made of a person's own sentences that tell something of an encoder without labels."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from .phrases import stop_word_share
from .synonyms import SynonymReplacer, find_words, open_wordnet

_FEWEST_SENTENCES, _FEWEST = 100, 30
_FEWEST_STOP_WORDS = 0.2  # which leaves headlines out


class Substitution(NamedTuple):
    """A sentence, a copy with one word replaced by a synonym, and a copy with the same word replaced by another word."""

    sentence: str
    synonym: str
    other: str


class LabelFreeTexts(NamedTuple):
    """What :class:`~sbert_plugins.evaluation.LabelFreeEvaluator` reads: sentences, and copies of some of them."""

    sentences: list[str]
    substitutions: list[Substitution]
    halves: list[tuple[str, str]]  # a sentence, and half of its words


def label_free_texts(sentences: Sequence[str], *, text: Sequence[str] = (), limit: int = 300, seed: int = 0) -> LabelFreeTexts:
    """Make copies of sentences that keep their meaning, lose it, or lose half of their words.

    The synonym is of the first sense that NLTK lists, nouns before verbs, and occurs in the text; the other word has that
    sense's part of speech and is about as frequent as the synonym. English only.

    Args:
        sentences: Distinct sentences that no training reads, some hundred.
        text: Further sentences that tell how frequent words are, those of the training.
        limit: Most substitutions, and most halves; 30 or more.
        seed: Of the draws.

    Raises:
        ValueError: For fewer than 100 distinct sentences, a text that is not English by its stop words, or if fewer than 30
            sentences have a word to replace, or six words.
        FileNotFoundError: If NLTK finds no WordNet.

    Example:
        >>> from sbert_plugins import data, recipes
        >>> sentences = data.read_sentences(recipes.offline_sentences_path())["anchor"][:]
        >>> texts = data.label_free_texts(sentences[:600], text=sentences[600:])
        >>> texts.substitutions[0].sentence != texts.substitutions[0].synonym
        True
    """
    _check(sentences, text, limit)
    sentences = list(dict.fromkeys(sentences))
    if len(sentences) < _FEWEST_SENTENCES:
        raise ValueError(f"sentences must be at least {_FEWEST_SENTENCES} different ones, got {len(sentences)}.")
    share = stop_word_share(sentences)
    if share < _FEWEST_STOP_WORDS:
        raise ValueError(
            f"sentences must be English as it is written: {_FEWEST_STOP_WORDS:.0%} of the words at least as 'the' or 'of', "
            f"got {share:.1%}. For other texts score by labels."
        )
    kinds = WordKinds([*text, *sentences])
    rng = random.Random(seed)
    substitutions = [found for sentence in sentences if (found := kinds.substitution(sentence, rng))][:limit]
    halves = [(sentence, half_of_words(sentence, rng)) for sentence in sentences if len(sentence.split()) >= 6][:limit]
    if min(len(substitutions), len(halves)) < _FEWEST:
        raise ValueError(
            f"{_FEWEST} sentences at least must have a word with a synonym in the text, got {len(substitutions)}, and "
            f"{_FEWEST} six words or more, got {len(halves)}. Give more sentences, or longer ones."
        )
    return LabelFreeTexts(sentences, substitutions, halves)


def _check(sentences: Sequence[str], text: Sequence[str], limit: int) -> None:
    for name, values in (("sentences", sentences), ("text", text)):
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ValueError(
                f"{name} must be a list of sentences, got {type(values).__name__}: of a dataset take dataset['anchor'][:]."
            )
        for row, value in enumerate(values):
            if not isinstance(value, str):
                raise ValueError(f"{name} must hold strings, got {value!r} in row {row}: leave such rows out.")
    if limit < _FEWEST:
        raise ValueError(f"limit must be at least {_FEWEST}, got {limit}: fewer copies say nothing.")


def half_of_words(sentence: str, rng: random.Random) -> str:
    """Return the sentence without half of its words, which are drawn."""
    words = sentence.split()
    gone = set(rng.sample(range(len(words)), round(len(words) / 2)))
    return " ".join(word for place, word in enumerate(words) if place not in gone)


class WordKinds:
    """The words of a text, with how frequent they are, their parts of speech and their synonyms."""

    def __init__(self, sentences: Sequence[str]) -> None:
        self.replacer = SynonymReplacer()
        self.wordnet = open_wordnet()
        self.counts = Counter(match[0].lower() for sentence in sentences for match in find_words(sentence))
        self.bands: dict[tuple[str, int], list[str]] = {}
        for word in sorted(self.counts):
            part = self.part_of_speech(word)
            if part and word.isalpha() and self.wordnet.morphy(word, part) == word:  # as a synonym: in dictionary form
                self.bands.setdefault((part, self.band(word)), []).append(word)

    def band(self, word: str) -> int:
        """Return how frequent a word is, in powers of two."""
        return int(math.log2(1 + self.counts[word]))

    def part_of_speech(self, word: str) -> str | None:
        """Return that of the first sense that is listed; none of a word without synonyms."""
        if not self.replacer.synonyms(word):
            return None
        return self.wordnet.synsets(word)[0].pos().replace("s", "a")

    def synonyms(self, word: str) -> list[str]:
        """Return the synonyms of the word's first sense that the text has."""
        synsets = self.wordnet.synsets(word)
        first = {name.replace("_", " ") for name in synsets[0].lemma_names()} if synsets else set()
        return [name for name in self.replacer.synonyms(word) if name in first and self.counts[name] and name.isalpha()]

    def band_of_others(self, word: str, synonym: str) -> int:
        """Return how frequent the other word shall be: as the synonym."""
        return self.band(synonym)

    def substitution(self, sentence: str, rng: random.Random) -> Substitution | None:
        """Replace one word twice; none where no word has a synonym and another word of its kind."""
        matches = find_words(sentence)
        present = {match[0].lower() for match in matches}
        for match in rng.sample(matches, len(matches)):
            word = match[0].lower()
            synonyms = [name for name in self.synonyms(word) if name.lower() not in present]
            if not synonyms:
                continue
            synonym = rng.choice(synonyms)
            unwanted = present | {name.lower() for name in self.replacer.synonyms(word)}
            kind = (self.part_of_speech(word) or "", self.band_of_others(word, synonym))
            others = [other for other in self.bands.get(kind, []) if other not in unwanted]
            if others:
                copies = (sentence[: match.start()] + new + sentence[match.end() :] for new in (synonym, rng.choice(others)))
                return Substitution(sentence, *copies)
        return None
