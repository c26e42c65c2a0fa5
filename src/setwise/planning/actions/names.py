"""Names that PDDL allows."""

from __future__ import annotations

import re

from setwise.planning.actions.symbols import Symbols


def object_names(symbols: Symbols) -> dict[tuple[int, int], str]:
    """A name for each value of each feature, such as ``tile-3``."""
    names: dict[tuple[int, int], str] = {}
    for c, values in enumerate(symbols.values):
        for v, value in enumerate(values):
            name = pddl_name(f"{symbols.names[c]}-{value}")
            while name in names.values():
                name += "-again"
            names[c, v] = name
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
