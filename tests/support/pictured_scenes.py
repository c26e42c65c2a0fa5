"""Scenes of the Blocksworld that tests draw, the extreme ones among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from setwise.data import Blocksworld
from setwise.render import (
    Block,
    Environment,
    Scene,
    Settings,
    scene_of,
)
from setwise.render.environment import COLOURS

WORLD = Blocksworld(blocks=5, stacks=3)
# The largest blocks there are, as far apart and as close together as stacks can be.
TALLEST = tuple(Block("cylinder", "large", colour, 0.0) for colour in list(COLOURS)[:5])
WIDE = Environment(WORLD, TALLEST, (-2.0, 0.0, 2.0))
CLOSE = Environment(WORLD, TALLEST, (-1.5, 0.0, 1.5))
# Of one small world, in tiny pictures.
TINY = Settings(Environment.draw(Blocksworld(3, 3), 1), seed=4, width=48, height=32, samples=8)
STATES = Blocksworld(3, 3).sample(12, seed=0)


def scenes(count: int) -> list[Scene]:
    """States of several environments, and the extreme ones."""
    environments = [Environment.draw(WORLD, seed) for seed in range(count)] + [WIDE, CLOSE]
    found = [scene_of(e, WORLD.sample(1, n)[0], seed=n) for n, e in enumerate(environments)]
    tower = WORLD.unrank(torch.tensor(31))  # all on the first stack, all metal
    return [*found, scene_of(WIDE, tower, seed=0), scene_of(CLOSE, tower, seed=1)]


def boxes_of(owner: NDArray[Any], blocks: int, fine: int) -> NDArray[np.int64]:
    """Boxes [N, 4] in pixels of a map with ``fine`` points along each side of a pixel."""
    found = []
    for number in range(blocks):
        y, x = (owner == number).nonzero()
        edges = (x.min() // fine, y.min() // fine, x.max() // fine + 1, y.max() // fine + 1)
        found.append(edges)
    return np.array(found)
