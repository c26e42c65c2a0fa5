"""Boxes around what is seen of blocks; Mitsuba is their oracle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pictured_scenes import WIDE, WORLD, boxes_of, scenes
from setwise.data import Blocksworld
from setwise.render import (
    Block,
    Environment,
    Scene,
    Settings,
    boxes,
    scene_of,
    visible_blocks,
)
from setwise.render.mitsuba import MitsubaRenderer, bodies
from setwise.render.silhouette import project, require_in_frame


def owners_by_mitsuba(scene: Scene, width: int, height: int) -> NDArray[np.int64]:
    """The block [H, W] at one random point of each pixel, -1 for none, by Mitsuba's own rays."""
    import mitsuba as mi

    sensor = MitsubaRenderer(width, height, samples=1)._sensor(scene)
    integrator = {"type": "aov", "aovs": "id:shape_index"}
    with mi.util.variant_context("scalar_rgb"):
        whole = mi.load_dict(
            {"type": "scene", "integrator": integrator, "sensor": sensor, **bodies(scene)}
        )
        index = np.array(mi.render(whole, spp=1))[..., 0].astype(np.int64)
        names = ["nothing", *(shape.id() for shape in whole.shapes())]
    numbers = [int(name[5:]) if name.startswith("block") else -1 for name in names]
    return np.array(numbers)[index]


def test_boxes_are_those_of_mitsuba() -> None:
    """Within a pixel of what it sees at random points, four by four in each, and mostly equal."""
    same = []
    for scene in scenes(1):
        expected = boxes_of(owners_by_mitsuba(scene, 4 * 75, 4 * 50), 5, fine=4)
        found = boxes(scene, 75, 50).astype(int)
        assert np.abs(found - expected).max() <= 1
        same.append((found == expected).mean())
    assert np.mean(same) > 0.8


def test_points_belong_to_the_block_in_front() -> None:
    """At the very same points but for the jitter within each: only outlines may differ."""
    for scene in scenes(2):
        found = visible_blocks(scene, 75, 50)
        expected = owners_by_mitsuba(scene, 4 * 75, 4 * 50)
        assert (found != expected).mean() < 0.01
        inside = np.ones_like(found, dtype=bool)
        for axis in (0, 1):
            for step in (-1, 1):
                inside &= found == np.roll(found, step, axis)
        assert (found == expected)[inside].mean() > 0.999


def test_boxes_follow_the_true_outline() -> None:
    """A cube on edge is wider than the box of the same cube that was never turned."""
    world = Blocksworld(blocks=1, stacks=2)
    widths = []
    for rotation in (0.0, 45.0):
        block = Block("cube", "large", "red", rotation)
        environment = Environment(world, (block,), (0.0, 1.5))
        x1, _, x2, _ = boxes(scene_of(environment, world.unrank(torch.tensor(0)), 0), 300, 200)[
            0
        ].tolist()
        widths.append(x2 - x1)
    flat, on_edge = widths
    assert on_edge > 1.2 * flat


def test_a_hidden_block_gets_no_box_of_its_own() -> None:
    """Boxes are of what is seen: a block moved behind another one shrinks, or is an error."""
    scene = scene_of(WIDE, WORLD.unrank(torch.tensor(0)), seed=0)
    front, behind = scene.blocks[0], scene.blocks[1]
    x = front.location[0]
    hidden = replace(behind, block=replace(behind.block, size="small"), location=(x, 1.5, 0.45))
    with pytest.raises(ValueError, match="block 1 cannot be seen in a picture of 300 x 200"):
        boxes(replace(scene, blocks=(front, hidden)), 300, 200)
    peeping = replace(hidden, location=(x + 0.8, 1.5, 0.45))
    one, two = boxes(replace(scene, blocks=(front, peeping)), 300, 200).astype(int)
    assert one[2] - 3 <= two[0] < one[2] < two[2]  # only the right of it shows


def test_nothing_is_cut_off() -> None:
    require_in_frame(WIDE, 300, 200)
    require_in_frame(WIDE, 60, 40)
    for scene in scenes(8):
        found = boxes(scene, 300, 200)
        assert found.min() > 0
        assert (found[:, 2:] < [300, 200]).all()
    with pytest.raises(ValueError, match=r"300 x 100 would cut off states of .* 7\.0 high"):
        require_in_frame(WIDE, 300, 100)
    with pytest.raises(ValueError, match="100 x 200 would cut off"):
        Settings(replace(WIDE, stack_x=(-8.0, 0.0, 8.0)), width=100, height=200)


def test_middles_are_inside_their_boxes() -> None:
    for scene in scenes(3):
        middles = project(scene.camera, np.array([b.location for b in scene.blocks]), 300, 200)
        found = boxes(scene, 300, 200)
        assert (found[:, :2] < middles[:, :2]).all()
        assert (middles[:, :2] < found[:, 2:]).all()
        assert (np.abs(middles[:, 2] - 16) < 2).all()
