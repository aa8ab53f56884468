"""Sentences from files and from the Hub."""

from __future__ import annotations

import gzip
import logging
import zlib
from collections.abc import Iterator
from pathlib import Path

from datasets import Dataset, load_dataset

logger = logging.getLogger(__name__)

_TABULAR = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json", ".json": "json"}


def read_sentences(source: str | Path, *, column: str | None = None, limit: int | None = None) -> Dataset:
    """Read sentences into a dataset with the one column ``anchor``.

    Args:
        source: A text file with a sentence a line, a parquet, csv or jsonl file (each of them may be gzipped: ``.gz``), or
            the name of a dataset on the Hugging Face Hub, whose split ``train`` is read.
        column: Column of a table or Hub dataset; by default ``text``, or the only column of strings.
        limit: Keep the first ``limit`` sentences.

    Returns:
        The sentences in the order of the source, outer white space stripped. Blank lines and empty cells are left out;
        a warning tells their number.

    Raises:
        FileNotFoundError: If ``source`` is neither a file nor a Hub dataset within reach.
        ValueError: If a text file is not UTF-8 (with the line), the column does not exist, or no sentence is left.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}.")
    path = Path(source)
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if path.is_dir():
        raise ValueError(f"{path} is a directory: name a file in it.")
    if not path.is_file():
        texts = _column_of(_load_from_hub(str(source)), column, str(source))
    elif suffix in _TABULAR:
        texts = _column_of(_load_table(path, _TABULAR[suffix]), column, str(path))
    else:
        texts = _lines_of(path)
    sentences, blank = [], 0
    for text in texts:
        sentence = (text or "").strip()
        if not sentence:
            blank += 1
            continue
        sentences.append(sentence)
        if len(sentences) == limit:
            break
    if blank:
        logger.warning("%s: skipped %d blank %s.", source, blank, "line" if blank == 1 else "lines")
    if not sentences:
        raise ValueError(f"{source} must hold at least one sentence, got {blank} blank lines and nothing else.")
    return Dataset.from_dict({"anchor": sentences})


def read_triplets(source: str | Path, *, limit: int | None = None) -> Dataset:
    """Read triplets into a dataset with the columns ``anchor``, ``positive`` and ``negative`` (a hard negative).

    Args:
        source: A tab-separated text file without header (``.tsv``, ``.tsv.gz``) whose last three fields are the triplet; a
            parquet, csv or jsonl file with the three columns; or the name of a dataset on the Hugging Face Hub that has
            them, in a configuration ``triplet`` if it has several.
        limit: Keep the first ``limit`` triplets.

    Raises:
        FileNotFoundError: If ``source`` is neither a file nor a Hub dataset within reach.
        ValueError: If a line has fewer than three fields (with file and line), a column is missing, or nothing is left.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}.")
    path = Path(source)
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    names = ["anchor", "positive", "negative"]
    if path.is_file() and suffix not in _TABULAR:
        rows = []
        for number, line in enumerate(_lines_of(path), start=1):
            fields = [field.strip() for field in line.rstrip("\r\n").split("\t")][-3:]
            if len(fields) < 3 or not all(fields):
                raise ValueError(
                    f"{path}, line {number}: expected tab-separated anchor, positive and negative, got {line.strip()!r}."
                )
            rows.append(fields)
            if len(rows) == limit:
                break
        if not rows:
            raise ValueError(f"{path} must hold at least one triplet, got an empty file.")
        return Dataset.from_dict(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    if path.is_file():
        table = load_dataset(_TABULAR[suffix], data_files=str(path), split="train")
    else:
        table = _load_from_hub(str(source), "triplet")
    if missing := set(names) - set(table.column_names):
        raise ValueError(
            f"{source} must have the columns {', '.join(names)}, lacks {', '.join(sorted(missing))}. "
            f"It has: {', '.join(table.column_names)}."
        )
    return table.select_columns(names).select(range(min(len(table), limit or len(table))))


def _lines_of(path: Path) -> Iterator[str]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {number}: text must be UTF-8, got byte 0x{error.object[error.start]:02x} at position "
                f"{error.start}. Convert it first, for example: iconv -f latin1 -t utf-8."
            ) from None
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path} ends in .gz but is not a whole gzip file ({error}).") from None


def _load_table(path: Path, kind: str) -> Dataset:
    if path.stat().st_size == 0:
        raise ValueError(f"{path} must hold at least one sentence, got an empty file.")
    try:
        return load_dataset(kind, data_files=str(path), split="train")
    except Exception as error:
        cause = error.__cause__ or error
        raise ValueError(
            f"{path} must be a {kind} table in UTF-8, and could not be read as one ({type(cause).__name__}: {cause})."
        ) from error


def _column_of(table: Dataset, column: str | None, source: str) -> list[str | None]:
    strings = [
        name for name, feature in table.features.items() if getattr(feature, "dtype", None) in ("string", "large_string")
    ]
    if column is None:
        column = "text" if "text" in strings or len(strings) != 1 else strings[0]
    if column not in strings:
        raise ValueError(
            f"column must name a column of strings in {source}, got {column!r}. It has: {', '.join(strings) or 'none'}."
        )
    return table[column][:]


def _load_from_hub(name: str, configuration: str | None = None) -> Dataset:
    try:
        return load_dataset(name, configuration, split="train")
    except Exception as error:
        raise FileNotFoundError(
            f"{name} is neither a file here nor a dataset within reach on the Hugging Face Hub "
            f"({type(error).__name__}: {str(error).splitlines()[0]})."
        ) from error
