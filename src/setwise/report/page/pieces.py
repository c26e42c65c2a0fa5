"""What pages are made of, all of it to be had here. Text is escaped; pictures become part of it.

paragraph, subheading, command, table, gallery, trio, steps   in this file
curves, bars, dots                                            drawn as SVG, in the page's colours
page, Section                                                 the frame around them
element, joined                                               markup of any other kind
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from setwise.report.page.charts import Points, bars, curves, dots
from setwise.report.page.frame import Section, page
from setwise.report.page.html import EMPTY, Html, element, joined

__all__ = [
    "EMPTY",
    "Html",
    "Points",
    "Section",
    "bars",
    "command",
    "curves",
    "dots",
    "element",
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


def paragraph(*content: str) -> Html:
    """Text and markup in a row."""
    return element("p", *content)


def subheading(text: str, level: int = 3) -> Html:
    """A heading within a section, which is of level 2; those below it have the next level."""
    return element(f"h{level}", text)


def command(text: str, said: str = "") -> Html:
    """A command to copy, and what it does if that is not plain from where it stands."""
    before = element("p", said, class_="before-command") if said else EMPTY
    code = element("pre", element("code", text))
    return joined([before, code])


def table(
    caption: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    cards: bool = False,
) -> Html:
    """A table whose first column names its rows. Cells are text or markup.

    Where a screen is too narrow the table can be scrolled, with the keys too; with ``cards``, for
    few columns with much in them, each row becomes a card instead.
    """
    wrong = [row for row in rows if len(row) != len(header)]
    if wrong:
        raise ValueError(f"{caption}: expected {len(header)} cells in a row, got {wrong[0]!r}")
    # Roles are said outright: as cards, the parts are no longer laid out as a table.
    head = [element("th", name, scope="col", role="columnheader") for name in header]
    body = [_row(header, row) for row in rows]
    whole = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *head, role="row"), role="rowgroup"),
        element("tbody", *body, role="rowgroup"),
        role="table",
        class_="cards" if cards else None,
    )
    return element("div", whole, class_="scroll")


def gallery(figures: Sequence[Html]) -> Html:
    """Figures side by side, as many as there is room for."""
    return element("div", *figures, class_="gallery")


def trio(caption: str, names: Sequence[str], rows: Sequence[Sequence[tuple[bytes, str]]]) -> Html:
    """Rows of three pictures to compare, under three names; each comes with its ``alt`` text."""
    cells = [element("span", name, aria_hidden="true") for name in names]
    cells += [element("img", src=_embedded(data), alt=alt) for row in rows for data, alt in row]
    grid = element("div", *cells, class_="trio")
    return element("figure", element("figcaption", caption), grid)


def steps(name: str, pictures: Sequence[bytes], captions: Sequence[str]) -> Html:
    """Pictures of which one is seen at a time, with a slider and buttons to go through them.

    Where scripts do not run, all of them are seen.
    """
    if len(pictures) != len(captions) or not pictures:
        raise ValueError(
            f"steps: expected as many captions as pictures, and some; got {len(pictures)} pictures "
            f"and {len(captions)} captions"
        )
    frames = [
        element(
            "li",
            element("img", src=_embedded(data), alt=f"{name}, {caption}"),
            element("p", caption),
        )
        for data, caption in zip(pictures, captions, strict=True)
    ]
    slider = element(
        "input",
        type="range",
        min="0",
        max=str(len(pictures) - 1),
        value="0",
        step="1",
        autocomplete="off",
        aria_valuetext=captions[0],
    )
    controls = element(
        "div",
        element("label", element("span", f"Step of {name}", class_="unseen"), slider),
        element("button", "◀", type="button", class_="previous", aria_label="Previous step"),
        element("button", "Play", type="button", class_="play"),
        element("button", "▶", type="button", class_="next", aria_label="Next step"),
        # Read out as one, the caption too, whichever way a step was chosen.
        element(
            "div",
            element("output", f"0 of {len(pictures) - 1}", aria_live="off"),
            element("span", captions[0], class_="unseen"),
            class_="status",
            role="status",
        ),
        class_="controls",
        hidden=True,
    )
    return element(
        "figure",
        element("figcaption", name),
        element("ol", *frames),
        controls,
        class_="steps",
        role="group",
        aria_label=name,
    )


def _row(header: Sequence[str], row: Sequence[str]) -> Html:
    first, *rest = row
    cells = [element("th", first, scope="row", role="rowheader")]
    cells += [
        element("td", content, role="cell", data_label=name)
        for name, content in zip(header[1:], rest, strict=True)
    ]
    return element("tr", *cells, role="row")


def _embedded(data: bytes) -> str:
    for magic, kind in _KINDS.items():
        if data.startswith(magic):
            return f"data:{kind};base64,{base64.b64encode(data).decode()}"
    raise ValueError(f"picture: expected a PNG or JPEG, got bytes that begin {data[:8]!r}")
