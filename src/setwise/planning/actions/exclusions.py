"""What is never together in one state, as far as was seen: it makes conditions shorter.

Two elements exclude each other if they share a key, features that no two elements of a state ever
had in common, such as the cell of a tile; or if they share a value that no state had twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from setwise.planning.actions.schema import Digits


@dataclass(frozen=True)
class Exclusions:
    """Features that are keys, least first; values ``(feature, value)`` that occur once."""

    keys: tuple[tuple[int, ...], ...]
    once: frozenset[tuple[int, int]]
    always: frozenset[tuple[tuple[int, ...], Digits]]  # keys, and values of them in every state

    def exclude(self, one: Digits, other: Digits) -> bool:
        """Whether two different elements are never together."""
        if one == other:
            return False
        shared = {c for c, (a, b) in enumerate(zip(one, other, strict=True)) if a == b}
        return any(shared.issuperset(key) for key in self.keys) or any(
            (c, one[c]) in self.once for c in shared
        )


def exclusions_of(states: Iterable[tuple[Digits, ...]], features: int) -> Exclusions:
    """The exclusions that hold in all states.

    >>> exclusions_of([((0, 0), (1, 1)), ((0, 1), (1, 1))], features=2).keys
    ((0,),)
    """
    distinct = set(states)
    keys: list[tuple[int, ...]] = []
    for size in range(1, features):
        for key in combinations(range(features), size):
            if any(set(known) <= set(key) for known in keys):
                continue
            if all(
                len({tuple(e[c] for c in key) for e in state}) == len(state) for state in distinct
            ):
                keys.append(key)
    values = {(c, v) for state in distinct for e in state for c, v in enumerate(e)}
    twice: set[tuple[int, int]] = set()
    for state in distinct:
        there: set[tuple[int, int]] = set()
        for e in state:
            for value in enumerate(e):
                (twice if value in there else there).add(value)
    always = [
        frozenset((key, tuple(e[c] for c in key)) for key in keys for e in state)
        for state in distinct
    ]
    return Exclusions(tuple(keys), frozenset(values - twice), frozenset.intersection(*always))
