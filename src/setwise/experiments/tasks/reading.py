"""Data of networks that read the pictures of a world: what such a network is used for afterwards.

Legend: S pictures, N objects, F features; H, W height and width of a picture in pixels.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from setwise.experiments.tasks.task import DataConfig, Task
from setwise.worlds import World

# Both sides of what a network reads are multiples of this, so that it can halve them four times.
_SIDES = 16


@dataclass(frozen=True)
class ReadingData(DataConfig):
    """Pictures of states of a world; a network that learned from them reads other ones."""

    @property
    @abstractmethod
    def reads(self) -> str:
        """The kind of world."""

    @property
    @abstractmethod
    def world_name(self) -> str:
        """The name of the world itself, such as ``puzzle-3x3``."""

    @property
    @abstractmethod
    def states(self) -> int:
        """How many states there are pictures of."""

    @property
    @abstractmethod
    def size(self) -> tuple[int, int]:
        """Width and height of its pictures in pixels."""

    @abstractmethod
    def blank(self) -> Task:
        """The task without examples, which tells a network its shape; no file is read."""

    @abstractmethod
    def inputs(self, pictures: NDArray[np.uint8]) -> Tensor:
        """Pictures [S, H, W, 3] as the network takes them."""

    @abstractmethod
    def objects(self, elements: Tensor, picture: NDArray[np.uint8], world: World) -> Tensor:
        """Objects of the world, of what a network found, outputs [N, F], in a picture [H, W, 3]."""


def padded(pictures: Tensor) -> Tensor:
    """Pictures [S, 3, H, W] with black on the right and below, to sides that can be halved."""
    height, width = pictures.shape[-2:]
    return functional.pad(pictures, (0, -width % _SIDES, 0, -height % _SIDES))
