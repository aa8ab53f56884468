"""Positives from documents: neighbouring sentences of a text, or two spans of its words."""

from __future__ import annotations

import hashlib
import logging
import random
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from datasets import Dataset

from .cache import cache_folder
from .noise import goes_by_keys, python_rows
from .scripts import count_words

logger = logging.getLogger(__name__)

CROPS = ("sentences", "spans")
_SCHEMA = pa.schema({"anchor": pa.string(), "positive": pa.string()})
_ROWS_A_WRITE = 10_000
_UNFINISHED = "crops-unfinished-"
_A_WEEK = 7 * 24 * 3600  # longer than any call writes

# Signs that may end a sentence, and what follows them; those of other scripts need no space: Chinese and Japanese, then Hindi,
# Urdu, Arabic, Armenian, Amharic, Burmese, Khmer.
_END = re.compile(
    r"""(?<![.!?…])(?P<mark>[.!?…]+)["'”’»)\]]*\s+(?=["'“‘„«(\[¿¡]*(?P<next>\S))"""
    r"""|(?:[。！？｡\u0964\u0965\u06d4\u061f\u0589\u1362\u104b\u17d4\u17d5]|(?<![A-Za-zＡ-Ｚａ-ｚ])．(?![\d０-９]))"""
    r"""[。！？｡．\u0964\u0965\u06d4\u061f\u0589\u1362\u104b\u17d4\u17d5.!?…]*["'”’»›」』）)\]]*\s*"""
)
_PARAGRAPH = re.compile(r"\n\s*\n")
_ABBREVIATIONS = """
Mr Mrs Ms Dr Prof St Jr Sr Rev Hon Gen Col Capt Lt Sgt Gov Sen Rep Pres vs cf ca approx al ed eds vol Vol No Nos Fig Figs
pp Inc Ltd Co Corp Bros dept Dept est Mt Ft Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec
"""
_SHORT_FORMS = frozenset(_ABBREVIATIONS.split())


