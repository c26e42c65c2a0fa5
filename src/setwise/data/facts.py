"""Binary facts in text, one a line, in one of two formats; which one is found out.

Prolog: ``neighborOf(mali,'New York').``, with comments from ``%`` to the end of the line. Triples:
``mali<TAB>neighborOf<TAB>New York``, where a comment is a line that starts with ``#`` and holds no
tab. Blank lines may stand anywhere. Any other line is malformed, and all that are malformed are
reported together, so that nothing is ever passed over in silence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from setwise.data.terms import constant, scan_term

Fact = tuple[str, str, str]  # relation, first, second: in the order of relation(first,second)

_SHOWN = 20  # malformed lines in one message
_FORMATS = (
    "expected either Prolog facts only, relation(a,b)., or triples only, a<TAB>relation<TAB>b"
)


def read_facts(text: str, source: str = "the text") -> list[Fact]:
    """All facts, in the order of the text and as often as they are stated there.

    >>> read_facts("near(a,b).  % so they say")
    [('near', 'a', 'b')]
    >>> read_facts("a\\tnear\\tb")
    [('near', 'a', 'b')]
    """
    if not isinstance(text, str):
        raise TypeError(f"text: expected a str, got {type(text).__name__}")
    lines = text.removesuffix("\n").split("\n")
    kind, (facts, problems) = "Prolog facts", _read_lines(lines, _prolog_fact)
    if problems or not facts:  # then it may be the other format, where % starts no comment
        triples, others = _read_lines(lines, _triple)
        if len(others) < len(problems) or (triples and not problems + others):
            kind, facts, problems = "triples separated by tabs", triples, others
    if problems:
        raise ValueError(_malformed(source, kind, len(lines), problems))
    if not facts:
        raise ValueError(f"{source}: holds no facts; {_FORMATS}")
    return facts


def _read_lines(
    lines: Sequence[str], read: Callable[[str], Fact | None]
) -> tuple[list[Fact], list[str]]:
    """The facts in the lines, and what is wrong with each line that is malformed."""
    facts, problems = [], []
    for number, line in enumerate(lines, start=1):
        try:
            fact = read(line)
        except ValueError as error:
            text = line.rstrip("\r")
            text = text if len(text) <= 80 else text[:77] + "..."
            problems.append(f"line {number}: {text!r}: {error}")
        else:
            facts += [] if fact is None else [fact]
    return facts, problems


def _prolog_fact(line: str) -> Fact | None:
    if re.fullmatch(r"\s*(%.*)?", line):
        return None
    (relation, arguments), end = scan_term(line)
    if len(arguments) != 2:
        raise ValueError(f"expected relation(a,b). with 2 arguments, got {len(arguments)}")
    first, second = map(constant, arguments)
    if not re.fullmatch(r"\.\s*(%.*)?", line[end:]):
        raise ValueError("expected a full stop after relation(a,b), then at most a comment")
    return relation, first, second


def _triple(line: str) -> Fact | None:
    if not line.strip() or (line.startswith("#") and "\t" not in line):
        return None
    fields = [part.strip() for part in line.split("\t")]
    if len(fields) != 3:
        raise ValueError(f"expected a<TAB>relation<TAB>b, got {len(fields)} fields")
    if not all(fields):
        raise ValueError("expected a<TAB>relation<TAB>b, got an empty field")
    first, relation, second = fields
    return relation, first, second


def _malformed(source: str, kind: str, lines: int, problems: Sequence[str]) -> str:
    shown = [f"  {problem}" for problem in problems[:_SHOWN]]
    if len(problems) > _SHOWN:
        shown.append(f"  and {len(problems) - _SHOWN} more")
    head = f"{source}: {len(problems)} of {lines} lines are malformed, read as {kind}:"
    return "\n".join([head, *shown, _FORMATS])
