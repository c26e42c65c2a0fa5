"""Terms as logic programs write them: ``predicate(argument, ...)``, to text and back.

A name stands plainly, ``french_guiana`` or ``guinea-bissau``, or in quotes, ``'New York'``, where a
quote is written twice. A plain name that starts with a capital or an underscore is a variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple

_PLAIN = r"\w[\w-]*"
_NAME = rf"(?:'(?:[^'\\]|''|\\['\\])+'|{_PLAIN})"
_TERM = re.compile(rf"\s*({_NAME})\s*\(\s*({_NAME}(?:\s*,\s*{_NAME})*)\s*\)\s*")


class Term(NamedTuple):
    """A predicate's name and its arguments, these as they were written: quotes still on."""

    predicate: str
    arguments: tuple[str, ...]


def scan_term(text: str, start: int = 0) -> tuple[Term, int]:
    """The term that begins at ``start``, and where the text goes on after it.

    >>> scan_term("likes(ann, X), likes(X, bob)")
    (Term(predicate='likes', arguments=('ann', 'X')), 13)
    """
    found = _TERM.match(text, start)
    if found is None:
        where = f" where it goes on with {text[start:].strip()!r}" if start else ""
        raise ValueError(f"expected predicate(argument, ...){where}")
    predicate, arguments = found.groups()
    return Term(constant(predicate), tuple(re.findall(_NAME, arguments))), found.end()


def read_term(text: str) -> Term:
    """A text that is one term, with or without a full stop."""
    if not isinstance(text, str):
        raise TypeError(f"expected a text predicate(argument, ...), got {type(text).__name__}")
    try:
        term, end = scan_term(text)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
    if text[end:].strip() not in ("", "."):
        raise ValueError(f"{text!r}: expected nothing after the term, got {text[end:].strip()!r}")
    return term


def is_variable(token: str) -> bool:
    """Whether a token is the name of a variable."""
    return re.fullmatch(_PLAIN, token) is not None and (token[0].isupper() or token[0] == "_")


def constant(token: str) -> str:
    """The name that a token stands for, without its quotes; a variable is an error.

    >>> constant("'cote d''ivoire'")
    "cote d'ivoire"
    """
    if token.startswith("'"):
        return re.sub(r"''|\\(.)", lambda escape: escape[1] or "'", token[1:-1])
    if is_variable(token):
        raise ValueError(f"{token} is a variable, a name is expected: write '{token}' in quotes")
    return token


def write_term(predicate: str, names: Iterable[str]) -> str:
    """The text of a term without variables, quotes where they are needed.

    >>> write_term("neighbor", ["mali", "cote d'ivoire"])
    "neighbor(mali,'cote d''ivoire')"
    """
    return f"{quoted(predicate)}({','.join(map(quoted, names))})"


def quoted(name: str) -> str:
    """A name as a term holds it."""
    if re.fullmatch(_PLAIN, name) and not is_variable(name):
        return name
    return "'" + name.replace("\\", "\\\\").replace("'", "''") + "'"


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known: those that look like it, if any do.

    >>> "unknown: 'germny'" + suggestion("germny", ["germany", "france"])
    "unknown: 'germny'; did you mean 'germany'?"
    """
    close = get_close_matches(name, list(known), n=3)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
