"""Sentences and documents from files and from the Hub."""

from __future__ import annotations

import glob
import gzip
import hashlib
import io
import json
import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, islice, pairwise, zip_longest
from pathlib import Path
from typing import Any

import pyarrow.parquet
from datasets import Dataset, concatenate_datasets, load_dataset
from datasets.exceptions import DatasetGenerationError

from sbert_plugins.data.delimited import DELIMITERS, Quoting, holds_numbers, lines_of, read_delimited
from sbert_plugins.data.scripts import spaceless_letters

logger = logging.getLogger(__name__)

_END: Any = object()
_TELLING = 10  # rows
_CHARACTERS_A_PART = 2**28  # of four bytes at most
_TABULAR = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}
_STOPS = (".", "!", "?", "…", "。", "！", "？", "।", "॥", "۔", "؟")
_PAUSE = re.compile("(?=.{7}).*[，،]")  # a comma in more than a name
_SPECIAL_TOKEN = re.compile(r"\[(PAD|CLS|SEP|MASK|UNK|unused\d+)\]|</?s>|<(pad|unk|mask|cls|sep)>")


def read_sentences(source: str | Path, *, column: str | None = None, limit: int | None = None) -> Dataset:
    """Read sentences into a dataset with the one column ``anchor``.

    Args:
        source: A text file with a sentence a line, a table with a header (parquet, csv, tsv without quoting, jsonl; each of
            them may be gzipped: ``.gz``), or the name of a dataset on the Hugging Face Hub, whose split ``train`` is read.
        column: Column of a table or Hub dataset; by default ``text``, or the only column of strings.
        limit: Keep the first ``limit`` sentences.

    Returns:
        The sentences in the order of the source, outer white space stripped. Blank lines and empty cells are left out;
        a warning tells their number.

    Raises:
        FileNotFoundError: If ``source`` is neither a file nor a Hub dataset within reach.
        ValueError: If a text file is not UTF-8 (with the line) or has no columns where ``column`` names one, the column does
            not exist, a text holds NUL characters, no sentence is left, or none holds a letter.
    """
    _check_limit(limit)
    return _as_dataset(_rows([source], _texts_of(source, column), limit=limit), ["anchor"])


def read_pairs(source: str | Path, paraphrases: str | Path, *, column: str | None = None, limit: int | None = None) -> Dataset:
    """Read sentences and a paraphrase of each into a dataset with the columns ``anchor`` and ``paraphrase``.

    Args:
        source: Sentences, as in :func:`read_sentences`.
        paraphrases: As many paraphrases in the same order, in any of the same formats. The column of a table is
            ``paraphrase``, or else as in :func:`read_sentences`; it may be the table of the sentences.
        column: Column of the sentences; by default ``anchor`` or else as in :func:`read_sentences`.
        limit: Keep the first ``limit`` pairs.

    Returns:
        The pairs in the order of the source, outer white space stripped. Where either text is blank the pair is left out; a
        warning tells their number.

    Raises:
        FileNotFoundError: If either is neither a file nor a Hub dataset within reach.
        ValueError: As in :func:`read_sentences`, and if the two have different numbers of rows or are all the same.
    """
    _check_limit(limit)
    columns = [_texts_of(source, column, prefer="anchor"), _texts_of(paraphrases, None, prefer="paraphrase")]
    rows = _rows([source, paraphrases], *columns, limit=limit)
    if all(anchor == paraphrase for anchor, paraphrase in rows):
        raise ValueError(
            f"{paraphrases} must hold paraphrases of {source}, got each sentence again: the column of a table that holds them "
            "is named paraphrase."
        )
    return _as_dataset(rows, ["anchor", "paraphrase"])


