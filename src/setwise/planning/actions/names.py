"""Names that PDDL allows."""

from __future__ import annotations

import re
from collections.abc import Iterable

from setwise.planning.actions.symbols import Symbols


def object_names(symbols: Symbols) -> dict[tuple[int, int], str]:
    """A name for each value of each feature, such as ``tile-3``."""
    places = [(c, v) for c, size in enumerate(symbols.sizes) for v in range(size)]
    given = [f"{symbols.names[c]}-{symbols.values[c][v]}" for c, v in places]
    return dict(zip(places, different_names(given), strict=True))


def feature_names(symbols: Symbols) -> list[str]:
    """A name for the type of each feature; ``object`` is that of all things in PDDL."""
    return different_names(symbols.names, taken=("object",))


def different_names(given: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Names that PDDL allows, all different.

    >>> different_names(["go!", "go?", "stop"])
    ['go', 'go-again', 'stop']
    """
    names: list[str] = []
    known = set(taken)
    for one in map(pddl_name, given):
        name = one
        while name in known:
            name += "-again"
        known.add(name)
        names.append(name)
    return names


def pddl_name(name: str) -> str:
    """A name that PDDL allows: lower case, digits, dashes.

    >>> pddl_name("Peg A/-1.5")
    'peg-a-m1p5'
    """
    name = re.sub(r"(?<![a-z0-9])-(?=\d)", "m", name.lower().replace("--", "-m"))
    name = re.sub(r"(?<=\d)\.(?=\d)", "p", name)
    name = re.sub(r"[^a-z0-9]+", "-", name).strip("-")
    return name if name[:1].isalpha() else f"a-{name}".rstrip("-")
