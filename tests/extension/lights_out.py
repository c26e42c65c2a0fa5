"""Lights Out: pressing a light turns it and its neighbours on or off. A world in one file."""

from __future__ import annotations

import torch
from torch import Tensor

from setwise import Bernoulli, Categorical, Features
from setwise.worlds import World

SIZE = 3
CELL = torch.arange(SIZE * SIZE)
X, Y = CELL % SIZE, CELL // SIZE
# What each press turns over: the light itself and those beside, above and below.
PRESS = ((X[:, None] - X).abs() + (Y[:, None] - Y).abs() <= 1).long()


class LightsOut(World):
    """Nine lights on a board of 3 x 3; a configuration is which of them are on."""

    kind = "lights-out"
    name = "lights-out-3x3"
    features = Features(Categorical(SIZE), Categorical(SIZE), Bernoulli(1))  # x, y, on

    def states(self) -> Tensor:
        return torch.arange(2 ** len(CELL)).unsqueeze(-1) >> CELL & 1

    def successors(self, configurations: Tensor) -> tuple[Tensor, Tensor]:
        after = configurations.unsqueeze(-2) ^ PRESS
        return after, torch.ones(after.shape[:-1], dtype=torch.bool)

    def objects(self, configurations: Tensor) -> Tensor:
        places = torch.cat([torch.eye(SIZE)[X], torch.eye(SIZE)[Y]], dim=-1)
        places = places.expand(*configurations.shape, 2 * SIZE)
        return torch.cat([places, configurations.unsqueeze(-1)], dim=-1)

    def start(self) -> Tensor:
        """Problems lead to all lights out."""
        return torch.zeros_like(CELL)

    def describe(self, configuration: Tensor) -> str:
        lights = "".join(".*"[on] for on in configuration.tolist())
        return " / ".join(lights[SIZE * row : SIZE * (row + 1)] for row in range(SIZE))