def read_documents(source: str | Path, *, column: str | None = None, limit: int | None = None) -> Dataset:
    """Read texts of several sentences each into a dataset with the one column ``document``, for :func:`crop_pairs`.

    Args:
        source: A text file whose documents are parted by blank lines, or a table or Hub dataset with a document a row, in the
            formats of :func:`read_sentences`.
        column: Column of a table or Hub dataset; by default ``document``, ``text``, or the only column of strings.
        limit: Keep the first ``limit`` documents.

    Returns:
        The documents in the order of the source, outer white space of document and lines stripped; line breaks stay. Empty
        cells are left out; a warning tells their number. A text file that is all one document gives a warning, too.

    Raises:
        FileNotFoundError: If ``source`` is neither a file nor a Hub dataset within reach.
        ValueError: As in :func:`read_sentences`.
    """
    _check_limit(limit)
    texts = _texts_of(source, column, prefer="document", of_file=_paragraphs_of)
    return _as_dataset(_rows([source], texts, limit=limit, what="document"), ["document"])


def _as_dataset(rows: Sequence[Sequence[str]], names: Sequence[str]) -> Dataset:
    """Make a dataset, in parts where a column is long: its texts lie one behind the other, and no further than 2 GB."""
    starts, size = [0], 0
    for place, row in enumerate(rows):
        longest = max(map(len, row))
        size += longest
        if size > _CHARACTERS_A_PART and place:
            starts.append(place)
            size = longest
    parts = [
        Dataset.from_dict({name: [row[place] for row in rows[start:end]] for place, name in enumerate(names)})
        for start, end in pairwise([*starts, len(rows)])
    ]
    return parts[0] if len(parts) == 1 else concatenate_datasets(parts)


def _text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, unless the first one says that it is another kind of file."""
    lines = lines_of(path)
    first = list(islice(lines, 2))
    if first and _is_json(first[0]):
        raise ValueError(f"{path} must hold sentences, got a first line of json, {first[0][:40]!r}: name the file .jsonl.")
    if len(first) == 1 and "\r" in first[0].rstrip("\r\n"):
        raise ValueError(
            f"{path} must end its lines with a line feed, got carriage returns alone, by which it is one line. Convert it "
            "first, for example: tr '\\r' '\\n' < old > new."
        )
    is_parted = True
    for number, line in enumerate(chain(first, lines), start=1):
        if is_parted and "\r" in line.rstrip("\r\n"):
            is_parted = False
            logger.warning("%s, line %d: a carriage return alone ends no line, and is kept within the sentence.", path, number)
        yield line


def _sentence_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, with a warning where they look like the rows of a table."""
    lines = _text_lines(path)
    first = list(islice(lines, 20))
    tabs = {line.rstrip("\r\n").count("\t") for line in first if line.strip()}
    if len(tabs) == 1 and tabs != {0}:
        logger.warning(
            "%s: its lines have %s each, as the rows of a table have, and a whole line is read as a sentence: if one of its "
            "columns is meant, name the columns in a first line, the file .tsv, and the column (--column).",
            path,
            "a tab" if tabs == {1} else f"{tabs.pop()} tabs",
        )
    yield from chain(first, lines)


def _is_json(line: str) -> bool:
    try:
        return line.startswith("{") and isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _paragraphs_of(path: Path) -> Iterator[str]:
    """Yield what stands between blank lines."""
    documents = 0
    lines: list[str] = []
    for is_text, group in groupby(map(str.strip, _text_lines(path)), key=bool):
        if is_text:
            documents, lines = documents + 1, list(group)
            yield "\n".join(lines)
    if documents == 1 and len(lines) > 1:
        logger.warning("%s holds no blank line between its %s lines: they are one document.", path, f"{len(lines):,}")


def _check_limit(limit: int | None) -> None:
    if limit is not None and not isinstance(limit, int):
        raise ValueError(f"limit must be a whole number, got {limit!r}.")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}.")


def _texts_of(
    source: str | Path,
    column: str | None,
    *,
    prefer: str = "text",
    of_file: Callable[[Path], Iterable[str]] | None = None,
) -> Iterable[str | None]:
    path = _checked_source(source)
    if not path.is_file():
        return _column_of(_load_from_hub(str(source)), column, str(source), prefer)
    if _suffix(path) in _TABULAR:
        return _column_of(_load_table(path), column, str(path), prefer)
    if column is not None:
        raise ValueError(f"column must be left out where the text has no columns, got {column!r} with {path}.")
    return (of_file or _sentence_lines)(path)


