"""Where labels go that would cover each other."""

from __future__ import annotations

from collections.abc import Sequence


def apart(places: Sequence[float], gap: float, last: float) -> list[float]:
    """The same increasing places, at least a gap apart, and none beyond the last.

    >>> apart([0.0, 1.0, 9.0, 9.0], 3.0, 10.0)
    [0.0, 3.0, 7.0, 10.0]
    """
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + gap) if moved else place)
    for i in reversed(range(len(moved))):
        moved[i] = min(moved[i], last if i == len(moved) - 1 else moved[i + 1] - gap)
    return moved
