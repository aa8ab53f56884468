"""Key phrases of a sentence with their places in it, and sentences that hide one of them."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from operator import index
from typing import Any, NamedTuple

from sbert_plugins import host

# Vowel signs and accents that follow their letter are part of the word; Python's \w leaves them out. Behind anything else, as
# the selector that colours an emoji, they are none.
_CODES = [
    code for code in (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0)) if unicodedata.category(chr(code)).startswith("M")
]
_FIRST, _LAST = (sorted(set(_CODES) - {code + step for code in _CODES}) for step in (1, -1))
_MARKS = "".join(f"{chr(first)}-{chr(last)}" for first, last in zip(_FIRST, _LAST, strict=True))  # ranges are fast
# Signs that join the parts of a word or number, the soft hyphen among them.
_INNER = r"[-'’‘·״‐‑\u00ad]|(?<=\d)[.,](?=\d)"
_ASCII_INNER = r"[-']|(?<=\d)[.,](?=\d)"
# Joiner and non-joiner stand inside of a part, before marks, too.
_PART = rf"\w[\w{_MARKS}]*(?:[\u200c\u200d][\w{_MARKS}]+)*"


def _patterns(part: str, inner: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return a word, and a stretch of words with only white space between them."""
    word, stretch = (re.compile(rf"{part}(?:(?:{joint}){part})*") for joint in (inner, rf"{inner}|\s+"))
    return word, stretch


WORD, _STRETCH = _patterns(_PART, _INNER)
ASCII_WORD, _ASCII_STRETCH = _patterns(r"\w+", _ASCII_INNER)  # the same on ASCII, in half the time

_STOP_WORDS = """
a an the this that these those each every either neither both all any some no none such other another same own
i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers herself
it its itself they them their theirs themselves one oneself who whom whose which what whoever whatever whichever
someone somebody something anyone anybody anything everyone everybody everything nobody nothing
am is are was were be been being do does did doing done have has had having will would shall should can could may might
must ought need dare let
isn't aren't wasn't weren't don't doesn't didn't haven't hasn't hadn't won't wouldn't shan't shouldn't can't cannot
couldn't mayn't mightn't mustn't oughtn't needn't ain't daren't
i'm i've i'd i'll you're you've you'd you'll he's he'd he'll she's she'd she'll it's it'd it'll we're we've we'd we'll
they're they've they'd they'll that's that'd that'll there's there'd there'll here's who's who'd who'll what's where's
when's why's how's let's
and or but nor so yet for if unless until till while whereas because since although though than whether as once lest
of in on at by to from with without within into onto upon out off over under above below up down between among amongst
through throughout during before after about against along across around behind beside besides beyond despite except
inside outside near per toward towards via like unlike
not never only just also too very much many more most less least few fewer several enough quite rather almost even
again further then there here now thus hence therefore however moreover otherwise else still already ever always often
sometimes perhaps maybe when where why how wherever whenever
s t d ll m re ve o y
"""
ENGLISH_STOP_WORDS = frozenset(_STOP_WORDS.split())

_CHUNK_GRAMMAR = r"""
  NP: {<PDT>?<DT|PRP\$|CD>*<JJ.*|VBN|VBG|CD>*<NN.*>+}
  PP: {<IN|TO><NP>}
  VP: {<MD>?<RB.*>*<VB.*>+<RB.*|RP>*<NP|PP>*}
"""

# What NLTK and rake-nltk keep between calls is met by one thread at a time; and whole in a process that is forked meanwhile.
ONE_THREAD = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=ONE_THREAD.acquire, after_in_parent=ONE_THREAD.release, after_in_child=ONE_THREAD.release)

Extractor = Callable[[str], Iterable[tuple[int, int, float]]]


def stop_word_share(sentences: Iterable[str]) -> float:
    """Return which share of the words are English stop words.

    Of running words it is 33 % in titles of papers to 54 % in questions, and 19 % in headlines; 0 to 11 % in ten other
    languages, whose words WordNet knows a surprising number of.
    """
    words = [match[0].lower() for sentence in sentences for match in WORD.finditer(sentence)]
    return sum(word in ENGLISH_STOP_WORDS for word in words) / max(1, len(words))


class Phrase(NamedTuple):
    """A phrase as it stands in its sentence, with all places where it is one."""

    text: str
    score: float
    spans: tuple[tuple[int, int], ...]  # start and end in characters


