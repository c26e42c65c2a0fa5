"""The sliding puzzle as a world to plan in.

Legend: B sets, C cells, tiles and objects, F features, U = C * C distinct objects: every tile on
every cell, tile by tile; ``*`` any leading dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from setwise.data.puzzle import SlidingPuzzle
from setwise.worlds.drawing import Pictures
from setwise.worlds.world import World


@dataclass(frozen=True)
class PuzzleWorld(SlidingPuzzle, World):
    """A `SlidingPuzzle` to plan in. Its problems lead to the goal.

    >>> PuzzleWorld(3, 2).name
    'puzzle-3x2'
    """

    kind: ClassVar[str] = "puzzle"
    feature_names: ClassVar[tuple[str, ...] | None] = ("tile", "x", "y")

    @property
    def name(self) -> str:
        return f"puzzle-{self.width}x{self.height}"

    def index(self, configurations: Tensor) -> Tensor:
        """The rank; also where there are too many states to list them."""
        return self.rank(configurations)

    def start(self) -> Tensor:
        return self.goal()

    def elements(self) -> Tensor:
        """Every tile on every cell, [U, F]."""
        number = torch.arange(self.cells)
        tile, cell = number.repeat_interleave(self.cells), number.repeat(self.cells)
        shown = zip(
            (tile, cell % self.width, cell // self.width), self.features.widths, strict=True
        )
        return torch.cat([torch.eye(width)[which] for which, width in shown], dim=-1)

    def counts(self, configurations: Tensor) -> Tensor:
        """1 for each of the objects that is there, else 0: [*, C] -> [*, U]."""
        where = configurations * self.cells + torch.arange(self.cells, device=configurations.device)
        counts = torch.zeros(*configurations.shape[:-1], self.cells**2, device=where.device)
        return counts.scatter_(-1, where, 1.0)

    def recovers(self, outputs: Tensor, configurations: Tensor) -> Tensor:
        """Whether outputs [B, C, F] are the objects of configurations [B, C], in any order."""
        tile, x, y = (block.argmax(-1) for block in self.features.split(outputs))
        found = tile * self.cells + y * self.width + x
        wanted = self.counts(configurations).nonzero()[:, 1].reshape(configurations.shape)
        # A choice among what is no number, as a diverged network gives, would be an accident.
        return (found.sort(-1).values == wanted).all(-1) & outputs.isfinite().all(-1).all(-1)

    def nearest(self, objects: Tensor) -> tuple[Tensor, float]:
        """The nearest configuration [C], and how many of tile, x and y of objects it changes.

        Exact: which tile an object should be and on which cell it should lie are two assignment
        problems that have nothing to do with each other.
        """
        from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

        legal = self.elements().reshape(self.cells, self.cells, -1)
        places = (legal[:, 0, : self.tiles], legal[0, :, self.tiles :])
        objects = objects.nan_to_num(0, 0, 0)
        given = (objects[:, : self.tiles], objects[:, self.tiles :])
        # Two one-hot vectors that differ are 2 apart.
        costs = [
            torch.cdist(a.double(), b.double(), p=1) / 2 for a, b in zip(given, places, strict=True)
        ]
        (_, tile), (_, cell) = (linear_sum_assignment(cost.numpy()) for cost in costs)
        distance = sum(
            float(cost[range(self.cells), where].sum())
            for cost, where in zip(costs, (tile, cell), strict=True)
        )
        configuration = torch.empty(self.cells, dtype=torch.int64)
        configuration[torch.from_numpy(cell)] = torch.from_numpy(tile)
        return configuration, distance

    def describe(self, configuration: Tensor) -> str:
        """The tiles row by row, a dot for the blank.

        >>> PuzzleWorld(3, 2).describe(torch.tensor([3, 1, 2, 0, 4, 5]))
        '3 1 2 / . 4 5'
        """
        names = ["." if tile == 0 else str(tile) for tile in configuration.tolist()]
        rows = [names[start : start + self.width] for start in range(0, self.cells, self.width)]
        return " / ".join(" ".join(row) for row in rows)

    def action(self, before: Tensor, after: Tensor) -> str:
        """The tile that takes the place of the blank, and where it goes.

        >>> PuzzleWorld(2, 2).action(torch.tensor([0, 1, 2, 3]), torch.tensor([2, 1, 0, 3]))
        'tile 2 goes up'
        """
        to, start = int(before.argmin()), int(after.argmin())
        ways = {1: "right", -1: "left", self.width: "down", -self.width: "up"}
        return f"tile {int(after[to])} goes {ways[to - start]}"

    def explain(self, before: Tensor, after: Tensor) -> str:
        """Which tiles are elsewhere; a legal action swaps the blank with a tile next to it."""
        start, end = before.argsort().tolist(), after.argsort().tolist()
        moves = [
            f"{'the blank' if tile == 0 else f'tile {tile}'} from {self._at(a)} to {self._at(b)}"
            for tile, (a, b) in enumerate(zip(start, end, strict=True))
            if a != b
        ]
        went = ", ".join(moves) if moves else "nothing moved"
        return f"{went}; an action swaps the blank with a tile next to it and moves no other"

    def draw(self, objects: Tensor) -> Pictures:
        """Tiles with handwritten digits, as they were decoded."""
        from setwise.worlds.tiles import draw_states

        return draw_states(self, objects)

    def draw_move(self, before: Tensor, after: Tensor) -> Pictures:
        """The tiles on their way."""
        from setwise.worlds.tiles import draw_move

        return draw_move(self, before, after)

    def _at(self, cell: int) -> str:
        return f"(x={cell % self.width}, y={cell // self.width})"
