"""Scores of an encoder that need no labels: the texts that they are computed on, and the scores."""

from __future__ import annotations

import math
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sbert_plugins import data
from sbert_plugins.data.synonyms import find_words

VIEWS = 300
TRIPLES = 300


class Triple(NamedTuple):
    """A sentence, a copy with one word replaced by a synonym, and one with the same word replaced by another word."""

    sentence: str
    synonym: str
    other: str


class Texts(NamedTuple):
    """What a person's own sentences give to compare."""

    own: list[str]
    any_sense: list[Triple]  # the synonym is of any sense, and may be several words
    first_sense: list[Triple]  # of the word's most frequent sense and one that occurs in the text; the other is as frequent
    nested: list[Triple]  # without a quarter and without half of its words
    halves: list[tuple[str, str]]

    def all(self) -> Iterator[str]:
        """Return every text."""
        yield from self.own
        for group in (self.any_sense, self.first_sense, self.nested, self.halves):
            for texts in group:
                yield from texts


def make_texts(held_out: Sequence[str], text: Sequence[str], seed: int = 0) -> Texts:
    """Make them from held-out sentences; ``text``, those of the training, tells how frequent words are."""
    words = Words([*text, *held_out])
    rng = random.Random(seed)
    any_sense = [found for sentence in held_out if (found := words.triple(sentence, rng, is_first=False))]
    first_sense = [found for sentence in held_out if (found := words.triple(sentence, rng, is_first=True))]
    nested = [Triple(sentence, *deleted(sentence, rng)) for sentence in held_out if len(sentence.split()) >= 6]
    halves = [half(sentence) for sentence in held_out if len(sentence.split()) >= 8]
    return Texts(list(held_out), any_sense[:TRIPLES], first_sense[:TRIPLES], nested[:TRIPLES], halves[:TRIPLES])


def deleted(sentence: str, rng: random.Random) -> tuple[str, str]:
    """Return the sentence without a quarter of its words, and without these and another quarter."""
    words = sentence.split()
    order = rng.sample(range(len(words)), len(words))
    few, many = (set(order[: round(share * len(words))]) for share in (0.25, 0.5))
    return tuple(" ".join(word for place, word in enumerate(words) if place not in gone) for gone in (few, many))


def half(sentence: str) -> tuple[str, str]:
    words = sentence.split()
    return " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])


class Words:
    """The words of a text, with how frequent they are, their parts of speech and their synonyms."""

    def __init__(self, sentences: Sequence[str]) -> None:
        from nltk.corpus.reader.wordnet import WordNetCorpusReader
        from nltk.data import find

        self.wordnet = WordNetCorpusReader(find("corpora/wordnet"), None)
        self.replacer = data.SynonymReplacer()
        self.counts = Counter(match[0].lower() for sentence in sentences for match in find_words(sentence))
        self.bands: dict[tuple[str, int], list[str]] = {}
        for word in sorted(self.counts):
            part = self.part_of_speech(word)
            if part and word.isalpha() and self.wordnet.morphy(word, part) == word:  # as a synonym: in dictionary form
                self.bands.setdefault((part, self.band(word)), []).append(word)

    def band(self, word: str) -> int:
        return int(math.log2(1 + self.counts[word]))

    def part_of_speech(self, word: str) -> str | None:
        """Return that of its most frequent sense; none of a word without synonyms."""
        if not self.replacer.synonyms(word):
            return None
        return self.wordnet.synsets(word)[0].pos().replace("s", "a")

    def first_sense(self, word: str) -> set[str]:
        """Return the synonyms of the word's most frequent sense."""
        synsets = self.wordnet.synsets(word)
        return {name.replace("_", " ") for name in synsets[0].lemma_names()} if synsets else set()

    def triple(self, sentence: str, rng: random.Random, *, is_first: bool) -> Triple | None:
        """Replace one word twice; none where no word has a synonym and another word of its kind."""
        matches = find_words(sentence)
        present = {match[0].lower() for match in matches}
        for match in rng.sample(matches, len(matches)):
            word = match[0].lower()
            synonyms = [name for name in self.replacer.synonyms(word) if name.lower() not in present]
            if is_first:
                kept = self.first_sense(word)
                synonyms = [name for name in synonyms if name in kept and self.counts[name] and name.isalpha()]
            if not synonyms:
                continue
            synonym = rng.choice(synonyms)
            kind = (self.part_of_speech(word), self.band(synonym if is_first else word))
            unwanted = present | {name.lower() for name in self.replacer.synonyms(word)}
            others = [other for other in self.bands.get(kind, []) if other not in unwanted]
            if others:
                copies = (sentence[: match.start()] + new + sentence[match.end() :] for new in (synonym, rng.choice(others)))
                return Triple(sentence, *copies)
        return None
