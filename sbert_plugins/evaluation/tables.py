"""Tab-separated files of the data directory, read with errors that name file and line."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

DATA_VARIABLE = "SBERT_PLUGINS_DATA"


def data_directory(data_dir: str | Path | None) -> str | Path | None:
    """Return ``data_dir`` or, without one, the directory that the environment names; an empty name is none."""
    return data_dir or os.environ.get(DATA_VARIABLE) or None


def data_path(data_dir: str | Path | None, *parts: str) -> Path:
    """Return the path of a file in ``data_dir`` or, without one, in the directory that the environment names.

    Raises:
        FileNotFoundError: If there is neither.
    """
    directory = data_directory(data_dir)
    if directory is None:
        raise FileNotFoundError(
            f"{'/'.join(parts)} is read from a data directory: set {DATA_VARIABLE} (or data_dir) to the directory that has it."
        )
    return Path(directory, *parts)


def check_tasks(tasks: Sequence[str], known: Sequence[str]) -> None:
    """Refuse tasks that are unknown, named twice or none."""
    if not tasks or not set(tasks) <= set(known) or len(set(tasks)) < len(tasks):
        raise ValueError(f"tasks must be a selection, each once, of {', '.join(known)}, got {list(tasks)}.")


def width_of(path: str | Path) -> int:
    """Count the fields of a file's first line; 0 of an empty one.

    Raises:
        FileNotFoundError: If the file does not exist.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist, or is no file.")
    line = next(_lines_of(path), "")
    return len(line.split("\t")) if line else 0


def read_table(path: str | Path, columns: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield ``(place, fields)`` for each line of a file without header or quoting; ``.gz`` is unpacked.

    ``place`` is the file and the line, for the message of an error that the caller finds.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: For a line with another number of fields than ``columns`` (blank ones at the end are none), and a file
            that is not UTF-8 or, by its name, not gzipped.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist: {DATA_VARIABLE} or data_dir must name the directory whose folder {path.parent.name} "
            f"holds {path.name}."
        )
    blank = 0  # the first blank line, until another line follows
    for number, line in enumerate(_lines_of(path), start=1):
        if not line.strip():
            blank = blank or number
            continue
        fields = line.rstrip("\r\n").split("\t")
        place = f"{path}, line {blank or number}"
        if number == 1 and [field.strip().lower() for field in fields] == list(columns):
            raise ValueError(
                f"{place}: the first line must be a row, got the columns' names: a file has no header. Remove it."
            )
        if blank or len(fields) != len(columns):
            raise ValueError(
                f"{place}: expected {len(columns)} tab-separated fields ({', '.join(columns)}), got "
                f"{1 if blank else len(fields)}."
            )
        yield place, fields


def whole_number(text: str, column: str, place: str) -> int:
    """Read a label, a topic or a gain.

    Raises:
        ValueError: If it is not a whole number from 0.
    """
    if not text.isdecimal():
        raise ValueError(f"{place}: {column} must be a whole number from 0, got {text!r}.")
    return int(text)


def _lines_of(path: Path) -> Iterator[str]:
    # Not str.splitlines: it would also cut at the rarer Unicode line separators inside a sentence.
    # utf-8-sig, for the byte order mark that Excel and Notepad write would be part of the first field.
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with opener(path, "rb") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {number}: must be UTF-8, got byte 0x{error.object[error.start]:02x}. Convert it first, for "
                "example: iconv -f ENCODING -t utf-8, with what it was saved in (cp1252, utf-16, gb18030, ...)."
            ) from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path} ends in .gz and is not a whole gzip file ({error}).") from error
