"""What a schema does, in words: its name, and a line for a reader."""

from __future__ import annotations

from collections import Counter

from setwise.planning.actions.differences import Pattern
from setwise.planning.actions.exclusions import Exclusions
from setwise.planning.actions.schema import Digits
from setwise.planning.actions.symbols import Symbols


class SchemaNames:
    """A name for each schema: that of the recording, or else after the feature that changes."""

    def __init__(self, symbols: Symbols, exclusions: Exclusions) -> None:
        self.symbols, self.exclusions = symbols, exclusions
        self.taken: Counter[str] = Counter()

    def next(self, pattern: Pattern, said: list[str]) -> str:
        name = Counter(said).most_common(1)[0][0] if said else f"change-{self._changed(pattern)}"
        self.taken[name] += 1
        return name if self.taken[name] == 1 else f"{name}-{self.taken[name]}"

    def _changed(self, pattern: Pattern) -> str:
        """The features in which elements differ from those with the same key before."""
        for key in self.exclusions.keys:
            gone = {tuple(e[c] for c in key): e for e in pattern.removed}
            come = {tuple(e[c] for c in key): e for e in pattern.added}
            if gone.keys() == come.keys():
                features = range(len(self.symbols.names))
                changed = [c for c in features if any(gone[k][c] != come[k][c] for k in gone)]
                return "-".join(self.symbols.names[c] for c in changed)
        return "elements"


def in_words(symbols: Symbols, slots: Digits, pattern: Pattern) -> str:
    """What leaves and what comes, for a reader."""

    def value(c: int, digit: int) -> str:
        if digit >= slots[c]:
            return f"{symbols.names[c]} {symbols.values[c][digit - slots[c]]}"
        return symbols.names[c] + (str(digit + 1) if slots[c] > 1 else "")

    sides = []
    for verb, side in (("removes", pattern.removed), ("adds", pattern.added)):
        elements = [f"({', '.join(value(c, d) for c, d in enumerate(e))})" for e in side]
        sides.append(f"{verb} {' '.join(elements) or 'nothing'}")
    return ", ".join(sides)
