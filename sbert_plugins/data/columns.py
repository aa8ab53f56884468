"""Which columns of a text are read. One function decides it, and one sentence reports it."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow.compute
from datasets import Dataset, Features, Value

logger = logging.getLogger(__name__)
#: The names under which a table may have a column. For other columns only their own name counts.
USUAL_NAMES = {
    "anchor": ("anchor", "text", "sentence", "document"),
    "positive": ("positive", "paraphrase"),
    "paraphrase": ("paraphrase", "positive"),
    "document": ("document", "text", "anchor"),
}
LABELS = ("label", "labels", "score", "scores")  # sentence-transformers reads them as labels
_NOUNS = {"document": "documents", "positive": "pairs", "paraphrase": "pairs", "negative": "triplets"}


@dataclass(frozen=True)
class Origin:
    """The origin of the columns of a dataset. It is kept as the description in the dataset's info."""

    columns: dict[str, str]
    not_read: list[str]
    blank: int


def read_columns(
    texts: Dataset | Iterable[str],
    roles: Sequence[str],
    *,
    optional: Sequence[str] = (),
    labels: bool = False,
    columns: str | Sequence[str] | None = None,
    source: str = "The dataset",
) -> Dataset:
    """Choose the columns that are read, rename them to their roles, and drop rows with a blank text.

    A column is a further text or a label only by its documented name, or if it is asked for. So an id or a
    category never becomes a positive.

    Args:
        texts: A list of texts, or a dataset.
        roles: Names of the text columns in the result. The first is found under its usual names, or as the
            only column of strings. The others are found under their usual names.
        optional: Roles that are read if the table has them under a usual name.
        labels: Whether to keep the label column.
        columns: Names in ``texts`` for ``roles`` and ``optional``, in this order, instead of the usual ones.
        source: Name of the text, for messages.

    Returns:
        The rows, without leading and trailing white space. :func:`describe_texts` describes them.

    Raises:
        ValueError: If a column does not exist or does not hold strings, if a text of a list is not a string,
            or if no text is left.

    Example:
        >>> rows = read_columns(Dataset.from_dict({"id": ["1"], "text": [" It rains. "]}), ["anchor"])
        >>> rows[0]
        {'anchor': 'It rains.'}
        >>> describe_texts(rows)
        'text: column "text", 1 sentence, 0 blank, 0 duplicates; other columns not read: id'
    """
    if not isinstance(texts, Dataset):
        features: Any = {roles[0]: Value("large_string")}  # also of an empty list
        texts = Dataset.from_dict({roles[0]: list_texts(texts)}, features=Features(features))
    if texts.format["type"] == "custom":  # a transform makes the cells later
        given = Dataset.from_list([texts[0]])
        read = _choose(given, roles, optional, columns, source).values()
        if not [*read] == texts.column_names == given.column_names:
            raise ValueError(
                f"{source} has a transform that turns the columns {', '.join(texts.column_names)} into "
                f"{', '.join(given.column_names)}, and {', '.join(read)} would be read. A transform must "
                "keep exactly the columns that are read. Use Dataset.map instead."
            )
        return texts
    rows, origin = select_columns(
        texts, roles, optional=optional, labels=labels, columns=columns, source=source
    )
    count = len(rows)
    rows = rows.map(
        _strip_rows,
        batched=True,
        fn_kwargs={"columns": list(origin.columns)},
        features=rows.features,
        desc="Reading",
    )
    if not len(rows):
        raise ValueError(f"{source} contains no text.")
    if blank := count - len(rows):
        logger.warning("%s: dropped %s blank rows.", source, f"{blank:,}")
    texts_of = (rows.data.column(name) for name in origin.columns)
    if any(pyarrow.compute.any(pyarrow.compute.match_substring(cells, "\0")).as_py() for cells in texts_of):
        logger.warning("%s contains NUL characters, which are kept. Is its encoding UTF-16?", source)
    return describe_origin(rows, replace(origin, blank=origin.blank + blank))


def select_columns(
    rows: Dataset,
    roles: Sequence[str],
    *,
    optional: Sequence[str] = (),
    labels: bool = False,
    columns: str | Sequence[str] | None = None,
    source: str = "The dataset",
) -> tuple[Dataset, Origin]:
    """Choose and rename the columns as :func:`read_columns` does, with all rows as they are."""
    earlier = _origin_of(rows) or Origin({}, [], 0)
    chosen = _choose(rows, roles, optional, columns, source)
    # sentence-transformers reads the first of these names, and any other as a text.
    kept = [name for name in LABELS if labels and name in {*rows.column_names} - {*chosen.values()}][:1]
    left_out = [name for name in rows.column_names if name not in (*chosen.values(), *kept)]
    rows = rows.with_format(None).select_columns([*chosen.values(), *kept])
    if renamed := {name: role for role, name in chosen.items() if name != role}:
        rows = rows.rename_columns(renamed)
    names = {role: earlier.columns.get(name, name) for role, name in chosen.items()}
    return rows, Origin(names, [*earlier.not_read, *left_out], earlier.blank)


