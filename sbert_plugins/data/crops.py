"""Pairs of texts from one document: two neighbouring sentences, or two spans of words."""

import random
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

from datasets import Dataset

from .read import INDEX, as_dataset, expand_rows

# Signs that may end a sentence, with what follows them. The signs of the second part need no white space
# behind them. They are those of Chinese and Japanese, Hindi, Urdu, Arabic, Armenian, Amharic, Burmese and
# Khmer.
_END = re.compile(
    r"""(?<![.!?…])(?P<mark>[.!?…]+)["'”’»)\]]*\s+(?=["'“‘„«(\[¿¡]*(?P<next>\S))"""
    r"""|(?:[。！？｡\u0964\u0965\u06d4\u061f\u0589\u1362\u104b\u17d4\u17d5]|(?<![A-Za-zＡ-Ｚａ-ｚ])．(?![\d０-９]))"""
    r"""[。！？｡．\u0964\u0965\u06d4\u061f\u0589\u1362\u104b\u17d4\u17d5.!?…]*["'”’»›」』）)\]]*\s*"""
)
_PARAGRAPH = re.compile(r"\n\s*\n")
_ABBREVIATIONS = """
Mr Mrs Ms Dr Prof St Jr Sr Rev Hon Gen Col Capt Lt Sgt Gov Sen Rep Pres vs cf ca approx al ed eds vol Vol No
Nos Fig Figs pp Inc Ltd Co Corp Bros dept Dept est Mt Ft Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec
"""
_SHORT_FORMS = frozenset(_ABBREVIATIONS.split())
# Scripts without spaces between words: Thai and Lao, Burmese, Khmer, kana, Han, half-width kana, Han beyond
# the first plane.
_SPACELESS = re.compile(
    "[\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uff66-\uff9f"
    "\U00020000-\U0003ffff]"
)


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences by a rule, without data to download.

    A sentence ends at ``. ! ? …`` and closing signs, if white space follows and then no small letter. It does
    not end after an initial ("J. Smith", "U.S.") or a common English abbreviation. In tokenised text, which
    has white space before the full stop, it also ends before a small letter. The signs of Chinese,
    Japanese, Hindi, Urdu, Arabic (its question mark), Armenian, Amharic, Burmese and Khmer end a sentence
    without white space, and so does a blank line. Languages with other abbreviations, or without such signs
    as Thai, need a splitter of their own.

    Example:
        >>> split_sentences('Dr. Smith left in May. "Why?" she asked. Nobody knew...')
        ['Dr. Smith left in May.', '"Why?" she asked.', 'Nobody knew...']
    """
    sentences = []
    for paragraph in _PARAGRAPH.split(text):
        start = 0
        for match in _END.finditer(paragraph):
            if not _continues(match):
                sentences.append(paragraph[start : match.end()])
                start = match.end()
        sentences.append(paragraph[start:])
    return [sentence for sentence in map(str.strip, sentences) if sentence]


def crop_pairs(
    documents: Dataset | Iterable[str],
    *,
    by: str = "sentences",
    pairs_per_document: int = 1,
    min_words: int = 5,
    max_words: int = 32,
    split: Callable[[str], Iterable[str]] = split_sentences,
    seed: int = 42,
) -> Dataset:
    """Make positive pairs of two pieces of one document, instead of two dropout views of one sentence.

    "Cropping outperforms dropout" (González-Márquez et al., 2025, https://arxiv.org/abs/2508.03453). The
    pairs are for :class:`losses.ArcCSELoss`, :class:`losses.ConSERTLoss`, :class:`losses.DenoSentLoss`,
    :class:`losses.PTBERTLoss` and ``MultipleNegativesRankingLoss``.

    Args:
        documents: Texts of several sentences each: a dataset with the column ``document``
            (:func:`read_documents`), or a list.
        by: ``"sentences"`` takes two neighbouring sentences, the first of them as the anchor. ``"spans"``
            takes two spans of words that do not overlap and may begin within a sentence.
        pairs_per_document: Pairs per document, at most. The pairs of one document are each other's negatives
            if they meet in a batch. A sentence is in one pair only; spans of different pairs may overlap.
        min_words: Shorter sentences are left out before neighbours are chosen (headings, fragments). No span
            is shorter. Words are separated by white space. With ``by="sentences"``, in scripts without spaces
            each letter counts as a word.
        max_words: Words of the longest span, about as many as 32 to 64 tokens hold. A span has at most half
            of the document's words. Sentences are never cut.
        split: Function that splits a document into sentences.
        seed: Seed of the choice. The choice in a document depends on the seed and the document's position
            only.

    Returns:
        A dataset with the columns ``anchor`` and ``positive`` in the order of the documents. Each run of
        white space is one space. Documents without a pair are left out, and their number is logged. The pairs
        are kept in the cache of ``datasets``.

    Raises:
        ValueError: If ``by`` is unknown, or no document has a pair.

    Example:
        >>> text = "It has rained since early morning. Nobody in the village will sail today. Why?"
        >>> crop_pairs([text])[0]
        {'anchor': 'It has rained since early morning.', 'positive': 'Nobody in the village will sail today.'}
    """
    if by not in ("sentences", "spans"):
        raise ValueError(f"by must be 'sentences' or 'spans', not {by!r}.")
    return expand_rows(
        as_dataset(documents, "document").select_columns("document"),
        _crop,
        name="crops",
        arguments={
            "by": by,
            "pairs_per_document": pairs_per_document,
            "min_words": min_words,
            "max_words": max_words,
            "split": split,
            "seed": seed,
        },
        wanted=f"two {by} of at least {min_words} words",
        advice="Pass whole documents instead of sentences, lower min_words, or pass a function that splits "
        "texts of this language (split=).",
    )


def _crop(
    batch: dict[str, list[str]],
    indices: list[int],
    *,
    by: str,
    pairs_per_document: int,
    min_words: int,
    max_words: int,
    split: Callable[[str], Iterable[str]],
    seed: int,
) -> dict[str, list[Any]]:
    rows: list[tuple[str, str, int]] = []
    for document, index in zip(batch["document"], indices, strict=True):
        rng = random.Random(f"{seed} {index + 1}")
        if by == "spans":
            pairs = _draw_spans(document.split(), rng, pairs_per_document, min_words, max_words)
        else:
            # A repeated sentence counts once, so that no text is paired with itself.
            sentences = dict.fromkeys(" ".join(sentence.split()) for sentence in split(document))
            long = [sentence for sentence in sentences if count_words(sentence) >= min_words]
            pairs = _draw_neighbours(long, rng, pairs_per_document)
        rows += [(anchor, positive, index) for anchor, positive in pairs]
    return {name: [row[place] for row in rows] for place, name in enumerate(("anchor", "positive", INDEX))}


def _draw_neighbours(sentences: list[str], rng: random.Random, count: int) -> list[tuple[str, str]]:
    """Draw pairs of neighbours without a common sentence. All such choices are equally likely."""
    count = min(count, len(sentences) // 2)
    places = sorted(rng.sample(range(len(sentences) - count), count))  # as if each pair were one sentence
    return [(sentences[place + i], sentences[place + i + 1]) for i, place in enumerate(places)]


def _draw_spans(
    words: list[str], rng: random.Random, count: int, shortest: int, longest: int
) -> list[tuple[str, str]]:
    """Draw pairs of spans, the first of which ends before the second begins."""
    longest = min(longest, len(words) // 2)
    if longest < shortest:
        return []
    pairs = []
    for _ in range(count):
        first, second = rng.randint(shortest, longest), rng.randint(shortest, longest)
        free = len(words) - first - second
        start, gap_end = sorted((rng.randint(0, free), rng.randint(0, free)))
        place = gap_end + first
        pairs.append((" ".join(words[start : start + first]), " ".join(words[place : place + second])))
    return pairs


def _continues(match: re.Match[str]) -> bool:
    """Return whether the sentence goes on behind a sign that often ends one."""
    if match["next"] is None:  # the signs that need no white space
        return False
    before = match.string[max(0, match.start() - 8) : match.start()]  # longer than any abbreviation
    word = re.split(r"\W", before)[-1]
    is_short = match["mark"] == "." and (word in _SHORT_FORMS or (len(word) == 1 and word.isalpha()))
    is_tokenised = match["mark"] == "." and before[-1:].isspace()
    return is_short or (match["next"].islower() and not is_tokenised)


def count_words(text: str) -> int:
    """Count what white space separates, and each letter of scripts without spaces."""
    if text.isascii():
        return len(text.split())
    letters = (  # neither vowel signs nor digits
        sum(unicodedata.category(sign)[0] == "L" for sign in _SPACELESS.findall(chunk))
        for chunk in text.split()
    )
    return sum(count or 1 for count in letters)
