"""Sketches, held against what Mitsuba draws of the same scenes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pictured_scenes import scenes
from setwise.data import Blocksworld
from setwise.render import Block, Environment, Scene, boxes, open_renderer, scene_of, visible_blocks
from setwise.render.environment import COLOURS


def sketched(scene: Scene, samples: int = 4) -> NDArray[np.int64]:
    with open_renderer("sketch", width=90, height=60, samples=samples) as draw:
        picture = draw(scene)
    assert picture.shape == (60, 90, 3)
    assert picture.dtype == np.uint8
    return picture.astype(np.int64)


def test_a_sketch_is_like_mitsubas_picture_of_the_same_scene_and_of_no_other() -> None:
    drawn = scenes(1)
    with open_renderer("mitsuba", width=90, height=60, samples=8) as draw:
        true = np.stack([draw(scene) for scene in drawn]).astype(np.int64)
    sketches = np.stack([sketched(scene) for scene in drawn])
    shown = np.stack([visible_blocks(scene, 90, 60)[::4, ::4] >= 0 for scene in drawn])
    somewhere = shown.any(0)  # the ground is much the same in all of them
    apart = np.abs(true[:, None] - sketches)[:, :, somewhere].mean((2, 3))
    assert apart.diagonal().max() < 40
    assert apart.argmin(0).tolist() == apart.argmin(1).tolist() == list(range(len(drawn)))


def test_a_scene_always_gives_the_same_sketch_and_noise_has_no_part_in_it() -> None:
    scene = scenes(1)[0]
    assert np.array_equal(sketched(scene), sketched(replace(scene, noise=scene.noise + 1)))
    # More points in each pixel make edges smooth, and no other picture.
    fine = np.abs(sketched(scene, samples=1) - sketched(scene, samples=36)).mean()
    assert 0 < fine < 2


@pytest.mark.parametrize("shape", ["cube", "cylinder"])
def test_colours_and_materials_can_be_told(shape: str) -> None:
    world, seen = Blocksworld(blocks=1, stacks=2), []
    for colour in COLOURS:
        for metal in (0, 1):
            block = Block(shape, "large", colour, 20.0)  # type: ignore[arg-type]
            environment = Environment(world, (block,), (0.0, 1.5))
            scene = scene_of(environment, torch.tensor([[0, 0, metal]]), seed=0)
            scene = replace(scene, camera=(0.0, -16.0, 6.0))
            x1, y1, x2, y2 = boxes(scene, 90, 60)[0].astype(int)
            seen.append(sketched(scene)[y1 + 2 : y2 - 2, x1 + 2 : x2 - 2])
    apart = np.array([[np.abs(one - two).mean() for one in seen] for two in seen])
    assert apart[~np.eye(len(seen), dtype=bool)].min() > 10
