"""States of a sliding puzzle as sets of objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from setwise.data import SlidingPuzzle, drop_elements
from setwise.data.sets import mask_sets, pad_sets
from setwise.experiments.tasks.task import CPU, DATA, DataConfig, Task, require_split
from setwise.features import Bernoulli, Features
from setwise.features.family import Scoring
from setwise.worlds import PuzzleWorld, World

Dummies = Literal["cells", "counted", "none"]


@dataclass(frozen=True)
class PuzzleData(DataConfig):
    """States of a sliding puzzle; the same ones for every run of an experiment."""

    kind: ClassVar[str] = "puzzle"
    width: int = 3
    height: int = 3
    states: int = 5000
    # The first `train` states are trained on, the others are held out.
    train: int = 4500
    # Whether objects are missing from half of the states, with dummies in their place: one for
    # each empty cell, or the first few of a list, as many as are missing; or none, and outputs say
    # whether they exist.
    variable: bool = False
    dummies: Dummies = "cells"
    # How a softmax output is scored: the paper takes its features for independent Bernoullis.
    scored_as: Scoring = "bernoulli"
    seed: int = 0

    def __post_init__(self) -> None:
        known = get_args(Dummies)
        if self.dummies not in known:
            raise ValueError(f"dummies: must be one of {', '.join(known)}, got {self.dummies!r}")

    def load(self, folder: Path = DATA, device: torch.device = CPU) -> Task:
        puzzle = self._puzzle()
        sets = puzzle.objects(puzzle.sample(self.states, self.seed))
        features, valid = self._features(puzzle), None
        if self.variable and self.dummies == "none":
            sets, valid = mask_sets(drop_elements(sets, self.seed), puzzle.cells)
        elif self.variable:
            sets = self._with_dummies(puzzle, drop_elements(sets, self.seed))
        return Task.from_sets(sets, self.train, features, valid=valid)

    def numbers(self) -> int:
        puzzle = self._puzzle()
        return self.states * puzzle.cells * self._features(puzzle).width

    @property
    def world_kind(self) -> str | None:
        return None if self.variable else PuzzleWorld.kind

    def world(self, task: Task, folder: Path = DATA) -> World:
        if self.variable:
            raise ValueError(
                "was trained on states with missing objects, which have no actions; take a network "
                "of table1"
            )
        return PuzzleWorld(self.width, self.height)

    def _puzzle(self) -> SlidingPuzzle:
        puzzle = SlidingPuzzle(self.width, self.height)
        require_split("data", self.train, self.states, puzzle.number_of_states)
        return puzzle

    def _features(self, puzzle: SlidingPuzzle) -> Features:
        present = (Bernoulli(1),) if self.variable and self.dummies != "none" else ()
        return Features(*puzzle.features.blocks, *present).scored_as(self.scored_as)

    def _with_dummies(self, puzzle: SlidingPuzzle, sets: Sequence[Tensor]) -> Tensor:
        if self.dummies == "cells":
            return puzzle.fill_cells(sets)
        return pad_sets(sets, puzzle.cells, puzzle.features)