def describe_origin(rows: Dataset, origin: Origin) -> Dataset:
    """Keep the origin of the columns with a dataset, for :func:`describe_texts`."""
    rows.info.description = json.dumps({"sbert_plugins": asdict(origin)})
    return rows


def describe_texts(rows: Dataset) -> str:
    """Return the sentence that reports which columns of a text were read, and how many rows it has.

    Args:
        rows: From :func:`read_columns`, or any dataset of texts.
    """
    origin = _origin_of(rows) or Origin({name: name for name in rows.column_names}, [], 0)
    names = [
        f'"{name}"' + (f" ({role})" if len(origin.columns) > 1 else "")
        for role, name in origin.columns.items()
    ] + [f'"{name}" (label)' for name in LABELS if name in rows.column_names]
    noun = ["sentences", *(_NOUNS[role] for role in rows.column_names if role in _NOUNS)][-1]
    duplicates = len(rows) - len(set(rows[rows.column_names[0]]))
    parts = [
        f"column{'s' if len(names) > 1 else ''} {', '.join(names)}",
        f"{len(rows):,} {noun if len(rows) != 1 else noun[:-1]}",
        f"{origin.blank:,} blank",
        f"{duplicates:,} duplicate{'s' if duplicates != 1 else ''}",
    ]
    not_read = f"; other columns not read: {', '.join(origin.not_read)}" if origin.not_read else ""
    return f"text: {', '.join(parts)}{not_read}"


def check_texts(texts: Iterable[str]) -> None:
    """Raise ``ValueError`` for anything but a list of strings.

    The letters of a string, or the names in a table, would otherwise be taken for texts.
    """
    if isinstance(texts, str | Mapping) or hasattr(texts, "columns") or not isinstance(texts, Iterable):
        raise ValueError(
            f"Texts must be a list of strings or a column of a dataset, not a {type(texts).__name__}. "
            "Example: dataset['train']['text']."
        )


def list_texts(texts: Iterable[str]) -> list[str]:
    """Return texts as a list.

    Raises:
        ValueError: For anything but strings, with the row.
    """
    check_texts(texts)
    listed = list(texts)
    row = next((row for row, text in enumerate(listed) if not isinstance(text, str)), None)
    if row is not None:
        raise ValueError(f"Texts must be strings, got {listed[row]!r} in row {row}. Remove or convert it.")
    return listed


def _origin_of(rows: Dataset) -> Origin | None:
    try:
        return Origin(**json.loads(rows.info.description)["sbert_plugins"])
    except (TypeError, ValueError, KeyError):  # the description of a dataset of somebody else
        return None


def _choose(
    rows: Dataset,
    roles: Sequence[str],
    optional: Sequence[str],
    columns: str | Sequence[str] | None,
    source: str,
) -> dict[str, str]:
    """Return the name of the column for each role."""
    strings = [
        name for name, kind in rows.features.items() if kind in (Value("string"), Value("large_string"))
    ]
    wanted = [*roles, *optional]
    asked = [columns] if isinstance(columns, str) else list(columns or ())
    if len(asked) > len(wanted):
        raise ValueError(
            f"Only {', '.join(wanted)} can be read, got {len(asked)} columns: {', '.join(asked)}."
        )
    chosen = dict(zip(wanted, asked, strict=False))
    for role in wanted[len(asked) :]:
        names = USUAL_NAMES.get(role, (role,))
        found = [name for name in names if name in strings and name not in chosen.values()]
        if not found and role == wanted[0] and len(strings) == 1:
            found = strings
        if found or role in roles:
            chosen[role] = [*found, *(name for name in names if name in rows.features), names[0]][0]
    if wrong := next((name for name in chosen.values() if name not in strings), None):
        kind = f" (it holds {rows.features[wrong]})" if wrong in rows.features else ""
        raise ValueError(
            f"{source} has no column of strings named {wrong!r}{kind}. Choose among its columns of strings "
            f"(columns=, --column): {', '.join(strings) or 'there are none'}."
        )
    return chosen


def _strip_rows(batch: dict[str, list[Any]], columns: Sequence[str]) -> dict[str, list[Any]]:
    """Strip white space and zero-width characters, and drop rows with a blank text.

    A title may be blank.
    """
    for name in columns:
        # The last character is the byte order mark.
        batch[name] = [
            (text or "").strip().strip("\u200b\u200c\u200d\u2060\ufeff").strip() for text in batch[name]
        ]
    texts = zip(*(batch[name] for name in columns if name != "title"), strict=True)
    kept = [row for row, each in enumerate(texts) if all(each)]
    return {name: [cells[row] for row in kept] for name, cells in batch.items()}