def _checked_source(source: str | Path) -> Path:
    """Return the path of a text: of a regular file, or of what can only be a name on the Hub."""
    if not isinstance(source, str | Path):
        raise ValueError(
            f"a text must be a file or a dataset on the Hub, got {type(source).__name__}: of sentences that are here already "
            "make one, Dataset.from_dict({'anchor': [...]})."
        )
    path = Path(source)
    if not str(source).strip():
        raise ValueError(f"a text must be a file or a dataset on the Hub, got the name {str(source)!r}.")
    if path.is_dir():
        raise ValueError(f"{path} is a directory: name a file in it.")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} must be a regular file, got a pipe or a device, which is read once: write it to a file.")
    return path


def is_path(name: str | Path) -> bool:
    """Return whether a name can only be meant for a path here: ``organization/name`` on the Hub has one slash, no suffix."""
    path, text = Path(name), str(name)
    known = _suffix(path) in {*_TABULAR, ".txt"} or path.suffix.lower() == ".gz"
    return known or text.startswith((".", "/", "~")) or "\\" in text or text.count("/") > 1


def _suffix(path: Path) -> str:
    """Return what a file holds by its name, in lower case, whether it is gzipped or not."""
    return (Path(path.stem).suffix if path.suffix.lower() == ".gz" else path.suffix).lower()


def _rows(
    sources: list[str | Path], *columns: Iterable[str | None], limit: int | None, what: str = "sentence"
) -> list[tuple[str, ...]]:
    """Read columns side by side, without the rows that hold a blank text."""
    names = " and ".join(map(str, sources))
    rows: list[tuple[str, ...]] = []
    blank = wordless = 0
    side_by_side = _side_by_side(names, *columns)
    for number, texts in side_by_side:
        row = tuple((text or "").strip() for text in texts)
        if not all(row):
            blank += 1
            continue
        if any("\0" in text for text in row):
            raise ValueError(
                f"{names}, row {number}: text must not hold NUL characters, which UTF-16 and binary files do. Convert it "
                "first, for example: iconv -f utf-16le -t utf-8."
            )
        wordless += not any(map(_has_letter, row))
        rows.append(row)
        if len(rows) == limit:
            break
    if len(columns) > 1:
        deque(side_by_side, maxlen=0)  # behind the limit, too, rows show whether the texts belong together
    _say_blank(names, blank)
    if not rows:
        got = f"{blank} blank lines and nothing else" if blank else "nothing"
        raise ValueError(f"{names} must hold at least one {what}, got {got}.")
    if wordless == len(rows):
        raise ValueError(
            f"{names} must hold sentences, got {wordless:,} without a letter or digit beside special tokens such as [PAD]; "
            f"the first is {rows[0][0][:40]!r}."
        )
    if wordless:
        logger.warning("%s: %d of %d sentences hold no letter or digit.", names, wordless, len(rows))
    return rows


