"""Files of texts with grades, topics or ids, and the folder that holds the benchmarks."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from sbert_plugins.data.read import read_rows

DATA_VARIABLE = "SBERT_PLUGINS_DATA"
# Usual names of columns: a first line of such names is a header.
_COLUMN = re.compile(
    r"_?((q|p|d|query|corpus|doc|document|passage|text|question|answer)[-_ ]?)?id|iteration|subset|"
    r"(query|question|document|doc|passage|answer|text|sentence|title|body|contents?)[-_ ]?\d?|"
    r"topic|label|category|class|grade|score|similarity|gain|rel|relevance|relevant|judge?ment",
    re.IGNORECASE,
)


def data_directory(data_dir: str | Path | None) -> Path | None:
    """Return ``data_dir``, or the folder named by the environment variable SBERT_PLUGINS_DATA, or None."""
    directory = data_dir or os.environ.get(DATA_VARIABLE)
    return Path(directory) if directory else None


def data_file(data_dir: str | Path | None, *parts: str) -> Path:
    """Return the path of a file in the data folder.

    Raises:
        FileNotFoundError: If neither ``data_dir`` nor SBERT_PLUGINS_DATA names a folder.
    """
    if (directory := data_directory(data_dir)) is None:
        raise FileNotFoundError(
            f"Set {DATA_VARIABLE} or data_dir to the folder that holds {'/'.join(parts)}."
        )
    return directory.joinpath(*parts)


def read_fields(path: str | Path, *widths: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the place (file and line, for error messages) and the fields of each line that is not blank.

    Args:
        path: A UTF-8 file. Its fields are separated by tabs, or by commas in a ``.csv`` file. ``.gz`` is
            decompressed. A first line of usual column names, such as ``query-id``, is a header and left out.
        widths: The allowed numbers of fields.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: For a line with another number of fields.
    """
    for number, (place, fields) in enumerate(read_rows(path)):
        if not number and all(_COLUMN.fullmatch(each.strip()) for each in fields):
            continue
        if not any(map(str.strip, fields)):
            continue
        if len(fields) not in widths:
            wanted = " or ".join(map(str, widths))
            raise ValueError(
                f"{place}: expected {wanted} fields separated by tabs (by commas in a .csv file), "
                f"got {len(fields)}."
            )
        yield place, fields


def stem_of(path: str | Path) -> str:
    """Return the name of a file or folder without endings such as ``.tsv.gz``."""
    return re.sub(r"(\.tsv|\.txt|\.csv)?(\.gz)?$", "", Path(path).resolve().name)
