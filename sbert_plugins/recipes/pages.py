"""What pages of HTML are made of: one skeleton, tables of text, plots that are part of the file."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from importlib.metadata import version
from string import Template
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PACKAGES = ("sbert-plugins", "sentence-transformers", "transformers", "torch")


def page(title: str, body: str) -> str:
    """Return a whole page, which needs no other file; date and versions stand at its end."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    footer = f"{datetime.now(UTC).date().isoformat()}; {versions}"
    return filled(__package__, "page.html", title=html.escape(title), body=body, footer=footer)


def filled(package: str, file: str, **values: str) -> str:
    """Return a template of a package with its places filled."""
    return Template(resources.files(package).joinpath(file).read_text(encoding="utf-8")).substitute(values)


def table_rows(rows: Sequence[Sequence[str]], *, marks: Sequence[Sequence[str]] = ()) -> str:
    """Return rows of HTML: the first is the heading, the first cell of each names it.

    Args:
        rows: Texts, which are escaped.
        marks: The class of each cell that is not a name, by row without the heading; none where empty.
    """
    lines = ["<tr>" + "".join(f"<th>{html.escape(cell)}</th>" for cell in rows[0]) + "</tr>"]
    for place, row in enumerate(rows[1:]):
        classes = marks[place] if marks else [""] * (len(row) - 1)
        cells = "".join(
            f'<td class="{mark}">{html.escape(cell)}</td>' if mark else f"<td>{html.escape(cell)}</td>"
            for cell, mark in zip(row[1:], classes, strict=True)
        )
        lines.append(f"<tr><th>{html.escape(row[0])}</th>{cells}</tr>")
    return "\n".join(lines)


def figure_section(stem: str, title: str, caption: str, figure: Figure, image: bytes) -> str:
    """Return a section with a plot in it."""
    width = round(100 * figure.get_figwidth())
    source = f"data:image/png;base64,{base64.b64encode(image).decode()}"
    title, caption = html.escape(title), html.escape(caption)
    shown = f'<img alt="{title}" width="{width}" src="{source}">'
    return f'<section id="{stem}">\n<h2>{title}</h2>\n{shown}\n<p>{caption}</p>\n</section>'


def png(figure: Figure) -> bytes:
    """Draw a figure.

    Raises:
        ValueError: If one of its plots is empty.
    """
    empty = [axes.get_title("left") for axes in figure.axes if not axes.has_data() and not axes.texts]
    if empty:
        raise ValueError(f"a plot has nothing to show: {empty}.")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def drawing() -> ModuleType:
    """Return the module that draws.

    Raises:
        ModuleNotFoundError: Without matplotlib, which is an extra of this package.
    """
    try:
        from . import plots as module
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        raise ModuleNotFoundError(
            'matplotlib is not installed: pip install "sbert-plugins[plot]" (or pip install matplotlib).'
        ) from None
    return module
