"""Docstrings as Markdown for the reference: they are written in the manner of PyTorch's own."""

from __future__ import annotations

import re
import textwrap
from typing import Any

from griffe import Extension, Object

_FORMULA = re.compile(r"^\.\. math:: (.+)$", re.MULTILINE)
_ROLE = re.compile(r":(?:func|class|meth|mod):`~?([^`]+)`")
_LITERAL = re.compile(r"``([^`]+)``")
_BLOCK = re.compile(r"^(\S.*)::\n\n((?:(?: .*)?(?:\n|\Z))+?)(?=\S|\Z)", re.MULTILINE)
_DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
_CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`|^\$\$.*?^\$\$)", re.MULTILINE | re.DOTALL)


class Markdown(Extension):
    """Formulas, roles and blocks of reStructuredText in the words of Markdown."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called for everything that has been read."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """The same text, marked up otherwise.

    >>> as_markdown("See :func:`setwise.hausdorff` for ``x`` [*, N].")
    'See `setwise.hausdorff` for `x` [\\\\*, N].'
    """
    text = _FORMULA.sub(lambda found: f"$$\n{found[1]}\n$$", text)
    text = _LITERAL.sub(r"`\1`", _ROLE.sub(r"`\1`", text))
    text = _DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
    text = _BLOCK.sub(lambda found: f"{found[1]}:\n\n```python\n{_dedent(found[2])}\n```\n\n", text)
    # Shapes such as [*, N, F] are no emphasis.
    parts = _CODE.split(text)
    return "".join(part if _CODE.match(part) else part.replace("*", r"\*") for part in parts)


def _dedent(block: str) -> str:
    return textwrap.dedent(block).strip("\n")
