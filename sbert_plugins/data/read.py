"""Read texts from files and from the Hugging Face Hub, and keep derived rows in the cache of ``datasets``."""

import csv
import glob
import gzip
import logging
import re
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset, Features, Value, concatenate_datasets, load_dataset
from datasets.fingerprint import Hasher

from sbert_plugins import __version__, host

from .columns import Origin, describe_origin, list_texts, read_columns, select_columns

logger = logging.getLogger(__name__)

# Suffix of a file -> how it is read. A file with any other suffix is plain text.
_FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
_PLAIN = (".txt", ".md")
_CONVERTED = (".pdf", ".docx", ".html", ".htm")  # by markitdown
# Usual names of columns: a first line of such names is a header.
_COLUMN = re.compile(
    r"_?((q|p|d|query|corpus|doc|document|passage|text|question|answer)[-_ ]?)?id|iteration|subset|"
    r"(query|question|document|doc|passage|answer|text|sentence|title|body|contents?)[-_ ]?\d?|"
    r"topic|label|category|class|grade|score|similarity|gain|rel|relevance|relevant|judge?ment",
    re.IGNORECASE,
)
_TRIPLET = ["anchor", "positive", "negative"]
INDEX = "index of the text"  # see expand_rows


def read_sentences(source: str | Path, *, column: str | None = None, limit: int | None = None) -> Dataset:
    """Read sentences into a dataset with one column, ``anchor``.

    Args:
        source: One of

            - a text file with one sentence per line;
            - a table with a header: ``.csv``, ``.tsv``, ``.json``, ``.jsonl`` or ``.parquet``. Cells of a csv
              file that contain commas are in quotation marks. In a tsv file quotation marks are ordinary
              characters;
            - the name of a dataset on the Hugging Face Hub, whose split ``train`` is read.

            All files but parquet may be gzipped (``.gz``).
        column: Column of a table. By default ``anchor``, ``text``, ``sentence`` or the only column of
            strings.
        limit: Keep the first ``limit`` sentences.

    Returns:
        The sentences in the order of the source, without leading and trailing white space. Blank rows are
        dropped, and their number is logged.

    Raises:
        FileNotFoundError: If ``source`` is neither a file nor a dataset that the Hub provides.
        ValueError: If a file is not UTF-8 (with the line), the column does not exist, or nothing is left.

    Example:
        >>> with open("sentences.txt", "w") as file:
        ...     _ = file.write("It is raining.\\nPrices fell again.\\n")
        >>> read_sentences("sentences.txt")[0]
        {'anchor': 'It is raining.'}
    """
    return _first(read_columns(load_table(source), ["anchor"], columns=column, source=str(source)), limit)


def read_pairs(
    source: str | Path,
    paraphrases: str | Path,
    *,
    column: str | Sequence[str] | None = None,
    limit: int | None = None,
) -> Dataset:
    """Read sentences and one paraphrase of each into a dataset with the columns ``anchor`` and ``positive``.

    Args:
        source: Sentences, in any format of :func:`read_sentences`.
        paraphrases: As many paraphrases in the same order, in any of these formats. In a table they are the
            column ``positive``, ``paraphrase`` or the only column of strings. It may be the same file as
            ``source``.
        column: Column of the sentences, or two columns: of the sentences and of the paraphrases. By default
            the sentences are in ``anchor``, ``text``, ``sentence`` or the only column of strings.
        limit: Keep the first ``limit`` pairs.

    Returns:
        The pairs in the order of the source. Pairs with a blank text are dropped, and their number is logged.

    Raises:
        FileNotFoundError: As :func:`read_sentences`.
        ValueError: As :func:`read_sentences`, and if the two have different numbers of rows.
    """
    names = [column] if isinstance(column, str) else list(column or ())
    first, origin = select_columns(load_table(source), ["anchor"], columns=names[:1], source=str(source))
    second, other = select_columns(
        load_table(paraphrases), ["positive"], columns=names[1:], source=str(paraphrases)
    )
    if len(first) != len(second):
        raise ValueError(
            f"{source} has {len(first):,} rows and {paraphrases} has {len(second):,}. A sentence and its "
            "paraphrase must be in the same row."
        )
    read = origin.columns | other.columns
    left_out = dict.fromkeys(
        name for name in (*origin.not_read, *other.not_read) if name not in read.values()
    )
    rows = describe_origin(concatenate_datasets([first, second], axis=1), Origin(read, list(left_out), 0))
    return _first(read_columns(rows, ["anchor", "positive"], source=str(source)), limit)