def _side_by_side(names: str, *columns: Iterable[str | None]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    for number, texts in enumerate(zip_longest(*columns, fillvalue=_END), start=1):
        if _END in texts:
            raise ValueError(
                f"{names} must have one text a row each and as many rows, got {number - 1:,} in the shorter: "
                "the paraphrase of a sentence stands in the same row."
            )
        yield number, texts


def _say_blank(names: str, blank: int) -> None:
    if blank:
        logger.warning("%s: skipped %d blank %s.", names, blank, "line" if blank == 1 else "lines")


def _has_letter(text: str) -> bool:
    if "[" in text or "<" in text:
        text = _SPECIAL_TOKEN.sub("", text)
    return any(map(str.isalnum, text))


def read_triplets(source: str | Path, *, limit: int | None = None) -> Dataset:
    """Read triplets into a dataset with the columns ``anchor``, ``positive`` and ``negative`` (a hard negative).

    Args:
        source: A tab-separated text file (``.tsv``, ``.tsv.gz``) whose last three fields are the triplet, or whose header
            has these names, in any order and among others; a parquet, csv or jsonl file with the three columns; or the name
            of a dataset on the Hugging Face Hub that has them, in a configuration ``triplet`` if it has several.
        limit: Keep the first ``limit`` triplets.

    Raises:
        FileNotFoundError: If ``source`` is neither a file nor a Hub dataset within reach.
        ValueError: If a line or row lacks one of the three texts (with file and number), a column is missing, or nothing is
            left.
    """
    _check_limit(limit)
    path = _checked_source(source)
    names = ["anchor", "positive", "negative"]
    if path.is_file() and (DELIMITERS.get(_suffix(path)) == "\t" or _suffix(path) not in _TABULAR):
        return _as_triplets(_tabbed_triplets(path, names, limit), path, names)
    return _triplets_of(_load_table(path) if path.is_file() else _load_from_hub(str(source), "triplet"), source, names, limit)


def _tabbed_triplets(path: Path, names: list[str], limit: int | None) -> list[list[str]]:
    """Read the last three fields of each line, or those that a header names."""
    rows: list[list[str]] = []
    blank, places = 0, [-3, -2, -1]
    is_first, quoted = True, Quoting(path, len(names))
    for number, line in enumerate(_text_lines(path), start=1):
        if not line.strip():
            blank += 1
            continue
        cells = [cell.strip() for cell in line.rstrip("\r\n").split("\t")]
        quoted.see(cells, number)
        if is_first and set(names) <= set(header := [cell.lower() for cell in cells]):  # as a table has
            places, is_first = [header.index(name) for name in names], False
            continue
        fields = [cells[place] for place in places] if len(cells) > max(2, *places) else []
        if not fields or not all(fields) or "\0" in line:
            raise ValueError(
                f"{path}, line {number}: expected tab-separated anchor, positive and negative, got {line.strip()!r}."
            )
        if is_first and all(map(_may_be_a_name, fields)):
            logger.warning("%s: its first line is read as a triplet, %s: a header says %s.", path, fields, ", ".join(names))
        is_first = False
        rows.append(fields)
        if len(rows) == limit:
            break
    _say_blank(str(path), blank)
    quoted.check()
    # By a few of them, or where a header says what they are, they may be numbers.
    is_sure = places[0] < 0 and (limit is None or len(rows) >= _TELLING)
    if rows and is_sure and holds_numbers([negative for _, _, negative in rows]):
        raise ValueError(
            f"{path} must hold an anchor, a positive and a negative in the last three fields of a line, got numbers in "
            f"the last ({rows[0][2]!r}): name the columns in a header, {', '.join(names)} and what else there is."
        )
    return rows


def _may_be_a_name(text: str) -> bool:
    return len(text.split()) <= 2 and not text.endswith(_STOPS)


def _triplets_of(table: Dataset, source: str | Path, names: list[str], limit: int | None) -> Dataset:
    """Return the columns of a table as triplets, each of them a text in every row."""
    if missing := set(names) - set(table.column_names):
        raise ValueError(
            f"{source} must have the columns {', '.join(names)}, lacks {', '.join(sorted(missing))}. "
            f"It has: {', '.join(table.column_names)}."
        )
    rows = []
    for number, row in enumerate(zip(*(table[name][:limit] for name in names), strict=True), start=1):
        fields = [field.strip() if isinstance(field, str) else "" for field in row]
        if not all(fields):
            raise ValueError(f"{source}, row {number}: expected a text as anchor, positive and negative, got {list(row)}.")
        rows.append(fields)
    return _as_triplets(rows, source, names)


def _as_triplets(rows: Sequence[Sequence[str]], source: str | Path, names: list[str]) -> Dataset:
    if not rows:
        raise ValueError(f"{source} must hold at least one triplet, got none.")
    return _as_dataset(rows, names)


def _load_table(path: Path) -> Dataset:
    kind = _TABULAR[_suffix(path)]
    if path.stat().st_size == 0:
        raise ValueError(f"{path} must hold at least one sentence, got an empty file.")
    if _suffix(path) in DELIMITERS:
        return read_delimited(path, DELIMITERS[_suffix(path)])
    try:
        is_packed = path.suffix.lower() == ".gz"
        # Datasets unpacks the other kinds alone, and reads no parquet without rows.
        if kind == "parquet" and (is_packed or not pyarrow.parquet.read_metadata(path).num_rows):
            with gzip.open(path) if is_packed else path.open("rb") as file:
                return Dataset(pyarrow.parquet.read_table(io.BytesIO(file.read())))
        # To datasets a path is a pattern: s[ab].csv would read sa.csv and sb.csv.
        # What it has read before it knows by path and time, and not by content.
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()[:16]
        files = glob.escape(str(path))
        try:
            return load_dataset(kind, content, data_files=files, split="train")
        except DatasetGenerationError:
            if kind != "json":
                raise
            # It takes the columns and their types from the first 10 MB: now from all.
            return load_dataset(kind, content, data_files=files, split="train", chunksize=path.stat().st_size + 1)
    except Exception as error:
        cause = error.__cause__ or error
        raise ValueError(
            f"{path} must be a {kind} table in UTF-8, and could not be read as one ({type(cause).__name__}: {cause})."
        ) from error


def _refuse_a_sentence(header: str, names: Sequence[str], source: str) -> None:
    """Refuse what will be the first row of a table without a header: its sentence would be lost. Warn of what may be."""
    has_number = any(name.strip() and holds_numbers([name]) for name in names)
    is_long = len(header.split()) > 2 or spaceless_letters(header) > 10
    if is_long or header.rstrip().endswith(_STOPS) or _PAUSE.search(header) or has_number:
        raise ValueError(
            f"{source} must begin with a header, got {header!r}, which looks like a sentence: put a line before it that names "
            "the columns, text for that of the sentences; or, of sentences alone, name the file .txt. If it is a header, give "
            "it as column (--column)."
        )
    if " " in header.strip():
        logger.warning("%s: its first line is read as a header, and no sentence: the column is called %r.", source, header)


def _column_of(table: Dataset, column: str | None, source: str, prefer: str = "text") -> list[str | None]:
    strings = [
        name for name, feature in table.features.items() if getattr(feature, "dtype", None) in ("string", "large_string")
    ]
    if _suffix(Path(source)) in DELIMITERS:  # whose cells are all read as text
        strings = [name for name in strings if not holds_numbers(table[name][:])]
    if column is None:
        named = [name for of in (strings, table.column_names) for name in (prefer, "text") if name in of]
        is_flat = all(getattr(feature, "dtype", None) for feature in table.features.values())  # no lists, no objects
        column = named[0] if named else strings[0] if len(strings) == 1 and is_flat else prefer
        if column in strings and not named:
            if _suffix(Path(source)) in DELIMITERS:
                _refuse_a_sentence(column, table.column_names, source)
            logger.info("%s: reading its only column of strings, %r.", source, column)
    if column not in strings:
        there = ", whose cells are empty, numbers, lists, objects or of several types" if column in table.column_names else ""
        raise ValueError(
            f"column must name a column of strings in {source}, got {column!r}{there}. It has: {', '.join(strings) or 'none'}."
        )
    try:
        return table[column][:]
    except UnicodeDecodeError as error:  # of json, which datasets does not look at before
        raise ValueError(
            f"{source}: text must be UTF-8, got byte 0x{error.object[error.start]:02x} in column {column!r}. Convert it, "
            "for example: iconv -f ENCODING -t utf-8, with what it was saved in (cp1252, gb18030, shift_jis, ...)."
        ) from None


def _load_from_hub(name: str, configuration: str | None = None) -> Dataset:
    if is_path(name):  # no need to ask the Hub
        raise FileNotFoundError(f"{name} does not exist: a text is a file here, or organization/name of a dataset on the Hub.")
    try:
        try:
            return load_dataset(name, configuration, split="train")
        except ValueError:  # it has no configuration of that name
            if configuration is None:
                raise
            return load_dataset(name, split="train")
    except Exception as error:
        said = " ".join(str(error).split("\n")[:2])  # the second line has the names of the configurations
        raise FileNotFoundError(
            f"{name} is neither a file here nor a dataset within reach on the Hugging Face Hub "
            f"({type(error).__name__}: {said.strip()})."
        ) from error
