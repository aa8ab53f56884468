"""Words and key phrases of a sentence, and sentences that hide one of their phrases."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from sbert_plugins import host

# Vowel signs and accents behind a letter are part of the word, although \w does not match them. The pattern
# has ranges of them, because ranges are fast.
_CODES = [
    code
    for code in (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0))
    if unicodedata.category(chr(code)).startswith("M")
]
_FIRST, _LAST = (sorted(set(_CODES) - {code + step for code in _CODES}) for step in (1, -1))
_MARKS = "".join(f"{chr(first)}-{chr(last)}" for first, last in zip(_FIRST, _LAST, strict=True))
# Zero-width joiners and non-joiners are inside a part of a word, also before marks.
_PART = rf"\w[\w{_MARKS}]*(?:[\u200c\u200d][\w{_MARKS}]+)*"
# Signs join the parts of a word or number. The last one is the soft hyphen.
WORD = re.compile(rf"{_PART}(?:(?:[-'’‘·״‐‑\u00ad]|(?<=\d)[.,](?=\d)){_PART})*")
ASCII_WORD = re.compile(r"\w+(?:(?:[-']|(?<=\d)[.,](?=\d))\w+)*")  # the same for ASCII text, in half the time

_STOP_WORDS = """
a an the this that these those each every either neither both all any some no none such other another same own
i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her
hers herself
it its itself they them their theirs themselves one oneself who whom whose which what whoever whatever
whichever
someone somebody something anyone anybody anything everyone everybody everything nobody nothing
am is are was were be been being do does did doing done have has had having will would shall should can could
may might
must ought need dare let
isn't aren't wasn't weren't don't doesn't didn't haven't hasn't hadn't won't wouldn't shan't shouldn't can't
cannot
couldn't mayn't mightn't mustn't oughtn't needn't ain't daren't
i'm i've i'd i'll you're you've you'd you'll he's he'd he'll she's she'd she'll it's it'd it'll we're we've
we'd we'll
they're they've they'd they'll that's that'd that'll there's there'd there'll here's who's who'd who'll what's
where's
when's why's how's let's
and or but nor so yet for if unless until till while whereas because since although though than whether as
once lest
of in on at by to from with without within into onto upon out off over under above below up down between among
amongst
through throughout during before after about against along across around behind beside besides beyond despite
except
inside outside near per toward towards via like unlike
not never only just also too very much many more most less least few fewer several enough quite rather almost
even
again further then there here now thus hence therefore however moreover otherwise else still already ever
always often
sometimes perhaps maybe when where why how wherever whenever
s t d ll m re ve o y
"""
ENGLISH_STOP_WORDS = frozenset(_STOP_WORDS.split())

Extractor = Callable[[str], Iterable[tuple[int, int, float]]]


def split_words(sentence: str, keep: str = "") -> tuple[list[str], list[int]]:
    """Split a sentence into text and words in turn, and return the places of the words.

    The token ``keep`` (the mask) is at an odd place, as the words are, but not among the places returned.
    """
    pieces = _word_pattern(keep, sentence.isascii()).split(sentence)
    return pieces, [place for place in range(1, len(pieces), 2) if pieces[place] != keep]


@lru_cache(maxsize=16)
def _word_pattern(keep: str, is_ascii: bool) -> re.Pattern[str]:
    """Return the pattern of a word or ``keep``, as one group."""
    word = (ASCII_WORD if is_ascii else WORD).pattern
    return re.compile(f"({re.escape(keep)}|{word})" if keep else f"({word})")


def stop_word_share(sentences: Iterable[str]) -> float:
    """Return the share of English stop words among the words.

    It is between 33 % (titles of papers) and 54 % (questions) in English text, 19 % in English headlines, and
    at most 11 % in ten other languages.
    """
    words = [match[0].lower() for sentence in sentences for match in WORD.finditer(sentence)]
    return sum(word in ENGLISH_STOP_WORDS for word in words) / max(1, len(words))


class Phrase(NamedTuple):
    """A phrase as written in its sentence, its score, and (start, end) in characters of each occurrence."""

    text: str
    score: float
    spans: tuple[tuple[int, int], ...]


def locate_phrases(sentence: str, *, extractor: str | Extractor = "rake") -> list[Phrase]:
    """Return the phrases of a sentence with their scores and places, the best first.

    A phrase is written as in ``sentence``. Repeated phrases are listed once, and ties are in the order of the
    sentence. A phrase is not listed if it contains all words of the sentence.

    Args:
        sentence: One sentence in any language.
        extractor: ``"rake"`` is :class:`Rake` with English stop words, ``"chunks"`` is :class:`Chunks`. Or a
            function of a sentence that returns (start, end, score) of each phrase, start and end in
            characters.

    Returns:
        The phrases. There are none in a sentence of stop words only, of one word or without a word.

    Raises:
        ValueError: If the extractor is unknown.
        LookupError: If the data of NLTK's tagger, which ``"chunks"`` needs, are not installed.

    Example:
        >>> phrases = locate_phrases("The old harbour master counts the boats before dawn.")
        >>> [(phrase.text, phrase.score) for phrase in phrases]
        [('old harbour master counts', 16.0), ('boats', 1.0), ('dawn', 1.0)]
    """
    found: dict[str, list[Any]] = {}  # normalized words -> text, score, spans
    if isinstance(extractor, str):
        if extractor not in _EXTRACTORS:
            raise ValueError(
                f"extractor must be a function or one of {', '.join(_EXTRACTORS)}, not {extractor!r}."
            )
        extractor = _EXTRACTORS[extractor]
    for start, end, score in sorted(extractor(sentence)):
        text = sentence[start:end]
        entry = found.setdefault(" ".join(_normalize(text).split()), [text, score, []])
        entry[1] = max(entry[1], score)
        entry[2].append((start, end))
    phrases = (
        Phrase(text, score, tuple(spans))
        for text, score, spans in found.values()
        if WORD.search(text) and _leaves_word(sentence, spans)
    )
    return sorted(phrases, key=lambda phrase: -phrase.score)  # ties stay in the order of the sentence


def hide_phrase(sentence: str, phrase: Phrase, *, mask_token: str) -> str:
    """Return the sentence with one mask token instead of each word of the phrase, in all of its places.

    Example:
        >>> sentence = "The old man and the sea."
        >>> hide_phrase(sentence, locate_phrases(sentence)[0], mask_token="[MASK]")
        'The [MASK] [MASK] and the sea.'
    """
    pieces, place = [], 0
    for start, end in phrase.spans:
        start = max(start, place)  # spans may overlap
        pieces += [sentence[place:start], WORD.sub(lambda _: mask_token, sentence[start:end])]
        place = max(place, end)
    return "".join([*pieces, sentence[place:]])


class Rake:
    """Rapid automatic keyword extraction (Rose et al., 2010), as in PaSeR section 3.1.1.

    Stop words and punctuation separate the phrases of a sentence. A word's score is its degree (the number of
    words in all phrases that contain it) divided by its frequency. A phrase's score is the sum of its words'
    scores, as the package rake-nltk computes it.

    Args:
        stop_words: Words that are part of no phrase. By default :data:`ENGLISH_STOP_WORDS`; for another
            language pass its own, for example ``nltk.corpus.stopwords.words("german")``.
        max_words: Sequences of more words are not phrases. They are common in text of another language than
            the stop words.

    Raises:
        ValueError: If ``stop_words`` is a single string.
    """

    def __init__(self, stop_words: Iterable[str] = ENGLISH_STOP_WORDS, *, max_words: int = 20) -> None:
        if isinstance(stop_words, str):
            raise ValueError(f"stop_words must be a list of words, not the string {stop_words!r}.")
        # Not a frozen set, whose hash in the cache of datasets is another one in each process.
        self.stop_words = set(map(_normalize, stop_words))
        self.max_words = max_words

    def __call__(self, sentence: str) -> list[tuple[int, int, float]]:
        """Return (start, end, score) of each phrase in the order of the sentence."""
        phrases = [phrase for phrase in self._split(sentence) if len(phrase[0]) <= self.max_words]
        scorer = host.rake_scorer()
        scorer.extract_keywords_from_sentences([words for words, _, _ in phrases])
        scores = {phrase: score for score, phrase in scorer.get_ranked_phrases_with_scores()}
        return [(start, end, scores[" ".join(words)]) for words, start, end in phrases]

    def _split(self, sentence: str) -> Iterator[tuple[list[str], int, int]]:
        """Yield the words between stop words and punctuation, in lower case, with start and end."""
        stop_words, is_ascii = self.stop_words, sentence.isascii()
        words: list[str] = []
        start = end = 0
        for match in (ASCII_WORD if is_ascii else WORD).finditer(sentence):
            word = match[0].lower()
            is_stop_word = (word if is_ascii else _normalize(word)) in stop_words or word[0] == "_"
            if words and (is_stop_word or not sentence[end : match.start()].isspace()):
                yield words, start, end
                words = []
            if not is_stop_word:
                start = start if words else match.start()
                words.append(word)
                end = match.end()
        if words:
            yield words, start, end


class Chunks:
    """Noun and verb phrases by NLTK's tagger and a chunk grammar, all with score 1 (PaSeR section 4.5.3).

    The paper draws a random sub-tree of a syntax tree, and reports that this is weaker than RAKE (STS-B 70.4
    instead of 79.4). Here nothing is random: the first phrase of the sentence comes first.

    Args:
        kinds: Some of ``"NP"``, ``"VP"`` and ``"PP"``. For the paper's subordinate clauses (SBAR) pass a
            function over a constituency parser as the extractor.

    Raises:
        ValueError: For another kind.
        LookupError: At the first sentence, if the tagger's data are not installed.
    """

    def __init__(self, kinds: Sequence[str] = ("NP", "VP")) -> None:
        if not {*kinds} <= {"NP", "VP", "PP"}:
            raise ValueError(
                f"The chunk grammar finds NP, VP and PP, got kinds={kinds!r}. For other phrases pass a "
                "function as the extractor, for instance over a constituency parser."
            )
        self.kinds = tuple(kinds)

    def __call__(self, sentence: str) -> list[tuple[int, int, float]]:
        """Return (start, end, 1.0) of each chunk, also of the noun phrases within a verb phrase."""
        tagger, grammar = _load_chunker()
        matches = list(re.finditer(rf"{WORD.pattern}|\S", sentence))
        if not matches:
            return []
        tags = tagger.tag([match[0] for match in matches])
        # The leaves are matches instead of words. The grammar reads the tags only.
        tree = grammar.parse([(match, tag) for match, (_, tag) in zip(matches, tags, strict=True)])
        chunks = [
            [match for match, _ in node.leaves()] for node in tree.subtrees() if node.label() in self.kinds
        ]
        return [(chunk[0].start(), chunk[-1].end(), 1.0) for chunk in chunks]


@cache
def _load_chunker() -> tuple[Any, Any]:
    from nltk import RegexpParser
    from nltk.tag import PerceptronTagger

    return PerceptronTagger(), RegexpParser(
        r"""
        NP: {<PDT>?<DT|PRP\$|CD>*<JJ.*|VBN|VBG|CD>*<NN.*>+}
        PP: {<IN|TO><NP>}
        VP: {<MD>?<RB.*>*<VB.*>+<RB.*|RP>*<NP|PP>*}
        """
    )


def _normalize(word: str) -> str:
    """Return a form that all spellings share: lower case, composed accents, and one kind of apostrophe."""
    if word.isascii():
        return word.lower()
    # In lower case a Turkish capital I with a dot is an i and a dot.
    return unicodedata.normalize("NFC", word.lower().replace("i\u0307", "i")).replace("’", "'")


def _leaves_word(sentence: str, spans: list[tuple[int, int]]) -> bool:
    """Return whether the sentence has a word outside the spans."""
    place = 0
    for start, end in (*spans, (len(sentence), len(sentence))):
        if place < start and WORD.search(sentence, place, start):
            return True
        place = max(place, end)
    return False


_EXTRACTORS: dict[str, Extractor] = {"rake": Rake(), "chunks": Chunks()}
