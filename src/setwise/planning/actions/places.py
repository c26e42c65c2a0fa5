"""Codes of places: columns that things are stacked in, and the how-manieth each is.

Legend: N elements, n boxes of any sets.

Cameras move, and things of different heights lie on each other: where a box is says little by
itself. But columns stay apart, and in a column one thing lies above another. So a column is a
cluster of boxes, none of which is further from its neighbour than half a box is wide, and a place
is a column and a number, counted from the lowest box of the same set: a1 is the first of the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from string import ascii_lowercase

from torch import Tensor

from setwise.planning.actions.symbols import UnknownSymbolError

MOST_COLUMNS = len(ascii_lowercase)
_NEAR = 0.5  # of the width of a box


@dataclass(frozen=True)
class Places:
    """Where the columns are: the middle of each, in pixels from the left, and how wide it is."""

    middles: tuple[float, ...]
    reach: float  # of a column, to either side

    @classmethod
    def fit(cls, boxes: Tensor) -> Places:
        """Learn from boxes [n, 4], each (x1, y1, x2, y2) with y downwards."""
        middle = _middle(boxes).sort().values
        gap = _NEAR * float((boxes[..., 2] - boxes[..., 0]).double().median())
        starts = [0, *((middle.diff() > gap).nonzero()[:, 0] + 1).tolist(), len(middle)]
        if len(starts) - 1 > MOST_COLUMNS:
            raise ValueError(
                f"boxes: expected things in at most {MOST_COLUMNS} columns, got {len(starts) - 1}"
            )
        parts = [middle[a:b] for a, b in pairwise(starts)]
        reach = max(float(part[-1] - part[0]) for part in parts) + gap
        return cls(tuple(float(part.mean()) for part in parts), reach)

    def encode(self, boxes: Tensor) -> list[str]:
        """The place of each box of one set [N, 4]."""
        levels: dict[int, int] = {}
        found = [""] * len(boxes)
        columns = [self._column(float(x)) for x in _middle(boxes)]
        for number in boxes[:, 3].argsort(descending=True, stable=True).tolist():  # lowest first
            column = columns[number]
            levels[column] = levels.get(column, 0) + 1
            found[number] = f"{ascii_lowercase[column]}{levels[column]}"
        return found

    def free(self, taken: list[str]) -> list[str]:
        """The lowest place of each column that is not taken."""
        heights = [sum(place[0] == letter for place in taken) for letter in self.letters]
        return [
            f"{letter}{height + 1}" for letter, height in zip(self.letters, heights, strict=True)
        ]

    @property
    def letters(self) -> str:
        """What the columns are called."""
        return ascii_lowercase[: len(self.middles)]

    def _column(self, x: float) -> int:
        far = [abs(x - middle) for middle in self.middles]
        column = min(range(len(far)), key=far.__getitem__)
        if far[column] > self.reach:
            raise UnknownSymbolError(
                f"a box around x = {x:.0f} is in none of the columns that were seen, at "
                f"{', '.join(f'{middle:.0f}' for middle in self.middles)}"
            )
        return column


def _middle(boxes: Tensor) -> Tensor:
    return (boxes[..., 0].double() + boxes[..., 2].double()) / 2
