"""Synonyms from WordNet instead of words (EDA, Wei and Zou 2019, as in PaSeR section 3.1.3)."""

import logging
import random
import threading
from collections.abc import Iterable
from functools import cache
from itertools import islice
from typing import Any

from sbert_plugins import host

from .phrases import ENGLISH_STOP_WORDS, split_words, stop_word_share

logger = logging.getLogger(__name__)

_ENGLISH = 0.12  # share of stop words, above that of other languages and below that of headlines
_READING = threading.Lock()


class SynonymReplacer:
    """Replace a share of a sentence's words by synonyms, drawn from all senses of the word in WordNet.

    WordNet is read by NLTK, whose morphology finds the entry of an inflected word. The synonym is in its
    dictionary form, and a compound has spaces. Stop words stay, and capitals are kept ("Dog", "DOG"). EDA
    replaces all occurrences of a word by the same synonym; here each occurrence is drawn independently.

    Args:
        ratio: Share of the sentence's words to replace, in (0, 1]. At least one word is replaced. The default
            is the ratio in the README of PaSeR's authors, whose augmented data are in their repository.
        stop_words: Words that are never replaced.

    Raises:
        ValueError: If ``ratio`` is not in (0, 1].
        FileNotFoundError: If WordNet is not installed.

    Example:
        >>> import random
        >>> replace = SynonymReplacer()
        >>> replace("The car stops near a big house.", random.Random(0))  # any sense of a word, its base form
        'The gondola lay off near a big menage.'
    """

    def __init__(self, ratio: float = 0.5, *, stop_words: Iterable[str] = ENGLISH_STOP_WORDS) -> None:
        if not 0 < ratio <= 1:
            raise ValueError(
                f"The ratio of synonyms must be in (0, 1], not {ratio}. It is a share of the words."
            )
        _find_wordnet()
        self.ratio = ratio
        self.stop_words = {word.lower() for word in stop_words}

    def __call__(self, sentence: str, rng: random.Random, *, keep: str = "") -> str:
        """Return a copy of ``sentence`` with words replaced, but never the token ``keep`` (the mask).

        The token counts as a word, so that in a masked copy no larger share of the words is replaced.
        """
        pieces, places = split_words(sentence, keep)
        synonyms = {place: found for place in places if (found := self.synonyms(pieces[place]))}
        count = min(max(1, int(self.ratio * (len(pieces) // 2))), len(synonyms))
        for place in sorted(rng.sample(list(synonyms), count)):
            pieces[place] = _copy_capitals(pieces[place], rng.choice(synonyms[place]))
        return "".join(pieces)

    def synonyms(self, word: str) -> tuple[str, ...]:
        """Return all synonyms of a word, sorted. Stop words and words that are not in WordNet have none."""
        lower = word.lower()
        return () if lower in self.stop_words or len(lower) < 2 else _look_up(lower)


def synonyms_if_installed(sentences: Iterable[str] = ()) -> float | None:
    """Return PaSeR's ratio of synonyms (0.5), or None if WordNet is not installed or the text is not English.

    Many words of other languages are in WordNet, too, and would be replaced by English synonyms. Text is
    English if 12 % of the words in its first thousand sentences are English stop words. Less than 200 words
    are always taken for English. The reason for None is logged.
    """
    some = [sentence for sentence in islice(sentences, 1000) if sentence]
    share = stop_word_share(some)
    if share < _ENGLISH and sum(len(split_words(sentence)[1]) for sentence in some) >= 200:
        problem = (
            f"only {share:.1%} of the words are English stop words, and WordNet is English. RAKE's stop "
            "words are English, too. For another language call paser_columns with "
            "extractor=data.Rake(stop_words=...), for English keywords with synonyms=0.5."
        )
    else:
        try:
            _find_wordnet()
            return 0.5
        except FileNotFoundError as error:
            problem = str(error)
    logger.warning(
        "Making PaSeR's columns WITHOUT synonyms, which lowers the paper's STS-B by 4.8 points: %s", problem
    )
    return None


@cache
def open_wordnet() -> Any:
    """Open WordNet, once per process and before it is forked, because reading the index takes seconds.

    Raises:
        FileNotFoundError: If WordNet is not installed.
    """
    return host.wordnet_reader(_find_wordnet())


def _find_wordnet() -> Any:
    from nltk.data import find

    for place in ("corpora/wordnet", "corpora/wordnet.zip/wordnet/"):
        try:
            return find(place)
        except LookupError:
            continue
    raise FileNotFoundError(
        "Synonyms need WordNet. Run nltk.download('wordnet'), or set NLTK_DATA to a directory that contains "
        "corpora/wordnet (the files of Debian's wordnet-base and NLTK's lexnames)."
    )


@cache
def _look_up(word: str) -> tuple[str, ...]:
    with _READING:  # NLTK seeks in open files
        wordnet = open_wordnet()
        synsets = wordnet.synsets(word)
        names = {name for synset in synsets for name in synset.lemma_names()}
        # WordNet's morphology calls adjective satellites ("s") adjectives ("a").
        parts_of_speech = {synset.pos().replace("s", "a") for synset in synsets}
        forms = {word, *(wordnet.morphy(word, part) for part in parts_of_speech)}
    return tuple(sorted(name.replace("_", " ") for name in names if name.lower() not in forms))


def _copy_capitals(word: str, synonym: str) -> str:
    if word.islower():
        return synonym
    if len(word) > 1 and word.isupper():
        return synonym.upper()
    return synonym[0].upper() + synonym[1:] if word[0].isupper() else synonym
