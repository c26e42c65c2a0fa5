"""Bodies of blocks, and scenes of them: where they rest, and what is drawn from the seed."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from pictured_scenes import WORLD, scenes
from setwise.render import (
    Block,
    Environment,
    scene_of,
)
from setwise.render import scene as looks
from setwise.render.environment import COLOURS, SHAPES, SIZES
from setwise.render.shapes import backdrop, block_mesh, distance


@pytest.mark.parametrize("half", SIZES.values())
@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_are_closed_rounded_bodies(shape: Any, half: float) -> None:
    mesh = block_mesh(shape, half)
    assert mesh.vertices.min(0) == pytest.approx([-half] * 3)
    assert mesh.vertices.max(0) == pytest.approx([half] * 3)
    assert np.abs(distance(shape, half, mesh.vertices)).max() < 1e-12
    assert np.linalg.norm(mesh.normals, axis=1) == pytest.approx(1)
    # The normal is the direction in which the distance grows.
    away = distance(shape, half, mesh.vertices + 0.01 * mesh.normals)
    assert away == pytest.approx(0.01)
    corners = mesh.vertices[mesh.faces]
    across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert ((across * mesh.normals[mesh.faces].mean(1)).sum(-1) > 0).all()
    # Closed: the faces, as vectors, cancel out. The volume is a little less than with sharp edges.
    assert np.abs(across.sum(0)).max() < 1e-12
    volume = (corners[:, 0] * across).sum() / 6
    sharp = 8 * half**3 * (1 if shape == "cube" else math.pi / 4)
    assert 0.97 * sharp < volume < 0.995 * sharp


def test_distance_outside_and_inside() -> None:
    points = np.array([[0.0, 0, 0], [1.0, 0, 0], [0, 0, -2.0], [0.9, 1.3, 0]])
    assert distance("cube", 0.5, points) == pytest.approx(
        [-0.5, 0.5, 1.5, math.hypot(0.46, 0.86) - 0.06]
    )
    assert distance("cylinder", 0.5, points)[:3] == pytest.approx([-0.5, 0.5, 1.5])
    assert distance("cylinder", 0.5, points)[3] == pytest.approx(math.hypot(0.9, 1.3) - 0.5)


def test_the_ground_is_flat_under_the_blocks_and_sweeps_up_behind() -> None:
    mesh = backdrop()
    assert mesh.vertices.max(0) == pytest.approx([60, 38, 23])
    assert (mesh.vertices[mesh.vertices[:, 1] <= 15.0, 2] == 0).all()
    corners = mesh.vertices[mesh.faces]
    across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert ((across * mesh.normals[mesh.faces].mean(1)).sum(-1) > 0).all()


# Scenes.


def test_blocks_rest_on_the_ground_or_on_each_other() -> None:
    for seed in range(20):
        environment = Environment.draw(WORLD, seed)
        state = WORLD.sample(1, seed)[0]
        scene = scene_of(environment, state, seed)
        rows = state.tolist()
        for number, ((stack, level, metal), placed) in enumerate(
            zip(rows, scene.blocks, strict=True)
        ):
            assert placed.block == environment.blocks[number]
            assert placed.material == ("metal" if metal else "rubber")
            x, y, z = placed.location
            assert (x, y) == (environment.stack_x[stack], 0.0)
            below = [
                b
                for b, row in zip(scene.blocks, rows, strict=True)
                if row[:2] == [stack, level - 1]
            ]
            floor = below[0].location[2] + below[0].block.half if below else 0.0
            assert len(below) == (level > 0)
            assert z - placed.block.half == pytest.approx(floor)


def test_no_block_is_inside_another() -> None:
    for scene in scenes(6):
        for one, other in combinations(scene.blocks, 2):
            mesh = block_mesh(one.block.shape, one.block.half).placed(
                one.block.rotation, one.location
            )
            seen_from_other = mesh.vertices - other.location
            angle = -math.radians(other.block.rotation)
            turned = seen_from_other.copy()
            turned[:, 0] = (
                math.cos(angle) * seen_from_other[:, 0] - math.sin(angle) * seen_from_other[:, 1]
            )
            turned[:, 1] = (
                math.sin(angle) * seen_from_other[:, 0] + math.cos(angle) * seen_from_other[:, 1]
            )
            assert distance(other.block.shape, other.block.half, turned).min() > -1e-9


def test_environments_are_drawn_from_the_seed() -> None:
    drawn = [Environment.draw(WORLD, seed) for seed in range(200)]
    assert drawn[7] == Environment.draw(WORLD, 7)
    assert len(set(drawn)) == 200
    blocks = [block for environment in drawn for block in environment.blocks]
    assert {(b.shape, b.size) for b in blocks} == {(a, b) for a in SHAPES for b in SIZES}
    assert {block.colour for block in blocks} == set(COLOURS)
    assert all(len({block.colour for block in e.blocks}) == 5 for e in drawn)
    assert 0 <= min(b.rotation for b in blocks) < 10 < 350 < max(b.rotation for b in blocks) < 360
    gaps = np.diff([environment.stack_x for environment in drawn])
    assert 1.5 <= gaps.min() < 1.51 < 1.99 < gaps.max() <= 2.0
    assert np.abs([e.stack_x[0] + e.stack_x[-1] for e in drawn]).max() < 1e-3


def test_jitter_comes_from_seed_and_state_and_stays_within_bounds() -> None:
    environment = Environment.draw(WORLD, 0)
    states = WORLD.sample(300, seed=0)
    drawn = [scene_of(environment, state, seed=1) for state in states]
    assert drawn[5] == scene_of(environment, states[5], seed=1)
    assert drawn[5].camera != scene_of(environment, states[5], seed=2).camera
    assert len({scene.noise for scene in drawn}) == len({scene.camera for scene in drawn}) == 300
    camera = np.array([scene.camera for scene in drawn]) - [0, -16, 6]
    assert 0.48 < np.abs(camera).max() <= 0.5
    assert np.abs(camera.mean(0)).max() < 5 * 0.5 / math.sqrt(3 * 300)
    lamps = np.array([[lamp.position for lamp in scene.lamps] for scene in drawn])
    lamps -= [lamp.position for lamp in looks.LAMPS]
    assert 0.98 < np.abs(lamps).max() <= 1.0
    assert np.abs(lamps.mean(0)).max() < 5 * 1.0 / math.sqrt(3 * 300)
    together = np.concatenate([camera, lamps.reshape(300, -1)], axis=1)
    correlation = np.corrcoef(together.T) - np.eye(12)
    assert np.abs(correlation).max() < 5 / math.sqrt(300)


def test_draws_never_change() -> None:
    """Published pictures rest on these seeds."""
    environment = Environment.draw(WORLD, 0)
    assert environment.blocks[0] == Block("cylinder", "small", "brown", 103.619)
    assert environment.stack_x == (-1.7859, -0.0169, 1.7859)
    scene = scene_of(environment, WORLD.unrank(torch.tensor(1234)), seed=0)
    assert scene.camera == pytest.approx((0.110536605, -15.81823479, 6.350207337))
    assert scene.noise == 597488579