def crop_pairs(
    documents: Dataset | Iterable[str],
    *,
    by: str = "sentences",
    pairs_per_document: int = 1,
    min_words: int = 5,
    max_words: int = 32,
    split: Callable[[str], Iterable[str]] | None = None,
    seed: int = 42,
) -> Dataset:
    """Take two pieces of each document for a positive pair, in the place of two dropout views of one sentence.

    "Cropping outperforms dropout" (González-Márquez et al., 2025, https://arxiv.org/abs/2508.03453). For
    :class:`losses.ArcCSELoss`, :class:`losses.ConSERTLoss`, :class:`losses.DenoSentLoss`, :class:`losses.PTBERTLoss` and
    ``MultipleNegativesRankingLoss``.

    Args:
        documents: Texts of several sentences each: a dataset with the column ``document`` (:func:`read_documents`), a column
            of one, a list, or a generator. They are read once, one after the other.
        by: ``"sentences"`` takes two neighbouring sentences, the anchor before the positive; ``"spans"`` two stretches of
            words that do not overlap, wherever sentences end.
        pairs_per_document: Pairs a document, at most. With one no two rows of a batch are of one document, and would be each
            other's negatives though they are alike. Of sentences, none stands in two pairs; spans are drawn anew for each.
        min_words: Shorter sentences are left out before neighbours are sought (headings, fragments), and no span is shorter.
            A word is what stands between white space; in a sentence of a script without, each letter counts as one.
        max_words: Longest span, by default about what the methods' 32 to 64 tokens hold. A span is at most half of its
            document, for both must fit. Sentences are never cut.
        split: Parts a document into sentences, by default :func:`split_sentences`.
        seed: Another seed, other pieces. A document's draws follow from the seed and its place.

    Returns:
        A dataset with the columns ``anchor`` and ``positive`` in the order of the documents, white space made single. It lies
        in the cache of ``datasets`` and is read from there, so that memory does not grow with it. Documents without a pair
        are left out; a warning tells their number.

    Raises:
        ValueError: On a value out of range, documents that are not texts, and if none of them holds a pair.

    Example:
        >>> pairs = crop_pairs(["It has rained since early morning. Nobody in the village will sail today. Why?"])
        >>> pairs[0]
        {'anchor': 'It has rained since early morning.', 'positive': 'Nobody in the village will sail today.'}
    """
    _check_values(by, pairs_per_document, min_words, max_words)
    split = split or split_sentences

    def crop(document: str, rng: random.Random) -> list[tuple[str, str]]:
        if by == "spans":
            return _span_pairs(document.split(), rng, pairs_per_document, min_words, max_words)
        # A repeated sentence, a refrain or a caption, counts once: no pair may be a text and itself.
        sentences = dict.fromkeys(" ".join(sentence.split()) for sentence in split(document))
        long = [s for s in sentences if count_words(s) >= min_words]
        return _neighbours(long, rng, pairs_per_document)

    def rows() -> Iterator[tuple[str, str]]:
        without = place = 0
        for place, document in enumerate(_texts(documents), start=1):
            pairs = crop(document, random.Random(f"{seed} {place}"))
            without += not pairs
            yield from pairs
        needed = f"two {by} of {min_words} words or more"
        if without == place:
            raise ValueError(
                f"documents must hold {needed}, got {place} without any. Pass whole texts, not sentences, or lower min_words; "
                "where sentences end with other signs than split_sentences knows, pass a split."
            )
        if without:
            logger.warning("Left out %s of %s documents, which do not hold %s.", f"{without:,}", f"{place:,}", needed)

    return _written(rows())


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences by a rule, without data to download.

    A sentence ends at ``. ! ? …`` and closing signs, where white space follows and then no small letter. It goes on after an
    initial ("J. Smith", "U.S.") and the usual English abbreviations. The signs of Chinese, Japanese, Hindi, Urdu, Arabic
    (its question mark), Armenian, Amharic, Burmese and Khmer end one without white space; so does a blank line. A language
    with other abbreviations, or without signs as Thai, wants a splitter of its own.

    Example:
        >>> split_sentences('Dr. Smith left in May. "Why?" she asked. Nobody knew...')
        ['Dr. Smith left in May.', '"Why?" she asked.', 'Nobody knew...']
    """
    sentences = []
    for paragraph in _PARAGRAPH.split(text):
        start = 0
        for match in _END.finditer(paragraph):
            if _goes_on(match):
                continue
            sentences.append(paragraph[start : match.end()])
            start = match.end()
        sentences.append(paragraph[start:])
    return [sentence for sentence in map(str.strip, sentences) if sentence]


def _goes_on(match: re.Match[str]) -> bool:
    if match["next"] is None:  # the signs that need no white space
        return False
    before = match.string[max(0, match.start() - 8) : match.start()]  # longer than any abbreviation
    word = re.split(r"\W", before)[-1]
    is_short = match["mark"] == "." and (word in _SHORT_FORMS or (len(word) == 1 and word.isalpha()))
    return is_short or match["next"].islower()


def _check_values(by: str, pairs_per_document: int, min_words: int, max_words: int) -> None:
    if by not in CROPS:
        raise ValueError(f"by must be {' or '.join(map(repr, CROPS))}, got {by!r}.")
    for name, value in (("pairs_per_document", pairs_per_document), ("min_words", min_words)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    if max_words < min_words:
        raise ValueError(f"max_words must be at least min_words, got {max_words} and {min_words}.")


def _neighbours(sentences: list[str], rng: random.Random, pairs: int) -> list[tuple[str, str]]:
    """Draw pairs of neighbours, no sentence in two of them; each choice of places is as likely as any other."""
    pairs = min(pairs, len(sentences) // 2)
    places = sorted(rng.sample(range(len(sentences) - pairs), pairs))  # as if each pair were one sentence
    return [(sentences[place + i], sentences[place + i + 1]) for i, place in enumerate(places)]


def _span_pairs(words: list[str], rng: random.Random, pairs: int, min_words: int, max_words: int) -> list[tuple[str, str]]:
    """Draw pairs of stretches one behind the other."""
    longest = min(max_words, len(words) // 2)
    if longest < min_words:
        return []
    found = []
    for _ in range(pairs):
        first, second = rng.randint(min_words, longest), rng.randint(min_words, longest)
        free = len(words) - first - second
        before, until = sorted((rng.randint(0, free), rng.randint(0, free)))
        found.append((" ".join(words[before : before + first]), " ".join(words[until + first : until + first + second])))
    return found


def _texts(documents: Dataset | Iterable[str]) -> Iterator[str]:
    if isinstance(documents, Dataset):
        if "document" not in documents.column_names:
            raise ValueError(
                f"documents must have a column document, got {', '.join(documents.column_names) or 'none'}: "
                "pass the column itself, dataset['text'] for example."
            )
        # In batches: row by row takes fifty times as long.
        batches = python_rows(documents).select_columns("document").iter(100)
        documents = chain.from_iterable(batch["document"] for batch in batches)
    if isinstance(documents, (str, bytes)) or goes_by_keys(documents) or not isinstance(documents, Iterable):
        raise ValueError(
            f"documents must be a list of texts, got {type(documents).__name__}: put one text in a list, name a column of a "
            "table (table['text'])."
        )
    for place, document in enumerate(documents):
        if not isinstance(document, str):
            raise ValueError(f"documents must be texts, got {type(document).__name__} at place {place}: leave such rows out.")
        yield document


def _written(rows: Iterator[tuple[str, str]]) -> Dataset:
    """Write rows to a file in the cache of ``datasets`` that is named after what it holds, and open it."""
    folder = cache_folder()
    digest = hashlib.sha256()
    for killed in folder.glob(f"{_UNFINISHED}*"):
        with suppress(FileNotFoundError):  # another process has just finished
            if time.time() - killed.stat().st_mtime > _A_WEEK:
                shutil.rmtree(killed, ignore_errors=True)
    with TemporaryDirectory(dir=folder, prefix=_UNFINISHED) as unfinished:
        path = Path(unfinished) / "crops.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, _SCHEMA) as stream:
            while batch := list(islice(rows, _ROWS_A_WRITE)):
                digest.update(repr(batch).encode())
                stream.write_batch(pa.record_batch([pa.array(column) for column in zip(*batch, strict=True)], schema=_SCHEMA))
        finished = folder / f"crops-{digest.hexdigest()[:16]}.arrow"
        if not finished.exists():  # the same rows keep their date, by which datasets knows them
            path.replace(finished)
    return Dataset.from_file(str(finished))
