"""The markup of pages, in templates of Jinja that escape all text.

What a piece returns is markup: put into another it stays as it is, while any other text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("setwise.report.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def piece(name: str, *arguments: Any, **options: Any) -> Markup:
    """One of the macros in ``pieces.html.j2``."""
    return Markup(getattr(_pieces(), name)(*arguments, **options))


def render(name: str, **values: Any) -> str:
    """A whole template."""
    return _environment().get_template(name).render(**values)


def joined(parts: Iterable[str], between: str = "") -> Markup:
    """Parts one after the other; those that are text are escaped.

    >>> joined(["a&b", Markup("<br>"), "c"])
    Markup('a&amp;b<br>c')
    """
    return Markup(between).join(parts)


@cache
def _pieces() -> Any:
    return _environment().get_template("pieces.html.j2").module
