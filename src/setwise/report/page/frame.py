"""The frame of a page: head, contents, sections, and the style and script that it carries along.

A policy in the head forbids everything but the style and the script that were put here, and
pictures that are part of the page: should a text ever come through as markup, it cannot run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from setwise.report.page.html import Html, element, joined


@dataclass(frozen=True)
class Section:
    """A part of a page, with a place in its contents."""

    anchor: str  # the name in links to it: #anchor
    heading: str
    body: Html
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
    head = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", style),
    ]
    body = [
        element("a", "Skip to the content", href="#content", class_="skip"),
        element("header", element("h1", title), element("p", introduction)),
        element("nav", _contents(sections), aria_label="Contents"),
        element("main", *map(_section, sections), id="content"),
        element("script", script),
    ]
    root = element("html", element("head", *head), element("body", *body), lang="en")
    return f"<!doctype html>\n{root}\n"


def _section(section: Section) -> Html:
    heading = f"{section.anchor}-heading"
    return element(
        "section",
        element("h2", section.heading, id=heading),
        section.body,
        id=section.anchor,
        aria_labelledby=heading,
    )


def _contents(sections: Sequence[Section]) -> Html:
    links = [
        element("li", element("a", section.short or section.heading, href=f"#{section.anchor}"))
        for section in sections
    ]
    return element("ul", joined(links))


def _own(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
