"""Tab-separated files of the data directory, read with errors that name file and line."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

DATA_VARIABLE = "SBERT_PLUGINS_DATA"


def data_path(data_dir: str | Path | None, *parts: str) -> Path:
    """Return the path of a file in ``data_dir`` or, without one, in the directory that the environment names.

    Raises:
        FileNotFoundError: If there is neither.
    """
    directory = data_dir or os.environ.get(DATA_VARIABLE)
    if directory is None:
        raise FileNotFoundError(
            f"{'/'.join(parts)} is read from a data directory: set {DATA_VARIABLE} (or data_dir) to the directory that has it."
        )
    return Path(directory, *parts)


def width_of(path: str | Path) -> int:
    """Count the fields of a file's first line; 0 of an empty one.

    Raises:
        FileNotFoundError: If the file does not exist.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist, or is no file.")
    with _opened(path) as lines:
        line = next(lines, "")
    return len(line.split("\t")) if line else 0


def read_table(path: str | Path, columns: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield ``(place, fields)`` for each line of a file without header or quoting; ``.gz`` is unpacked.

    ``place`` is the file and the line, for the message of an error that the caller finds.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: For a line with another number of fields than ``columns``.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist: {DATA_VARIABLE} or data_dir must name the directory whose folder {path.parent.name} "
            f"holds {path.name}."
        )
    with _opened(path) as lines:
        for number, line in enumerate(lines, start=1):
            fields = line.rstrip("\r\n").split("\t")
            place = f"{path}, line {number}"
            if len(fields) != len(columns):
                raise ValueError(
                    f"{place}: expected {len(columns)} tab-separated fields ({', '.join(columns)}), got {len(fields)}."
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


def _opened(path: Path) -> TextIO:
    # Not str.splitlines: it would also cut at the rarer Unicode line separators inside a sentence.
    # utf-8-sig, for the byte order mark that Excel and Notepad write would be part of the first field.
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="\n")
    return path.open("rt", encoding="utf-8-sig", newline="\n")
