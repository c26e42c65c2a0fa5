"""Lights Out: pressing a light turns it and its neighbours on or off.

Legend: C cells; ``*`` any leading dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from setwise.data.checks import require_int
from setwise.features import Bernoulli, Categorical, Features
from setwise.worlds.world import World


@dataclass(frozen=True)
class LightsOut(World):
    """A board of lights; a configuration [C] says of each, row by row, whether it is on.

    >>> LightsOut(3, 2).describe(torch.tensor([1, 0, 0, 0, 1, 1]))
    '* . . / . * *'
    """

    kind: ClassVar[str] = "lights"
    feature_names: ClassVar[tuple[str, ...] | None] = ("x", "y", "on")
    width: int = 4
    height: int = 4

    def __post_init__(self) -> None:
        require_int("width", self.width, 2, 5)
        require_int("height", self.height, 2, 4)

    @property
    def name(self) -> str:
        return f"lights-{self.width}x{self.height}"

    @property
    def features(self) -> Features:
        """A light is its x and y, and whether it is on."""
        return Features(Categorical(self.width), Categorical(self.height), Bernoulli(1))

    def states(self) -> Tensor:
        cell = torch.arange(self.width * self.height)
        return torch.arange(2 ** len(cell)).unsqueeze(-1) >> cell & 1

    def successors(self, configurations: Tensor) -> tuple[Tensor, Tensor]:
        """Every light can be pressed, whatever the others are."""
        x, y = self._places()
        pressed = ((x[:, None] - x).abs() + (y[:, None] - y).abs() <= 1).long()
        after = configurations.unsqueeze(-2) ^ pressed
        return after, torch.ones(after.shape[:-1], dtype=torch.bool)

    def objects(self, configurations: Tensor) -> Tensor:
        x, y = self._places()
        places = torch.cat([torch.eye(self.width)[x], torch.eye(self.height)[y]], dim=-1)
        places = places.expand(*configurations.shape, self.width + self.height)
        return torch.cat([places, configurations.unsqueeze(-1)], dim=-1)

    def start(self) -> Tensor:
        """Problems lead to all lights out."""
        return torch.zeros(self.width * self.height, dtype=torch.int64)

    def describe(self, configuration: Tensor) -> str:
        rows = configuration.reshape(self.height, self.width).tolist()
        return " / ".join(" ".join(".*"[on] for on in row) for row in rows)

    def _places(self) -> tuple[Tensor, Tensor]:
        cell = torch.arange(self.width * self.height)
        return cell % self.width, cell // self.width
