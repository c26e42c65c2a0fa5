"""From pictures to arrays: the blocks of each state, cut out and brought to one size.

Legend: S states, N blocks, T transitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from setwise.data.blocksworld import Blocksworld
from setwise.data.blocksworld_archive import PATCH, BlocksworldArchive
from setwise.outside import named
from setwise.render import files


def collect(world: Blocksworld, states: Tensor, folder: str | Path) -> BlocksworldArchive:
    """The blocks of states [S, N, 3] out of the pictures that `render_states` drew of them.

    The archive has the states in this order, and every legal action from one of them to another.
    """
    folder = Path(folder)
    states = world.check(states).reshape(-1, world.blocks, 3)
    drawn, width, height = _drawn(folder)
    if drawn != asdict(world):
        raise ValueError(f"{folder} is of {drawn}, not of {world}")
    patches = np.empty((len(states), world.blocks, PATCH, PATCH, 3), dtype=np.uint8)
    boxes = np.empty((len(states), world.blocks, 4), dtype=np.uint16)
    for index, rank in enumerate(world.rank(states).tolist()):
        image, description = files.load(folder, rank, (width, height))
        with named(files.scene_path(folder, rank)):
            boxes[index] = _boxes(description, world.blocks, width, height)
        patches[index] = cut(image, boxes[index])
    return BlocksworldArchive(patches, boxes, (height, width), transitions_among(world, states))


def _drawn(folder: Path) -> tuple[Any, int, int]:
    """The world that the pictures of a folder show, and their width and height."""
    settings = files.read_settings(folder)
    environment, width, height = map(settings.get, ("environment", "width", "height"))
    if not (isinstance(environment, dict) and isinstance(width, int) and isinstance(height, int)):
        path = folder / files.SETTINGS
        raise ValueError(f"{path}: expected environment, width and height of the pictures")
    return environment.get("world"), width, height


def _boxes(description: dict[str, Any], blocks: int, width: int, height: int) -> list[list[int]]:
    """Where each block is, as the description of a picture says."""
    objects = description.get("objects")
    if not isinstance(objects, list) or len(objects) != blocks:
        raise ValueError(f"expected objects, a list of the {blocks} blocks")
    found: list[list[int]] = []
    for block in objects:
        box = block.get("bbox") if isinstance(block, dict) else None
        if not isinstance(box, list) or len(box) != 4 or not all(type(one) is int for one in box):
            raise ValueError(f"bbox: expected four whole numbers, got {box!r:.60}")
        x1, y1, x2, y2 = box
        if not (0 <= x1 < x2 <= width and 0 <= y1 < y2 <= height):
            raise ValueError(f"bbox: expected one within the picture, got {box!r:.60}")
        found.append(box)
    return found


def read_pictures(
    folder: Path, ranks: Sequence[int], blocks: int, size: tuple[int, int]
) -> tuple[NDArray[np.uint8], list[list[dict[str, Any]]]]:
    """Whole pictures [S, H, W, 3] of states, by rank, and the blocks that each of them shows.

    The blocks are as `files.describe` has them; their boxes were checked.
    """
    width, height = size
    pictures = np.empty((len(ranks), height, width, 3), dtype=np.uint8)
    objects = []
    for index, rank in enumerate(ranks):
        image, description = files.load(folder, rank, size)
        with named(files.scene_path(folder, rank)):
            _boxes(description, blocks, width, height)
        pictures[index] = np.asarray(image.convert("RGB"))
        objects.append(description["objects"])
    return pictures, objects


def cut_array(picture: NDArray[np.uint8], boxes: NDArray[Any]) -> NDArray[np.uint8]:
    """See `cut`; of a picture [H, W, 3]."""
    return cut(Image.fromarray(picture), boxes)


def cut(image: Image.Image, boxes: NDArray[Any]) -> NDArray[np.uint8]:
    """The parts of an image in boxes [N, 4], each stretched to a square: [N, 32, 32, 3]."""
    image, size, smooth = image.convert("RGB"), (PATCH, PATCH), Image.Resampling.BILINEAR
    # Cropped first: a resize of part of an image also looks at the pixels around it.
    parts = [image.crop(tuple(box)) for box in boxes.tolist()]
    return np.stack([np.asarray(part.resize(size, smooth)) for part in parts])


def transitions_among(world: Blocksworld, states: Tensor) -> NDArray[np.int64]:
    """Pairs [T, 2] of indices into states [S, N, 3] between which there is a legal action."""
    ranks, index = world.rank(states).sort()
    after, legal = world.successors(states)
    before, reached = legal.nonzero()[:, 0], world.rank(after[legal])
    # For each state reached, its place in the sorted list if it has one.
    place = torch.searchsorted(ranks, reached).clamp(max=len(ranks) - 1)
    there = ranks[place] == reached
    pairs: NDArray[np.int64] = torch.stack([before, index[place]], dim=-1)[there].numpy()
    return pairs
