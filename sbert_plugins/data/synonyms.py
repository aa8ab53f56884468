"""Synonyms from WordNet in the place of words (EDA, Wei and Zou 2019, as PaSeR section 3.1.3 uses it)."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any

from sbert_plugins import host

from .phrases import ASCII_WORD, ENGLISH_STOP_WORDS, ONE_THREAD, WORD


class SynonymReplacer:
    """Replace a share of a sentence's words by synonyms, drawn from all senses of the word in WordNet.

    WordNet is read through NLTK, whose parts of speech and morphology find the entry of an inflected word; the synonym is
    put in its dictionary form, a compound with spaces. Stop words stay, capitals are kept ("Dog", "DOG"). Places are drawn,
    where EDA draws words and replaces each of their occurrences by the same synonym.

    Args:
        ratio: Share of the sentence's words to replace, at least one. 0.5 is that of the README of PaSeR's authors, whose data
            are not published.
        stop_words: Words that are never replaced.

    Raises:
        ValueError: If ``ratio`` is not in (0, 1], or ``stop_words`` is a string.
        FileNotFoundError: If NLTK finds no WordNet.

    Example:
        >>> replace = SynonymReplacer()
        >>> replace("The car stops near a big house.", random.Random(0))  # any sense of a word, its base form
        'The gondola lay off near a big menage.'
    """

    def __init__(self, ratio: float = 0.5, *, stop_words: Iterable[str] = ENGLISH_STOP_WORDS) -> None:
        if not 0 < ratio <= 1:
            raise ValueError(f"ratio must be in (0, 1], got {ratio}. It is the share of words to replace; the default is 0.5.")
        if isinstance(stop_words, str):
            raise ValueError(f"stop_words must be a list of words, got the string {stop_words!r}: put it in a list.")
        self.ratio = ratio
        self.stop_words = frozenset(word.lower() for word in stop_words)
        self.wordnet = wordnet_digest()  # another one makes other rows
        self._reader: Any = None
        self._synonyms: dict[str, tuple[str, ...]] = {}

    def __call__(self, sentence: str, rng: random.Random, *, keep: str = "") -> str:
        """Return a copy of ``sentence`` with words replaced; ``keep`` is a token (the mask) that is never replaced.

        It counts as a word in the share, so that a masked copy has no larger share of its words replaced than the whole.
        """
        pieces = list(_pieces_of(sentence, keep))  # what stands between words, a word, what stands between, ...
        words, known = pieces[1::2], self._synonyms
        synonyms = [known[word] if word in known else self.synonyms(word) for word in words]
        candidates = [place for place, found in enumerate(synonyms) if found and words[place] != keep]
        count = min(max(1, int(self.ratio * len(words))), len(candidates))
        if not count:
            return sentence
        for place in sorted(rng.sample(candidates, count)):
            pieces[2 * place + 1] = _with_capitals(words[place], rng.choice(synonyms[place]))
        return "".join(pieces)

    def synonyms(self, word: str) -> tuple[str, ...]:
        """Return all synonyms of a word in a fixed order; none for a stop word and a word that WordNet does not know."""
        if word not in self._synonyms:
            lower = word.lower()
            if lower not in self._synonyms:
                self._synonyms[lower] = self._look_up(lower)
            self._synonyms[word] = self._synonyms[lower]  # as it is written, too: a word is asked for wherever it stands
        return self._synonyms[word]

    def _look_up(self, word: str) -> tuple[str, ...]:
        if word in self.stop_words or len(word) < 2:
            return ()
        with ONE_THREAD:  # NLTK's reader seeks in files that are open
            self._reader = self._reader or open_wordnet()
            synsets = self._reader.synsets(word)
            names = {name for synset in synsets for name in synset.lemma_names()}
            # Adjective satellites ("s") are adjectives ("a") to the morphology.
            parts_of_speech = {synset.pos().replace("s", "a") for synset in synsets}
            forms = {word, *(self._reader.morphy(word, part) for part in parts_of_speech)}
        return tuple(sorted(name.replace("_", " ") for name in names if name.lower() not in forms))

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings alone, sorted: equal ones then have one fingerprint in the cache of ``datasets``."""
        return {**vars(self), "stop_words": tuple(sorted(self.stop_words)), "_reader": None, "_synonyms": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the settings."""
        vars(self).update(state, stop_words=frozenset(state["stop_words"]))


def find_words(sentence: str, keep: str = "") -> list[re.Match[str]]:
    """Find the words of a sentence and, each as one match, the places of ``keep``."""
    return list(_pattern(keep, sentence.isascii()).finditer(sentence))


@lru_cache(maxsize=16)  # of a sentence with three phrases there are three copies
def _pieces_of(sentence: str, keep: str) -> tuple[str, ...]:
    return tuple(_pattern(keep, sentence.isascii()).split(sentence))


@lru_cache(maxsize=16)
def _pattern(keep: str, is_ascii: bool) -> re.Pattern[str]:
    """Return a word, or ``keep``, as one group: what splits by it has the words at the odd places."""
    word = (ASCII_WORD if is_ascii else WORD).pattern
    return re.compile(f"({re.escape(keep)}|{word})" if keep else f"({word})")


def _with_capitals(word: str, synonym: str) -> str:
    if word.islower():
        return synonym
    if len(word) > 1 and word.isupper():
        return synonym.upper()
    return synonym[0].upper() + synonym[1:] if word[0].isupper() else synonym


def _find_wordnet() -> Any:
    from nltk.data import find

    for place in ("corpora/wordnet", "corpora/wordnet.zip/wordnet/"):
        try:
            return find(place)
        except LookupError:
            continue
    raise FileNotFoundError(
        "synonyms need WordNet, which NLTK does not find: run nltk.download('wordnet'), or set NLTK_DATA to a directory that "
        "has corpora/wordnet (the files of Debian's wordnet-base with NLTK's lexnames will do)."
    )


def wordnet_digest() -> str:
    """Return a hash of the WordNet that NLTK finds, by which rows that were made with it are known.

    Raises:
        FileNotFoundError: If NLTK finds none.
    """
    place = _find_wordnet()
    if str(place) not in _digests:
        digest = hashlib.sha256()
        for name in _FILES:
            with suppress(OSError), place.join(name).open() as file:  # what is missing is said by who reads it
                digest.update(file.read())
        _digests[str(place)] = digest.hexdigest()[:16]
    return _digests[str(place)]


_PARTS = ("noun", "verb", "adj", "adv")
_FILES = [name for part in _PARTS for name in (f"data.{part}", f"index.{part}", f"{part}.exc")]
_digests: dict[str, str] = {}


def open_wordnet() -> Any:
    """Open WordNet, once for all of a process and of those that are forked from it: its index takes seconds to read.

    Raises:
        FileNotFoundError: If NLTK finds none.
    """
    place = _find_wordnet()
    if str(place) not in _opened:
        _opened.clear()
        _opened[str(place)] = host.wordnet_reader(place)
    return _opened[str(place)]


_opened: dict[str, Any] = {}  # by name: two of NLTK's pointers into one zip are not equal
