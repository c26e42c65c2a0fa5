"""What networks found in pictures beside what was there, for the scripts that draw it.

An object is told as a list: the words of its look, then the numbers of its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from PIL import Image

Told = list[Any]
EACH = 5  # pictures that are right, and as many that are not
SIDE, GAP = 128, 6  # pixels of a picture in a figure, and between two
RED, YELLOW = (255, 60, 60), (255, 220, 60)  # around what is wrong, and around what was missed


def unmatched(
    objects: list[Told], found: list[Told], looks: int, within: float
) -> tuple[list[Told], list[Told]]:
    """Objects that were missed, and outputs that are wrong; pairs are made of the nearest first.

    Of each there are so many words of its look.
    """
    pairs = sorted(
        (math.dist(x[looks:], y[looks:]), i, j)
        for i, x in enumerate(objects)
        for j, y in enumerate(found)
        if x[:looks] == y[:looks] and math.dist(x[looks:], y[looks:]) <= within
    )
    rows, columns = set(range(len(objects))), set(range(len(found)))
    for _, i, j in pairs:
        if i in rows and j in columns:
            rows.remove(i)
            columns.remove(j)
    return [objects[i] for i in sorted(rows)], [found[j] for j in sorted(columns)]


def caption(objects: int, missed: list[Told], wrong: list[Told], looks: int) -> str:
    """What became of so many objects, in words; what is found too far off is misplaced."""
    if not missed and not wrong:
        return f"right: all of {objects} objects"
    others, misplaced, left = [], [], [one[:looks] for one in missed]
    for one in wrong:
        if one[:looks] in left:
            left.remove(one[:looks])
            misplaced.append(one[:looks])
        else:
            others.append(one[:looks])
    words = [
        f"{what} {', '.join(' '.join(reversed(look)) for look in some)}"
        for what, some in (("missed", left), ("found instead", others), ("misplaced", misplaced))
        if some
    ]
    return f"wrong: {'; '.join(words)}"


def beside(seen: Any, said: Any) -> Any:
    """Two pictures, for the page of ``setwise report``."""
    both = Image.new("RGB", (2 * SIDE + GAP, SIDE), "white")
    both.paste(seen, (0, 0))
    both.paste(said, (SIDE + GAP, 0))
    return both


def sheet(pairs: Sequence[Any]) -> Any:
    """Those of `beside` in columns: what was seen above, what was found below."""
    width = len(pairs) * (SIDE + GAP) + GAP  # and a gap more between right and wrong
    found = Image.new("RGB", (width, 2 * SIDE + 3 * GAP), "white")
    for number, both in enumerate(pairs):
        x = GAP + number * (SIDE + GAP) + (GAP if number >= EACH else 0) - GAP // 2
        found.paste(both.crop((0, 0, SIDE, SIDE)), (x, GAP))
        found.paste(both.crop((SIDE + GAP, 0, 2 * SIDE + GAP, SIDE)), (x, SIDE + 2 * GAP))
    return found
