"""All states of a small Blocksworld in painted photographs, so that nothing has to be rendered.

Two blocks on three stacks, in two colours, brighter where they are of metal.
"""

from __future__ import annotations

import numpy as np

from setwise.data.blocksworld import Blocksworld
from setwise.data.blocksworld_archive import PATCH, BlocksworldArchive
from setwise.experiments.tasks import BlocksData

WORLD = Blocksworld(blocks=2, stacks=3)
DATA = BlocksData(
    blocks=2,
    states=48,
    width=60,
    height=40,
    train=48,
    patch_channels=4,
    patch_epochs=5,
    patch_batch=24,
    patch_rate=3e-3,
)
COLOURS = np.array([[0.9, 0.2, 0.1], [0.1, 0.3, 0.9]])


def painted(seed: int = DATA.seed) -> BlocksworldArchive:
    """All states in the order of a sample, as ``setwise data blocksworld`` writes them."""
    random = np.random.default_rng(0)
    states = WORLD.sample(DATA.states, seed)
    stack, level, metal = (column.numpy() for column in states.unbind(-1))
    shade = np.where(metal, 1.0, 0.4)[..., None, None, None]
    patches = COLOURS[:, None, None] * shade * np.ones((PATCH, PATCH, 1))
    patches = (patches + random.normal(0, 0.02, patches.shape)).clip(0, 1)
    x, y = 5 + 18 * stack + random.integers(0, 2, stack.shape), 25 - 12 * level
    boxes = np.stack([x, y, x + 12, y + 12], axis=-1).astype(np.uint16)
    pairs = WORLD.rank(states).argsort()[WORLD.transitions()].numpy()
    images = (255 * patches).astype(np.uint8)
    return BlocksworldArchive(images, boxes, (DATA.height, DATA.width), pairs)
