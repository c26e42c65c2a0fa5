"""Tables and numbers as the documents write them, and the blocks that they stand in."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence


def with_blocks(text: str, document: str, blocks: Mapping[str, str]) -> str:
    """The text of a document with what is between its pairs of markers replaced, all of it.

    >>> with_blocks("<!-- x: begin -->\\nold<!-- x: end -->\\n", "page.md", {"x": "new\\n"})
    '<!-- x: begin -->\\n\\nnew\\n\\n<!-- x: end -->\\n'
    """
    marked = re.findall(r"^<!-- ([\w-]+): begin -->$", text, re.MULTILINE)
    if sorted(marked) != sorted(blocks):
        raise ValueError(f"{document}: has blocks {sorted(marked)}, not {sorted(blocks)}")
    for name, block in blocks.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
        if text.count(end) != 1:
            raise ValueError(f"{document}: expected one marker {end.strip()}")
        before, rest = text.split(begin)
        _, after = rest.split(end)
        text = f"{before}{begin}\n{block}\n{end}{after}"
    return text


def markdown(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table."""
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
