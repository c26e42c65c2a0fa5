"""Pictures of a sliding puzzle, and the tiles that they show.

Legend: S states, C cells and tiles, F features; H, W height and width of a picture in pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from setwise.data.checks import random_bits
from setwise.experiments.measures import SetSuccess
from setwise.experiments.tasks.reading import ReadingData
from setwise.experiments.tasks.task import CPU, DATA, Task, require_split
from setwise.features import Categorical, Features
from setwise.worlds import PuzzleWorld, World

_CELL = 16  # pixels of a cell, along each side, that a network sees


@dataclass(frozen=True)
class PuzzlePicturesData(ReadingData):
    """States as `PuzzleWorld` draws them; in half of the pictures a tile has just moved.

    A tile is its number and the x and y of its cell, as in `PuzzleData`. Each is a choice among
    classes, and scored as one.
    """

    kind: ClassVar[str] = "puzzle-pictures"
    width: int = 3
    height: int = 3
    states: int = 2000
    # The first `train` states are trained on, the others are held out.
    train: int = 1800
    seed: int = 0

    @property
    def reads(self) -> str:
        return PuzzleWorld.kind

    @property
    def world_name(self) -> str:
        return self._puzzle.name

    @property
    def size(self) -> tuple[int, int]:
        height, width = self._puzzle.draw(self._puzzle.objects(self._puzzle.goal())[None]).shape[
            1:3
        ]
        return width, height

    def load(self, folder: Path = DATA, device: torch.device = CPU) -> Task:
        require_split("data", self.train, self.states)
        puzzle = self._puzzle
        states = puzzle.sample(self.states, self.seed)
        objects = puzzle.objects(states)
        bits = random_bits("puzzle pictures", self.seed)
        pictures = []
        for number, (state, own) in enumerate(zip(states, objects, strict=True)):
            shown = own[None]
            if number % 2:  # with the one before, from which the last tile came
                after, legal = puzzle.successors(state)
                before = after[legal][int(bits.random_raw()) % int(legal.sum())]
                shown = torch.stack([puzzle.objects(before), own])
            pictures.append(puzzle.draw(shown)[-1])
        targets = torch.cat([objects, torch.ones(*objects.shape[:-1], 1)], dim=-1)
        return self._task(self.inputs(np.stack(pictures)), targets)

    def blank(self) -> Task:
        width, height = self.size
        inputs = self.inputs(np.zeros((0, height, width, 3), dtype=np.uint8))
        return self._task(inputs, torch.zeros(0, self._puzzle.cells, self._features.width + 1))

    def inputs(self, pictures: NDArray[np.uint8]) -> Tensor:
        """Means over parts of the pictures, so many for each cell."""
        whole = torch.from_numpy(pictures).movedim(-1, -3).float() / 255
        return functional.adaptive_avg_pool2d(whole, (_CELL * self.height, _CELL * self.width))

    def objects(self, elements: Tensor, picture: NDArray[np.uint8], world: World) -> Tensor:
        return world.features.discretise(elements)

    def numbers(self) -> int:
        puzzle = self._puzzle
        return self.states * (3 * _CELL**2 + puzzle.features.width + 1) * puzzle.cells

    @property
    def _puzzle(self) -> PuzzleWorld:
        return PuzzleWorld(self.width, self.height)

    @property
    def _features(self) -> Features:
        return Features(*(Categorical(width) for width in self._puzzle.features.widths))

    def _task(self, inputs: Tensor, targets: Tensor) -> Task:
        return Task(inputs, targets, self.train, self._features, measure=SetSuccess(metric="exact"))
