"""Pushing boxes about a room, as in Sokoban: a step towards a box pushes it, if there is room.

Legend: B boxes, W walls, N = 1 + B + W objects; ``*`` any leading dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import torch
from torch import Tensor

from setwise.data.checks import require_int
from setwise.features import Categorical, Features
from setwise.worlds.world import World

_STEPS = ((0, -1), (0, 1), (-1, 0), (1, 0))  # (x, y): up, down, left, right
_KINDS = 3  # player, box, wall
_BOXES, _WALLS = 2, ((2, 1), (3, 4))  # where nothing is said; of the walls, those inside


@dataclass(frozen=True)
class Pushing(World):
    """A configuration [1 + B] is the cell of the player and those of the boxes, in order.

    A box in a corner never leaves it: this is a world to record and to learn from, but not one for
    planning over all of its transitions, every one of which would have to be undone by another.

    >>> Pushing(4, 3, boxes=1, walls=((0, 2),)).describe(torch.tensor([0, 6]))
    '@ . . . / . . o . / # . . .'
    """

    kind: ClassVar[str] = "pushing"
    feature_names: ClassVar[tuple[str, ...] | None] = ("what", "x", "y")
    width: int = 6
    height: int = 6
    boxes: int = _BOXES
    walls: tuple[tuple[int, int], ...] = _WALLS

    def __post_init__(self) -> None:
        require_int("width", self.width, 3, 8)
        require_int("height", self.height, 3, 8)
        require_int("boxes", self.boxes, 1, 2)
        if self.walls is _WALLS:
            object.__setattr__(self, "walls", self._usual_walls)
        self._require_walls()

    def _require_walls(self) -> None:
        pairs = isinstance(self.walls, tuple) and all(
            isinstance(wall, tuple)
            and len(wall) == 2
            and all(isinstance(place, int) and not isinstance(place, bool) for place in wall)
            for wall in self.walls
        )
        if not pairs:
            raise ValueError(f"walls: expected cells such as ((2, 1), (3, 4)), got {self.walls!r}")
        for wall in self.walls:
            if not self._is_inside(wall):
                raise ValueError(
                    f"walls: {wall} is not in a room of {self.width} x {self.height} cells"
                )
        if len(set(self.walls)) < len(self.walls):
            raise ValueError(f"walls: expected different cells, got {self.walls!r}")
        free = self.width * self.height - len(self.walls)
        if free < self.boxes + 2:
            raise ValueError(
                f"walls: {len(self.walls)} leave {free} cells free, too few for the player, "
                f"{self.boxes} boxes and a step"
            )

    def _is_inside(self, cell: tuple[int, int]) -> bool:
        return 0 <= cell[0] < self.width and 0 <= cell[1] < self.height

    @property
    def _usual_walls(self) -> tuple[tuple[int, int], ...]:
        return tuple(filter(self._is_inside, _WALLS))

    @property
    def name(self) -> str:
        """With the boxes and the walls where they are not the usual ones."""
        name = f"pushing-{self.width}x{self.height}"
        if self.boxes != _BOXES:
            name += f"x{self.boxes}"
        if self.walls != self._usual_walls:
            cells = [f"{x}x{y}" for x, y in sorted(self.walls)]
            name += f"-walls-{'-'.join(cells) or 'none'}"
        return name

    @property
    def features(self) -> Features:
        """What is there (0 the player, 1 a box, 2 a wall), its x and its y."""
        return Features(Categorical(_KINDS), Categorical(self.width), Categorical(self.height))

    def states(self) -> Tensor:
        free = [cell for cell in range(self.width * self.height) if cell not in self._walls()]
        rows = [
            [player, *boxes]
            for boxes in combinations(free, self.boxes)
            for player in free
            if player not in boxes
        ]
        return torch.tensor(rows)

    def successors(self, configurations: Tensor) -> tuple[Tensor, Tensor]:
        """Where steps up, down, left and right lead."""
        steps = torch.tensor(_STEPS)
        player, boxes = configurations[..., :1], configurations[..., 1:]
        (to, inside), (beyond, room) = (self._moved(player, k * steps) for k in (1, 2))  # [*, 4]
        boxes = boxes.unsqueeze(-2).expand(*to.shape, -1)  # [*, 4, B]
        pushed = boxes == to.unsqueeze(-1)
        walls = torch.tensor(self._walls(), dtype=torch.int64)
        stuck = ~room | torch.isin(beyond, walls) | (boxes == beyond.unsqueeze(-1)).any(-1)
        legal = inside & ~torch.isin(to, walls) & ~(pushed.any(-1) & stuck)
        moved = torch.where(pushed, beyond.unsqueeze(-1), boxes).sort(-1).values
        after = torch.cat([to.unsqueeze(-1), moved], dim=-1)
        return torch.where(legal.unsqueeze(-1), after, configurations.unsqueeze(-2)), legal

    def objects(self, configurations: Tensor) -> Tensor:
        walls = torch.tensor(self._walls(), dtype=torch.int64)
        cells = torch.cat([configurations, walls.expand(*configurations.shape[:-1], -1)], dim=-1)
        what = torch.tensor([0] + [1] * self.boxes + [2] * len(walls)).expand_as(cells)
        shown = (what, cells % self.width, cells // self.width)
        widths = self.features.widths
        return torch.cat([torch.eye(w)[v] for v, w in zip(shown, widths, strict=True)], dim=-1)

    def describe(self, configuration: Tensor) -> str:
        """Row by row: @ the player, o boxes, # walls."""
        player, *boxes = configuration.tolist()
        signs = {player: "@"} | dict.fromkeys(boxes, "o") | dict.fromkeys(self._walls(), "#")
        rows = [
            " ".join(signs.get(y * self.width + x, ".") for x in range(self.width))
            for y in range(self.height)
        ]
        return " / ".join(rows)

    def _walls(self) -> list[int]:
        return [y * self.width + x for x, y in self.walls]

    def _moved(self, player: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        """The cells [*, 4] so far from the player [*, 1], and which of them are in the room."""
        x, y = player % self.width + steps[:, 0], player // self.width + steps[:, 1]
        inside = (x >= 0) & (x < self.width) & (y >= 0) & (y < self.height)
        return y * self.width + x, inside