def read_triplets(source: str | Path, *, limit: int | None = None) -> Dataset:
    """Read triplets into a dataset with the columns ``anchor``, ``positive`` and ``negative``.

    Args:
        source: One of

            - a table (``.csv``, ``.json``, ``.jsonl``, ``.parquet``) with these three columns;
            - a tab-separated file with a header that contains these names, or without a header and with the
              triplet in the last three cells of each line;
            - the name of a dataset on the Hugging Face Hub with these columns, in the configuration
              ``triplet`` if it has one.
        limit: Keep the first ``limit`` triplets.

    Returns:
        The triplets in the order of the source. Triplets with a blank text are dropped, and their number is
        logged.

    Raises:
        FileNotFoundError: As :func:`read_sentences`.
        ValueError: As :func:`read_sentences`.
    """
    path = Path(source)
    if path.is_file() and _format_of(path) in ("tsv", "text"):
        cells = _read_cells(path)
        names = [name.strip().lower() for name in cells[0]]
        if len(names) >= 3 and not {*_TRIPLET} <= {*names}:  # no header
            names, cells = _TRIPLET, [names, *(row[-3:] for row in cells)]
        rows = _dataset_of(names, cells[1:])
    else:
        rows = load_table(source, configuration="triplet")
    return _first(read_columns(rows, _TRIPLET, source=str(source)), limit)


def read_documents(
    source: str | Path, *, column: str | Sequence[str] | None = None, limit: int | None = None
) -> Dataset:
    """Read texts of several sentences each into a dataset with the column ``document``.

    The documents are for :func:`crop_pairs` and :func:`split_passages`.

    Args:
        source: One of

            - a folder of ``.txt``, ``.md``, ``.pdf``, ``.docx`` and ``.html`` files with one document each.
              Subfolders are read as well, hidden files and other files are left out;
            - one ``.pdf``, ``.docx`` or ``.html`` file;
            - a text file whose documents are separated by blank lines;
            - the corpus of a search collection: a folder with ``corpus.jsonl`` (BEIR) or ``corpus.tsv``, or
              this file. Its lines are id, title and text, or id and text, with or without a header;
            - a table or Hub dataset with one document per row, in the formats of :func:`read_sentences`.

            ``.pdf``, ``.docx`` and ``.html`` need the extra ``documents``.
        column: Column of a table, or the columns of document and title. By default ``document``, ``text`` or
            the only column of strings, and ``title``.
        limit: Keep the first ``limit`` documents.

    Returns:
        The documents in the order of the source; those of a folder in the order of their paths. Line breaks
        are kept. Blank documents are dropped, and their number is logged.

        If there are titles, they are in a second column, ``title``, which is empty for a document without
        one. A table has them in a column of this name. In a file of a folder, the title is the first line if
        it is a Markdown heading, or if a blank line follows it, and it has at most 100 characters. The title
        is then no longer in the document.

    Raises:
        FileNotFoundError: As :func:`read_sentences`.
        ModuleNotFoundError: Without markitdown (``pip install "sbert-plugins[documents]"``), if it is needed.
        ValueError: As :func:`read_sentences`.
    """
    path = Path(source)
    corpora = [path / f"corpus{ending}" for ending in (".jsonl", ".jsonl.gz", ".tsv", ".tsv.gz")]
    path = next((corpus for corpus in corpora if corpus.is_file()), path)
    source = path if path != Path(source) else source
    files = [path] if path.is_file() and path.suffix.lower() in _CONVERTED else []
    if path.is_dir() and str(source).strip():  # the path of an empty name is the current folder
        files = _document_files(path)
    if files:
        rows = _read_document_files(files)
    elif path.is_file() and path.name.lower().startswith("corpus.tsv"):
        cells = [fields[1:] for _, fields in read_fields(path, 2, 3)]
        # A document without a text is its title.
        cells = [["".join(title), text.strip() or "".join(title)] for *title, text in cells]
        rows = _dataset_of(["title", "document"], cells)
    else:
        rows = load_table(source)
    if not files and path.is_file() and _format_of(source) == "text":
        paragraphs = groupby(map(str.strip, rows["text"][:]), key=bool)
        rows = _dataset_of(["document"], [["\n".join(lines)] for has_text, lines in paragraphs if has_text])
    rows = read_columns(rows, ["document"], optional=["title"], columns=column, source=str(source))
    return _first(rows, limit)


