"""Tables whose columns are parted by a delimiter: every cell is read as the text that it is."""

from __future__ import annotations

import codecs
import csv
import gzip
import logging
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Value, concatenate_datasets

logger = logging.getLogger(__name__)

DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_NAMES = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
_ROWS = 10_000
_QUOTED = re.compile(r'"(?=.*"")(?:[^"]|"")+"', re.DOTALL)  # in marks, and each mark in it is doubled
_PACKED = {
    b"PK\x03\x04": "a zip or a spreadsheet",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"(\xb5/\xfd": "zstd",
    b"\x1f\x8b": "gzip",
}
_LONGEST = 2**31 - 1  # characters of a cell; csv's own limit is 131,072, which a document may pass


def lines_of(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, gzipped or not, with their ends."""
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    with opener(path, "rb") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            if number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise ValueError(
                    f"{path}: text must be UTF-8, got UTF-16 by its first two bytes. Convert it first, for example: "
                    "iconv -f utf-16 -t utf-8."
                ) from None
            if packed := next((name for mark, name in _PACKED.items() if number == 1 and line.startswith(mark)), None):
                raise ValueError(
                    f"{path}: text must be UTF-8, got {packed} by its first bytes. Unpack it first (or let a gzip's name end "
                    "in .gz); save a spreadsheet as .csv."
                ) from None
            raise ValueError(
                f"{path}, line {number}: text must be UTF-8, got byte 0x{error.object[error.start]:02x} at position "
                f"{error.start}. Convert it first, for example: iconv -f ENCODING -t utf-8, with what it "
                "was saved in (cp1252, gb18030, shift_jis, ...)."
            ) from None
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path} ends in .gz but is not a whole gzip file ({error}).") from None


def read_delimited(path: Path, delimiter: str) -> Dataset:
    """Read a table with a header, every column as text; an empty cell is None, and so are those that a short row lacks.

    Tabs separate, and a quotation mark between them is one; with commas a cell may stand in quotation marks.

    Raises:
        ValueError: With the line, for a row with more cells than the header has names, quotation marks that do not close and
            text that is not UTF-8; if the header is parted by another delimiter or names a column twice.
    """
    rows = _rows_of(path, delimiter)
    names = [name.strip() or f"column {number}" for number, name in enumerate(next(rows, []), start=1)]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{path} must name its columns differently, got {min(twice)!r} more than once.")
    features = Features({name: Value("string") for name in names})  # type: ignore[arg-type]  # it is a dict
    parts = [Dataset.from_dict({name: [] for name in names}, features=features)]
    while some := list(islice(rows, _ROWS)):
        cells = zip(*([cell or None for cell in row] for row in some), strict=True)
        parts.append(Dataset.from_dict(dict(zip(names, map(list, cells), strict=True)), features=features))
    return concatenate_datasets(parts)


def holds_numbers(cells: Iterable[str | None]) -> bool:
    """Return whether a column is one of numbers, or of true and false, by what its cells say."""
    return all(map(_is_number, cells))


def _is_number(cell: str | None) -> bool:
    if cell is None or not cell.strip() or cell.lower() in ("true", "false"):
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _rows_of(path: Path, delimiter: str) -> Iterator[list[str]]:
    """Yield the header and the rows, of one length."""
    lines = lines_of(path)
    number, header = next(((n, line) for n, line in enumerate(lines) if line.strip()), (0, ""))
    _check_header(header.strip(" \r\n"), path, delimiter)
    quoting: Any = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    rows = csv.reader(chain([header], lines), delimiter=delimiter, quoting=quoting, strict=True)
    width, is_whole = 0, True
    quoted: Quoting | None = None  # between tabs
    with _long_cells():
        try:
            for row in rows:
                width = width or len(row)
                if any(cell.strip() for cell in row[width:]):
                    raise ValueError(_too_long(row, width, f"{path}, line {number + rows.line_num}", delimiter))
                if is_whole and len(row) < width and any(map(str.strip, row)):
                    is_whole = False
                    logger.warning(_too_short(row, width, f"{path}, line {number + rows.line_num}", delimiter))
                if delimiter == "\t" and quoted is None:
                    quoted = Quoting(path, width)
                    quoted.check(row)
                if quoted is not None:
                    quoted.see(row, number + rows.line_num)
                yield row[:width] + [""] * (width - len(row))
            if quoted is not None:
                quoted.check()
        except csv.Error as error:
            raise ValueError(
                f"{path}, line {number + rows.line_num}: cells must be parted by {_NAMES[delimiter]} and could not be read so "
                f"({error}). A cell that begins with a quotation mark stands in marks, and each mark in it is doubled."
            ) from None


@contextmanager
def _long_cells() -> Iterator[None]:
    limit = csv.field_size_limit(_LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


class Quoting:
    """Looks whether cells between tabs are quoted as with commas, as pandas writes those with a mark or a line break in them.

    That is so if each cell with marks is quoted, or if a row ends within marks and it or the next one is short.
    """

    def __init__(self, path: Path, width: int) -> None:
        self._path, self._width = path, width
        self._first = ""  # quoted cell
        self._has_plain = False  # marks in a cell that is not
        self._within = ""  # the cell with which the row before ended, if within marks
        self._was_short = False

    def see(self, row: Sequence[str], line: int) -> None:
        """Look at a row."""
        is_short = len(row) < self._width
        if self._within and row and row[0].count('"') % 2 and (is_short or self._was_short):
            self._refuse(self._within, line - 1)
        for cell in row:
            if '"' in cell:
                is_quoted = bool(_QUOTED.fullmatch(cell))
                self._first = self._first or cell * is_quoted
                self._has_plain |= not is_quoted and cell.count('"') % 2 == 0
        is_within = bool(row) and row[-1].startswith('"') and row[-1].count('"') % 2 == 1
        self._within, self._was_short = row[-1] if is_within else "", is_short

    def check(self, header: Sequence[str] = ()) -> None:
        """Refuse a table that is quoted, or whose header is."""
        if names := [name for name in header if len(name) > 2 and name[0] == name[-1] == '"']:
            self._refuse(names[0], 1)
        if self._first and not self._has_plain:
            self._refuse(self._first)

    def _refuse(self, cell: str, line: int | None = None) -> None:
        place = f"{self._path}, line {line}" if line else str(self._path)
        raise ValueError(
            f"{place}: between tabs a quotation mark is a letter, and a cell holds no line break; got {cell[:40]!r}, which is "
            "quoted: write the table with commas, as .csv, or convert it: "
            "pandas.read_csv(FILE, sep='\\t').to_parquet('text.parquet')."
        )


def _too_long(row: list[str], width: int, place: str, delimiter: str) -> str:
    cells = f"{width} cell" if width == 1 else f"{width} cells"
    advice = "a sentence that holds commas stands in quotation marks" if delimiter == "," else "a text holds no tab"
    return (
        f"{place}: expected {cells} parted by {_NAMES[delimiter]}, as in the header, got {len(row)}: {advice}. A file "
        f"of sentences alone is named .txt. The row begins with {delimiter.join(row)[:40]!r}."
    )


def _too_short(row: list[str], width: int, place: str, delimiter: str) -> str:
    advice = "put a sentence that holds one in quotation marks" if delimiter == "," else "take them out of the sentences"
    return (
        f"{place}: got {len(row)} of {width} cells, and further rows may lack some. What follows a line break is read as "
        f"another row: {advice}. The row begins with {delimiter.join(row)[:40]!r}."
    )


def _check_header(header: str, path: Path, delimiter: str) -> None:
    """Refuse a header that is parted by another delimiter."""
    for other, name in _NAMES.items():
        names = header.split(other)
        is_parted = delimiter not in header and len(names) > 1 and any(map(str.strip, names))  # an index may have no name
        if is_parted and all(len(part.split()) <= 2 for part in names):
            read = f"pandas.read_csv({path.name!r}, sep={other!r})"
            advice = {",": "name it .csv", "\t": "name it .tsv"}.get(other, f"convert it: {read}.to_parquet('text.parquet')")
            raise ValueError(
                f"{path} must have columns parted by {_NAMES[delimiter]}, got the header {header!r}, parted by {name}: "
                f"{advice}."
            )