def rank_phrases(sentence: str, *, extractor: str | Extractor = "rake") -> list[tuple[str, float]]:
    """Return the phrases of a sentence with their scores, best first.

    A phrase is a piece of ``sentence``, letter for letter. Repeated phrases are listed once, ties are in the order of the
    sentence, and a phrase that is all of the sentence is none.

    Args:
        sentence: One sentence in any language.
        extractor: ``"rake"`` is :class:`Rake` with English stop words, ``"chunks"`` is :class:`Chunks`. Or any callable that
            takes a sentence and gives (start, end, score) triples, start and end in characters.

    Returns:
        A list of (phrase, score); empty where there is no phrase (stop words only, one word, no words).

    Raises:
        ValueError: For an extractor that does not exist, a sentence that is no string, and spans outside of the sentence.
        FileNotFoundError: If ``"chunks"`` finds no tagger data.

    Example:
        >>> rank_phrases("The old harbour master counts the boats before dawn.")
        [('old harbour master counts', 16.0), ('boats', 1.0), ('dawn', 1.0)]
    """
    return [(phrase.text, phrase.score) for phrase in locate_phrases(sentence, extractor=extractor)]


def locate_phrases(sentence: str, *, extractor: str | Extractor = "rake") -> list[Phrase]:
    """Return what :func:`rank_phrases` returns, with the places where the extractor found each."""
    if not isinstance(sentence, str):
        raise ValueError(f"a sentence must be a string, got {sentence!r}.")
    found: dict[str, list[Any]] = {}  # words as they compare -> text, score, spans
    given = resolve_extractor(extractor)(sentence)
    try:
        places = sorted((index(start), index(end), score) for start, end, score in given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"extractor must give (start, end, score) of each phrase: {error}; got {given!r}.") from error
    for start, end, score in places:
        if not 0 <= start < end <= len(sentence):
            raise ValueError(f"extractor must give spans inside the sentence (0 to {len(sentence)}), got {start} to {end}.")
        text = sentence[start:end]
        entry = found.setdefault(" ".join(_plain(text).split()), [text, score, []])
        if score > entry[1]:
            entry[1] = score
        entry[2].append((start, end))
    phrases = [
        Phrase(text, score, tuple(spans))
        for text, score, spans in found.values()
        if _has_word(text) and _leaves_a_word(sentence, spans)
    ]
    phrases.sort(key=lambda phrase: -phrase.score)  # stable: ties stay in the order of the sentence
    return phrases


def hide_phrase(sentence: str, phrase: Phrase, *, mask_token: str) -> str:
    """Return the sentence with one mask token for each word of the phrase, at each of its places.

    Inside of a longer phrase its words stay.
    """
    pieces, place = [], 0
    for start, end in phrase.spans:
        start = max(start, place)  # an extractor's spans may overlap
        pieces += [sentence[place:start], WORD.sub(lambda _: mask_token, sentence[start:end])]
        place = max(place, end)
    return "".join([*pieces, sentence[place:]])


def resolve_extractor(extractor: str | Extractor) -> Extractor:
    """Return the callable that a name stands for."""
    if callable(extractor):
        return extractor
    if extractor not in _NAMED:
        raise ValueError(f"extractor must be one of {', '.join(map(repr, _NAMED))} or a callable, got {extractor!r}.")
    if isinstance(_NAMED[extractor], type):
        _NAMED[extractor] = _NAMED[extractor]()
    return _NAMED[extractor]


class Rake:
    """Rapid automatic keyword extraction (Rose et al., 2010) by ``rake-nltk``: nothing is downloaded.

    Stop words and punctuation cut the sentence into phrases. A word's score is its degree (the words of all phrases that it
    is in, itself included) divided by its frequency; a phrase's score is the sum over its words (PaSeR section 3.1.1).

    Args:
        stop_words: Words in lower case that belong to no phrase. By default :data:`ENGLISH_STOP_WORDS`; for another language
            pass its own, for example ``nltk.corpus.stopwords.words("german")``.
        max_words: Longer runs of words are no phrase: they are what is left where the stop words are not the text's.

    Raises:
        ValueError: If ``stop_words`` is a string, or ``max_words`` is below 1.
    """

    def __init__(self, stop_words: Iterable[str] = ENGLISH_STOP_WORDS, *, max_words: int = 20) -> None:
        if isinstance(stop_words, str):
            raise ValueError(f"stop_words must be a collection of words, got the string {stop_words!r}.")
        if max_words < 1:
            raise ValueError(f"max_words must be at least 1, got {max_words}.")
        self.stop_words = frozenset(map(_plain, stop_words))
        self.max_words = max_words
        self._scorer = host.rake_scorer()

    def __call__(self, sentence: str) -> list[tuple[int, int, float]]:
        """Return (start, end, score) of every candidate phrase in the order of the sentence."""
        runs = [run for run in self._runs(sentence) if len(run[0]) <= self.max_words]
        with ONE_THREAD:  # the scorer keeps the phrases between these calls
            self._scorer.extract_keywords_from_sentences([words for words, _, _ in runs])
            ranked = self._scorer.get_ranked_phrases_with_scores()
        scores = {phrase: score for score, phrase in ranked}
        return [(start, end, scores[" ".join(words)]) for words, start, end in runs]

    def _runs(self, sentence: str) -> Iterator[tuple[list[str], int, int]]:
        """Yield the runs of words between stop words and punctuation, in lower case, with start and end."""
        stop_words, is_ascii = self.stop_words, sentence.isascii()
        if is_ascii:  # elsewhere a letter may become two in lower case
            sentence = sentence.lower()
        for stretch in (_ASCII_STRETCH if is_ascii else _STRETCH).finditer(sentence):
            words: list[str] = []
            start = end = place = stretch.start()
            for word in stretch[0].split():
                begin = sentence.index(word, place)
                place = begin + len(word)
                if is_ascii:
                    plain = word
                else:
                    plain, word = _plain(word), word.lower()
                if plain in stop_words or word[0] == "_":
                    if words:
                        yield words, start, end
                        words = []
                    continue
                if not words:
                    start = begin
                words.append(word)
                end = place
            if words:
                yield words, start, end

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings alone, sorted: equal ones then have one fingerprint in the cache of ``datasets``."""
        return {**vars(self), "stop_words": tuple(sorted(self.stop_words)), "_scorer": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the settings."""
        vars(self).update(state, stop_words=frozenset(state["stop_words"]), _scorer=host.rake_scorer())


