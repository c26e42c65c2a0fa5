"""Tables and numbers as the documents write them."""

from __future__ import annotations

import math
import textwrap


def markdown(titles: list[str], lines: list[list[str]]) -> list[str]:
    rows = [titles, ["---"] * len(titles), *lines]
    return [f"| {' | '.join(row)} |" for row in rows]


def wrapped(text: str) -> str:
    """A paragraph in lines of at most 100 characters."""
    return textwrap.fill(text, 100, break_on_hyphens=False) + "\n"


def number(value: float | None) -> str:
    """Three digits, written without an exponent."""
    if value is None:
        return ""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


def share(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1%}"


def ratio(value: float) -> str:
    return f"{value:.1f}x" if value >= 1 else f"{value:.2f}x"
