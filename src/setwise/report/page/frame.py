"""The frame of a page: head, contents, sections, and the style and script that it carries along.

A policy in the head forbids everything but the style and the script that were put here, and
pictures that are part of the page: should a text ever come through as markup, it cannot run.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from markupsafe import Markup

from setwise.files import require_regular
from setwise.report.page.markup import render


@dataclass(frozen=True)
class Section:
    """A part of a page, with a place in its contents."""

    anchor: str  # the name in links to it: #anchor
    heading: str
    body: Markup
    # What the contents call it; the heading, if nothing else is said.
    short: str = ""


def page(title: str, introduction: str, sections: Sequence[Section]) -> str:
    """The text of an HTML file."""
    anchors = [section.anchor for section in sections]
    if len(set(anchors)) < len(anchors):
        raise ValueError(f"sections: anchors must differ, got {', '.join(anchors)}")
    style, script = _own("style.css"), _own("page.js")
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; "
        f"script-src '{_digest(script)}'; base-uri 'none'; form-action 'none'"
    )
    return render(
        "page.html.j2",
        title=title,
        introduction=introduction,
        sections=sections,
        policy=policy,
        style=style,
        script=script,
    )


def require_page(path: Path) -> None:
    """Refuse to write over a file that is no page of ours; a free place is fine."""
    if not os.path.lexists(path):
        return
    require_regular(path)
    beginning = page("", "", []).partition("sha256-")[0].encode()
    with path.open("rb") as file:
        if file.read(len(beginning)) != beginning:
            raise ValueError(
                f"{path}: is there already and is no page of setwise; choose another name, or "
                f"remove it"
            )


def _own(name: str) -> Markup:
    return Markup(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
