"""A Blocksworld in pictures that cost nothing: textures in changing light, boxes that shake.

Three blocks of different heights on three stacks; metal has a bright edge where rubber has none.
"""

from __future__ import annotations

import numpy as np

from setwise.data.blocksworld import Blocksworld
from setwise.data.blocksworld_archive import PATCH, BlocksworldArchive

WORLD = Blocksworld(blocks=3, stacks=3)
STATES = WORLD.sample(WORLD.number_of_states, seed=0)  # what the pictures of the archive show
_HEIGHTS, _COLOURS = (14, 8, 9), ((0.8, 0.3, 0.2), (0.2, 0.4, 0.8), (0.3, 0.7, 0.5))


def lit_archive() -> BlocksworldArchive:
    """All states: each picture has lamps of its own, brighter or darker, from another side."""
    random = np.random.default_rng(0)
    patches = np.empty((len(STATES), WORLD.blocks, PATCH, PATCH, 3))
    boxes = np.empty((len(STATES), WORLD.blocks, 4), dtype=np.uint16)
    ramp = np.linspace(-1, 1, PATCH)
    for state, rows in enumerate(STATES.tolist()):
        across, down = random.uniform(-0.6, 0.6, 2)
        light = random.uniform(0.3, 1.2) * np.exp(across * ramp[None, :] + down * ramp[:, None])
        shift = random.integers(-3, 4, 2)
        for block, (stack, level, metal) in enumerate(rows):
            below = [_HEIGHTS[b] for b, r in enumerate(rows) if r[0] == stack and r[1] < level]
            texture = np.array(_COLOURS[block]) * np.ones((PATCH, PATCH, 1))
            texture[:8] *= 1.6 if metal else 1.0
            tint = random.uniform(0.9, 1.1, 3)
            noise = random.normal(0, 0.01, texture.shape)
            patches[state, block] = texture * light[..., None] * tint + noise
            x, y = 20 + 35 * stack + shift[0], 90 - sum(below) + shift[1]
            boxes[state, block] = (x, y - _HEIGHTS[block], x + 12, y)
    pairs = WORLD.rank(STATES).argsort()[WORLD.transitions()].numpy()
    images = (255 * patches.clip(0, 1)).astype(np.uint8)
    return BlocksworldArchive(images, boxes, (110, 130), pairs)
