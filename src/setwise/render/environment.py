"""What stays the same in all pictures of one world: the blocks' looks and where the stacks are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

import numpy as np

from setwise.data.blocksworld import Blocksworld
from setwise.data.checks import random_bits
from setwise.render.shapes import Shape

# Linear RGB out of 255.
COLOURS = {
    "gray": (87, 87, 87),
    "red": (173, 35, 35),
    "blue": (42, 75, 215),
    "green": (29, 105, 20),
    "brown": (129, 74, 25),
    "purple": (129, 38, 192),
    "cyan": (41, 208, 208),
    "yellow": (255, 238, 51),
}
SIZES = {"large": 0.7, "small": 0.45}
SHAPES: tuple[Shape, ...] = ("cube", "cylinder")  # that can be stacked
_GAP = (1.5, 2.0)  # between the middles of two stacks; the widest blocks need 1.4


@dataclass(frozen=True)
class Block:
    """How a block looks, apart from its material."""

    shape: Shape
    size: str
    colour: str
    rotation: float  # about the vertical, in degrees

    def __post_init__(self) -> None:
        known_shapes = get_args(Shape)
        for name, known in (("shape", known_shapes), ("size", SIZES), ("colour", COLOURS)):
            if getattr(self, name) not in known:
                choices = ", ".join(known)
                raise ValueError(f"{name}: expected one of {choices}, got {getattr(self, name)!r}")

    @property
    def half(self) -> float:
        """Half of its width and height; a cube's diagonal is a cylinder's diameter."""
        return SIZES[self.size] / (math.sqrt(2) if self.shape == "cube" else 1)


@dataclass(frozen=True)
class Environment:
    """A world with a look: its blocks, in their order, and the x of its stacks."""

    world: Blocksworld
    blocks: tuple[Block, ...]
    stack_x: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.blocks) != self.world.blocks or len(self.stack_x) != self.world.stacks:
            raise ValueError(
                f"{self.world}: expected {self.world.blocks} blocks and {self.world.stacks} "
                f"stacks, got {len(self.blocks)} and {len(self.stack_x)}"
            )

    @staticmethod
    def draw(world: Blocksworld, seed: int) -> Environment:
        """Draw shapes, sizes and rotations, colours that all differ, and gaps between the stacks.

        >>> Environment.draw(Blocksworld(blocks=2), seed=0).blocks[1]
        Block(shape='cylinder', size='large', colour='gray', rotation=39.413)
        """
        if world.blocks > len(COLOURS):
            raise ValueError(
                f"{world}: there are {len(COLOURS)} colours and no two blocks may share one"
            )
        bits = random_bits("environment", seed)
        colours = [list(COLOURS)[i] for i in bits.random_raw(len(COLOURS)).argsort(kind="stable")]
        blocks = []
        for colour in colours[: world.blocks]:
            shape, size, turn = bits.random_raw(3)
            blocks.append(
                Block(
                    shape=SHAPES[shape >> np.uint64(63)],
                    size=list(SIZES)[size >> np.uint64(63)],
                    colour=colour,
                    rotation=round(uniform(turn, 0, 360), 3),
                )
            )
        low, high = _GAP
        gaps = [uniform(word, low, high) for word in bits.random_raw(world.stacks - 1)]
        x = np.cumsum([0.0, *gaps])
        return Environment(world, tuple(blocks), tuple((x - x[-1] / 2).round(4).tolist()))


def uniform(word: int, low: float, high: float) -> float:
    """A number in [low, high) from 64 random bits, the same on every platform."""
    return low + (high - low) * (int(word) >> 11) * 2.0**-53