def _document_files(folder: Path) -> list[Path]:
    """Return the files below a folder that hold a document each, in the order of their paths."""
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    found = [path for path in files if path.suffix.lower() in (*_PLAIN, *_CONVERTED)]
    if found and len(found) < len(files):
        logger.warning("%s: left out %s files of other formats.", folder, f"{len(files) - len(found):,}")
    return found


def _read_document_files(paths: Sequence[Path]) -> Dataset:
    rows = []
    for path in paths:
        text = _convert(path) if path.suffix.lower() in _CONVERTED else "".join(decode_lines(path))
        first, *rest = text.strip().splitlines() or [""]
        is_heading = first.startswith("#") or (rest and not rest[0].strip())
        has_title = bool(rest and is_heading and len(first) <= 100)  # characters
        rows.append(["\n".join(rest), first.lstrip("#")] if has_title else [text, ""])
    return _dataset_of(["document", *(["title"] if any(title for _, title in rows) else [])], rows)


def _convert(path: Path) -> str:
    """Return the text of a file as Markdown."""
    try:
        from markitdown import MarkItDown
    except ImportError as error:
        raise ModuleNotFoundError(
            f'{path} is converted by markitdown, which is missing: pip install "sbert-plugins[documents]".'
        ) from error
    return MarkItDown().convert(path).text_content


def _read_cells(path: Path) -> list[list[str]]:
    """Return the rows of a comma-separated or tab-separated file, which have the same number of cells.

    A blank line is a row of empty cells, so that the rows of two files stay together. Blank lines before the
    first row and after the last one are left out.
    """
    rows: list[list[str]] = []
    for place, row in read_rows(path):
        is_blank = not any(map(str.strip, row))
        if rows and not is_blank and len(row) != len(rows[0]):
            raise ValueError(f"{place}: {len(row)} cells instead of {len(rows[0])}: {row}.")
        if rows or not is_blank:
            rows.append([""] * len(rows[0]) if is_blank else row)
    while rows and not any(rows[-1]):
        rows.pop()
    if not rows:
        raise ValueError(f"{path} contains no text.")
    return rows


def read_fields(path: str | Path, *widths: int, number: int | None = None) -> Iterator[tuple[str, list[str]]]:
    """Yield the place (file and line, for error messages) and the fields of each line that is not blank.

    Args:
        path: A UTF-8 file. Its fields are separated by tabs, or by commas in a ``.csv`` file. ``.gz`` is
            decompressed. A first line of usual column names, such as ``query-id``, is a header and left out.
        widths: The allowed numbers of fields.
        number: Index of the field that must be a number.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: For a line with another number of fields, or without the number.
    """
    for row, (place, fields) in enumerate(read_rows(path)):
        is_header = row == 0 and all(_COLUMN.fullmatch(each.strip()) for each in fields)
        if is_header or not any(map(str.strip, fields)):
            continue
        if len(fields) not in widths:
            wanted = " or ".join(map(str, widths))
            raise ValueError(
                f"{place}: expected {wanted} fields separated by tabs (by commas in a .csv file), "
                f"got {len(fields)}."
            )
        if number is not None:
            try:
                round(float(fields[number]))  # which NaN and infinity are not
            except (ValueError, OverflowError):
                raise ValueError(f"{place}: expected a number such as 1, got {fields[number]!r}.") from None
        yield place, fields


