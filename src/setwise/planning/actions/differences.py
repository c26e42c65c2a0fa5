"""Actions from differences: what left a set and what came, up to the names of values.

Legend: C features of an element; a slot is a place for a value of one feature.

Two transitions that differ by a renaming of values, one to one within each feature, are the same
action with other arguments. So each difference is brought to a form that no renaming changes, its
`Pattern`, in which slots stand for values; what the slots held is its binding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from math import factorial, prod

Digits = tuple[int, ...]  # of an element: the number of each of its values
Binding = tuple[tuple[int, ...], ...]  # of each feature, the number of the value in each slot
_MOST_ORDERS = 40320  # tried where nothing tells slots apart


class Pattern(tuple[tuple[Digits, ...], tuple[Digits, ...]]):
    """What leaves and what comes, elements of slots in the place of values."""

    __slots__ = ()

    @property
    def removed(self) -> tuple[Digits, ...]:
        """The elements that leave."""
        return self[0]

    @property
    def added(self) -> tuple[Digits, ...]:
        """The elements that come."""
        return self[1]


def pattern_of(
    removed: Sequence[Digits], added: Sequence[Digits], rank: Sequence[Sequence[int]]
) -> tuple[Pattern, Binding]:
    """The pattern of a difference, and the values in its slots.

    Where a pattern has symmetries, several bindings would do; ``rank`` of each value of each
    feature decides, least first: so it is always the blank of a puzzle that is in the first slot.

    >>> left = pattern_of([(0, 1), (5, 2)], [(0, 2), (5, 1)], rank=[range(9), range(9)])
    >>> right = pattern_of([(0, 7), (3, 6)], [(0, 6), (3, 7)], rank=[range(9), range(9)])
    >>> left[0] == right[0], left[1], right[1]
    (True, ((0, 5), (1, 2)), ((0, 3), (7, 6)))
    """
    best: tuple[Pattern, list[list[int]], Binding] | None = None
    for binding in _orders(removed, added):
        slots = [{value: slot for slot, value in enumerate(values)} for values in binding]
        sides = [
            tuple(sorted(tuple(s[d] for s, d in zip(slots, e, strict=True)) for e in side))
            for side in (removed, added)
        ]
        ranks = [[rank[c][value] for value in values] for c, values in enumerate(binding)]
        found = (Pattern((sides[0], sides[1])), ranks, binding)
        if best is None or found[:2] < best[:2]:
            best = found
    assert best is not None
    return best[0], best[2]


def _orders(removed: Sequence[Digits], added: Sequence[Digits]) -> Iterator[Binding]:
    """All orders of the values of each feature, except where their roles decide it."""
    classes = _roles(removed, added)
    orders = prod(factorial(len(alike)) for feature in classes for alike in feature)
    if orders > _MOST_ORDERS:
        raise ValueError(
            f"a step changes {len(removed)} elements to {len(added)}, among whose values nothing "
            f"decides in {orders} orders: too many to compare; learn without lifting"
        )
    choices = [
        [sum(order, ()) for order in product(*(permutations(alike) for alike in feature))]
        for feature in classes
    ]
    return product(*choices)


def _roles(removed: Sequence[Digits], added: Sequence[Digits]) -> list[list[list[int]]]:
    """Of each feature, the values that occur, in classes that no renaming can tell apart.

    Refined as vertices of a graph are: a value is what it was, and what it occurs together with.
    """
    elements = [(side, e) for side, chosen in enumerate((removed, added)) for e in chosen]
    features = range(len(elements[0][1]))
    colours = [{e[c]: 0 for _, e in elements} for c in features]
    while True:
        seen: list[dict[int, list[tuple[int, ...]]]] = [{} for _ in features]
        for side, e in elements:
            shape = (side, *(colours[c][e[c]] for c in features))
            for c in features:
                seen[c].setdefault(e[c], []).append(shape)
        signs = [{v: (colours[c][v], sorted(s)) for v, s in seen[c].items()} for c in features]
        numbers = [sorted(set(map(repr, signs[c].values()))) for c in features]
        refined = [{v: numbers[c].index(repr(s)) for v, s in signs[c].items()} for c in features]
        if all(len(set(refined[c].values())) == len(set(colours[c].values())) for c in features):
            return [
                [
                    sorted(v for v in colours[c] if colours[c][v] == colour)
                    for colour in sorted(set(colours[c].values()))
                ]
                for c in features
            ]
        colours = refined
