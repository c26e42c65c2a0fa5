"""Markup that cannot be broken by what it shows.

Text is escaped where it enters an element, unless it is `Html` already; and whatever is done to
`Html` as a string, by adding or formatting, makes it text again, which is escaped in turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

# They have no content: those of HTML have no end either, those of SVG have to say it.
_VOID = ("br", "col", "img", "input", "meta")
_SHAPES = ("circle", "line", "path", "rect")
# Between the tags of these, text is not markup: no escape helps, and the end must not occur.
_RAW = ("script", "style")


class Html(str):
    """Markup, as opposed to text."""

    __slots__ = ()


EMPTY = Html("")


def element(tag: str, *content: str, **attributes: str | float | bool | None) -> Html:
    """An element of text and markup.

    Attributes are named as in Python: ``class_`` for class, ``aria_label`` for aria-label. True
    gives an attribute without a value; False and None give none.

    >>> element("p", "1 < 2 ", element("b", "& so on"), class_="note", hidden=True, title=None)
    '<p class="note" hidden>1 &lt; 2 <b>&amp; so on</b></p>'
    """
    written = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID or tag in _SHAPES:
        if content:
            raise ValueError(f"{tag}: has no content, got {content!r}")
        return Html(f"<{tag}{written}>" if tag in _VOID else f"<{tag}{written}/>")
    if tag in _RAW:
        text = "".join(content)
        if f"</{tag}" in text.lower():
            raise ValueError(f"{tag}: its content must not contain </{tag}")
        return Html(f"<{tag}{written}>{text}</{tag}>")
    return Html(f"<{tag}{written}>{joined(content)}</{tag}>")


def joined(parts: Iterable[str], between: str = "") -> Html:
    """Parts one after the other; those that are text are escaped.

    >>> joined(["a&b", element("br"), "c"])
    'a&amp;b<br>c'
    """
    return Html(_safe(between).join(_safe(part) for part in parts))


def _safe(part: str) -> str:
    return str(part) if isinstance(part, Html) else escape(str(part))


def _attribute(name: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{escape(f"{value:g}" if isinstance(value, float) else str(value))}"'