def read_rows(path: str | Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the place (file and line, for error messages) and the cells of each row, also of blank ones.

    Each cell is text exactly as written: ``NA`` and ``007`` are not changed.

    Args:
        path: The file, gzipped if its name ends in ``.gz``. A ``.csv`` file has commas between its cells or,
            without a comma in its first line, semicolons, tabs or bars. Its cells may be in quotation marks.
            All other files have tabs, and quotation marks are ordinary characters.

    Raises:
        ValueError: If the file is not UTF-8, or quotation marks in a csv file are not closed.
    """
    lines, number = decode_lines(Path(path)), 0
    if is_csv := _format_of(path) == "csv":
        csv.field_size_limit(2**31 - 1)  # documents are longer than its default of 131,072 characters
        first = next(lines, "")
        unquoted = "".join(first.split('"')[::2])
        delimiter = next((each for each in ",;\t|" if each in unquoted), ",")
        rows: Iterable[list[str]] = csv.reader(chain([first], lines), delimiter=delimiter, strict=True)
    else:
        rows = (line.rstrip("\r\n").split("\t") for line in lines)
    try:
        for number, row in enumerate(rows, start=1):
            yield f"{path}, {'row' if is_csv else 'line'} {number}", row
    except csv.Error as error:
        raise ValueError(
            f"{path}, row {number + 1}: {error}. A cell that contains a quotation mark must be in quotation "
            "marks, and each mark in it must be doubled."
        ) from error


def stem_of(path: str | Path) -> str:
    """Return the name of a file or folder without endings such as ``.tsv.gz``."""
    return re.sub(r"(\.tsv|\.txt|\.csv)?(\.gz)?$", "", Path(path).resolve().name)


def is_path(name: str | Path) -> bool:
    """Return whether a name can only be a path.

    Names on the Hub have at most one slash and no suffix of a text file.
    """
    text = str(name).lower()
    return (
        text.startswith((".", "/", "~"))
        or text.count("/") > 1
        or text.endswith((*_FORMATS, *_PLAIN, *_CONVERTED, ".gz"))
    )


def as_dataset(texts: Dataset | Iterable[str], *columns: str) -> Dataset:
    """Return texts as a dataset, in a column that is called ``columns[0]``.

    Args:
        texts: A list, or a dataset with one of ``columns``. The first of them is taken, and further columns
            are kept.
        columns: Usual names of the column.
    """
    if not isinstance(texts, Dataset):
        return Dataset.from_dict({columns[0]: list_texts(texts)})
    found = [name for name in columns if name in texts.column_names]
    if not found:
        raise ValueError(
            f"The dataset has no column {' or '.join(columns)}, only {', '.join(texts.column_names)}."
        )
    rows = texts if found[0] == columns[0] else texts.rename_column(found[0], columns[0])
    # Strings, not numpy's or another library's. A transform stays.
    return rows if rows.format["type"] == "custom" else rows.with_format(None)


def cached_map(
    rows: Dataset, function: Callable[..., Any], *, name: str, key: Any, **options: Any
) -> Dataset:
    """Run ``rows.map(function, batched=True, **options)`` with a cache file, also for rows in memory.

    ``Dataset.map`` alone caches only rows that were read from a cache file, and does not notice a new version
    of this package.

    Args:
        rows: The rows.
        function: Function of a batch.
        name: Beginning of the file's name, and description of the progress bar.
        key: Everything that the result depends on, apart from the rows and the function. It must be possible
            to pickle it.
        options: Further arguments of ``Dataset.map``.
    """
    fingerprint = Hasher.hash([__version__, host.fingerprint(rows), function, key])
    folder = _cache_folder() / "sbert_plugins"
    folder.mkdir(exist_ok=True)
    return rows.map(
        function,
        batched=True,
        new_fingerprint=fingerprint,
        cache_file_name=str(folder / f"{name}-{fingerprint}.arrow"),
        desc=name,
        **options,
    ).with_format(None)


def _cache_folder() -> Path:
    """Return the cache of ``datasets``, or raise ``OSError`` if it cannot be written."""
    folder = Path(datasets.config.HF_DATASETS_CACHE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OSError(
            f"The cache {folder} cannot be written: {error}. Set HF_DATASETS_CACHE to another folder."
        ) from error
    return folder


def expand_rows(
    rows: Dataset,
    function: Callable[..., Any],
    *,
    name: str,
    arguments: dict[str, Any],
    wanted: str,
    advice: str,
    num_proc: int | None = None,
) -> Dataset:
    """Make any number of new rows from each row, and log how many rows gave none.

    Args:
        rows: The rows.
        function: Function of a batch, its indices and ``arguments``. It returns a column :data:`INDEX` with
            the index of the row from which each new row was made.
        name: As in :func:`cached_map`.
        arguments: Keyword arguments of the function.
        wanted: Name of the thing that rows without a new row lack, for the messages.
        advice: What to do if all rows lack it, for the error.
        num_proc: Number of processes.

    Raises:
        ValueError: If there are no new rows.
    """
    made = cached_map(
        rows,
        function,
        name=name,
        key=arguments,
        fn_kwargs=arguments,
        with_indices=True,
        remove_columns=rows.column_names,
        num_proc=num_proc,
    )
    if not len(made):
        raise ValueError(f"None of the {len(rows):,} texts has {wanted}. {advice}")
    if without := len(rows) - len(made.unique(INDEX)):
        logger.warning("Left out %s of %s texts without %s.", f"{without:,}", f"{len(rows):,}", wanted)
    return made.remove_columns(INDEX)


def _first(rows: Dataset, limit: int | None) -> Dataset:
    return rows if limit is None else rows.select(range(min(limit, len(rows))))


def load_table(source: str | Path, configuration: str | None = None) -> Dataset:
    """Load a text with all of its columns, in the formats of :func:`read_sentences`.

    A plain text file has the column ``text``, with one row per line.

    Args:
        source: As in :func:`read_sentences`.
        configuration: Configuration of a dataset on the Hub, if it has that one.

    Raises:
        FileNotFoundError: As :func:`read_sentences`.
        ValueError: If a file is empty or not UTF-8.
    """
    path, name = Path(source), str(source)
    _cache_folder()
    if path.is_file():
        return _load_file(path)
    if not name.strip() or (is_path(name) and not path.exists()):
        raise FileNotFoundError(f"There is no file {name!r}.")
    try:
        known = datasets.get_dataset_config_names(name) if configuration else []
        return load_dataset(name, configuration if configuration in known else None, split="train")
    except (FileNotFoundError, ConnectionError) as error:
        raise FileNotFoundError(
            f"{name} is not a file, and it could not be loaded from the Hugging Face Hub: {error}"
        ) from error


def _load_file(path: Path) -> Dataset:
    if path.suffix.lower() in (".zip", ".bz2", ".xz", ".zst", ".xlsx", ".xls", ".doc", ".epub"):
        raise ValueError(f"{path} has a format that is not read. Unpack it, or save it as .csv or .txt.")
    kind = _format_of(path)
    if kind in ("csv", "tsv"):
        header, *rows = _read_cells(path)
        if len({name.strip() for name in header}) < len(header):
            raise ValueError(f"{path} has two columns with the same name: {', '.join(header)}. Rename one.")
        return _dataset_of([name.strip() for name in header], rows)
    # Reading the lines raises with the line, unlike load_dataset.
    if kind != "parquet" and not deque(decode_lines(path), maxlen=1):
        raise ValueError(f"{path} contains no text.")
    return load_dataset(kind, data_files=glob.escape(str(path)), split="train")


def _dataset_of(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Dataset:
    # A column of the type "string" is limited to 2 GB.
    kinds: Any = dict.fromkeys(names, Value("large_string"))
    columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    return Dataset.from_dict(columns, features=Features(kinds))


def _format_of(source: str | Path) -> str:
    return _FORMATS.get(Path(str(source).lower().removesuffix(".gz")).suffix, "text")


def decode_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file. Raise ``ValueError`` with the line if one is not UTF-8."""
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}, line {number}: the text is not UTF-8 (byte 0x{line[error.start]:02x}). Save "
                    "the file as UTF-8, or correct this line."
                ) from None
