"""What pages are made of, all of it to be had here. Text is escaped; pictures become part of it.

paragraph, subheading, command, table, gallery, trio, steps   in this file
curves, bars                                                  drawn by matplotlib
page, Section                                                 the frame around them
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from markupsafe import Markup

from setwise.report.curves import Curve, Points
from setwise.report.page.charts import bars, curves
from setwise.report.page.frame import Section, page
from setwise.report.page.markup import joined, piece

__all__ = [
    "Curve",
    "Markup",
    "Points",
    "Section",
    "bars",
    "command",
    "curves",
    "gallery",
    "joined",
    "page",
    "paragraph",
    "steps",
    "subheading",
    "table",
    "trio",
]

_KINDS = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg"}


def paragraph(content: str, kind: str | None = None) -> Markup:
    """Text or markup in a row; a ``kind`` is a class of the style, such as note."""
    return piece("paragraph", content, kind)


def subheading(text: str, level: int = 3) -> Markup:
    """A heading within a section, which is of level 2; those below it have the next level."""
    return piece("subheading", text, level)


def command(text: str, said: str = "") -> Markup:
    """A command to copy, and what it does if that is not plain from where it stands."""
    return piece("command", text, said)


def table(
    caption: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    cards: bool = False,
) -> Markup:
    """A table whose first column names its rows. Cells are text or markup.

    Where a screen is too narrow the table can be scrolled, with the keys too; with ``cards``, for
    few columns with much in them, each row becomes a card instead.
    """
    wrong = [row for row in rows if len(row) != len(header)]
    if wrong:
        raise ValueError(f"{caption}: expected {len(header)} cells in a row, got {wrong[0]!r}")
    return piece("table", caption, header, rows, cards)


def gallery(figures: Sequence[Markup]) -> Markup:
    """Figures side by side, as many as there is room for."""
    return piece("gallery", figures)


def trio(caption: str, names: Sequence[str], rows: Sequence[Sequence[tuple[bytes, str]]]) -> Markup:
    """Rows of three pictures to compare, under three names; each comes with its ``alt`` text."""
    embedded = [[(_embedded(data), alt) for data, alt in row] for row in rows]
    return piece("trio", caption, names, embedded)


def steps(name: str, pictures: Sequence[bytes], captions: Sequence[str]) -> Markup:
    """Pictures of which one is seen at a time, with a slider and buttons to go through them.

    Where scripts do not run, all of them are seen.
    """
    if len(pictures) != len(captions) or not pictures:
        raise ValueError(
            f"steps: expected as many captions as pictures, and some; got {len(pictures)} pictures "
            f"and {len(captions)} captions"
        )
    return piece("steps", name, [_embedded(picture) for picture in pictures], captions)


def _embedded(data: bytes) -> str:
    for magic, kind in _KINDS.items():
        if data.startswith(magic):
            return f"data:{kind};base64,{base64.b64encode(data).decode()}"
    raise ValueError(f"picture: expected a PNG or JPEG, got bytes that begin {data[:8]!r}")
