"""States of any world as sets of objects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from setwise.experiments.tasks.task import CPU, DATA, DataConfig, Task, require_split
from setwise.features.family import Scoring
from setwise.worlds import WORLDS, World


@dataclass(frozen=True, kw_only=True)
class WorldData(DataConfig):
    """States of a world that is found by its kind, a user's own too; see `setwise.worlds.World`."""

    kind: ClassVar[str] = "world"
    # Its kind, and the numbers to make it with, as in (2, 3) for PuzzleWorld(2, 3).
    of: str
    size: tuple[int, ...] = ()
    states: int
    # The first `train` states are trained on, the others are held out.
    train: int
    scored_as: Scoring = "bernoulli"
    seed: int = 0

    def load(self, folder: Path = DATA, device: torch.device = CPU) -> Task:
        world = self._made()
        require_split("data", self.train, self.states, len(world.states()))
        sets = world.objects(world.sample(self.states, self.seed))
        return Task.from_sets(sets, self.train, world.features.scored_as(self.scored_as))

    @property
    def world_kind(self) -> str | None:
        return self.of

    def world(self, task: Task, folder: Path = DATA) -> World:
        return self._made()

    def _made(self) -> World:
        world = WORLDS[self.of]
        try:
            return world(*self.size)
        except TypeError as error:
            raise ValueError(f"data: no {self.of} of size {self.size}: {error}") from error