def _plain(word: str) -> str:
    """Return what two ways to write a word share: capitals, apostrophes, and letters whose accents or dots stand apart."""
    if word.isascii():
        return word.lower()
    return unicodedata.normalize("NFC", word.lower().replace("i\u0307", "i")).replace("’", "'")  # of a Turkish capital I


class Chunks:
    """Noun and verb phrases by NLTK's tagger and a chunk grammar, all with score 1 (PaSeR section 4.5.3).

    The paper draws a random sub-tree of a syntax tree, and found that weaker than RAKE (STS-B 70.4 against 79.4). Here
    nothing is drawn: of equal scores the first in the sentence goes first.

    Args:
        kinds: A selection of ``"NP"`` and ``"VP"``.

    Raises:
        ValueError: On another kind, or none.
        FileNotFoundError: At the first sentence, if the tagger's data are not installed.
    """

    def __init__(self, kinds: Sequence[str] = ("NP", "VP")) -> None:
        if not kinds or isinstance(kinds, str) or not set(kinds) <= {"NP", "VP"}:
            raise ValueError(f"kinds must be a selection of 'NP' and 'VP', got {kinds!r}.")
        self.kinds = tuple(kinds)
        self._tools: tuple[Any, Any] | None = None

    def __call__(self, sentence: str) -> list[tuple[int, int, float]]:
        """Return (start, end, 1.0) of every chunk, a verb phrase and the noun phrases in it among them."""
        tagger, grammar = self._tools = self._tools or _chunk_tools()
        matches = list(re.finditer(rf"{WORD.pattern}|\S", sentence))
        if not matches:
            return []
        tags = tagger.tag([match[0] for match in matches])
        # The leaves carry their match instead of the word, which the grammar does not look at.
        tree = grammar.parse([(match, tag) for match, (_, tag) in zip(matches, tags, strict=True)])
        chunks = [[match for match, _ in node.leaves()] for node in tree.subtrees() if node.label() in self.kinds]
        return [(chunk[0].start(), chunk[-1].end(), 1.0) for chunk in chunks]

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings, and a hash of the tagger's data: with other ones the chunks are others."""
        return {**vars(self), "_tools": None, "tagger": _tagger_digest()}


_NAMED: dict[str, Any] = {"rake": Rake, "chunks": Chunks}


def _chunk_tools() -> tuple[Any, Any]:
    from nltk import RegexpParser
    from nltk.tag import PerceptronTagger

    try:
        return PerceptronTagger(), RegexpParser(_CHUNK_GRAMMAR)
    except LookupError:
        raise FileNotFoundError(
            "extractor 'chunks' needs the data of NLTK's tagger, which are not installed: run "
            "nltk.download('averaged_perceptron_tagger_eng'), or set NLTK_DATA to a directory that has "
            "taggers/averaged_perceptron_tagger_eng."
        ) from None


def _tagger_digest() -> str | None:
    from nltk.data import find

    digest = hashlib.sha256()
    with suppress(LookupError, OSError):  # what is missing is said by who reads it
        place = find("taggers/averaged_perceptron_tagger_eng/")
        for part in ("weights", "tagdict", "classes"):
            with place.join(f"averaged_perceptron_tagger_eng.{part}.json").open() as file:
                digest.update(file.read())
        return digest.hexdigest()[:16]
    return None


def _has_word(text: str, start: int = 0, end: int | None = None) -> bool:
    # The text is not cut to start and end: a text of a megabyte would be copied for each of its phrases.
    end = len(text) if end is None else end
    return start < end and (text[start].isalnum() or WORD.search(text, start, end) is not None)


def _leaves_a_word(sentence: str, spans: list[tuple[int, int]]) -> bool:
    place = 0
    for start, end in spans:
        if place < start and _has_word(sentence, place, start):
            return True
        place = max(place, end)
    return _has_word(sentence, place)
