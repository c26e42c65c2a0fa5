"""Scenes sketched in a moment, by nothing but NumPy: true outlines, simple light, no shadows.

Legend: W, H width and height in pixels; P points, G by G for each pixel.

A path tracer takes seconds for a picture. Where thousands are needed at once and looks need not be
true, as for a first try, a sketch will do: what the camera sees, lit directly by each lamp and the
sun. Rubber gives light back evenly; metal mirrors the lamps, the ground, and a dark room above.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from setwise.render.light import display
from setwise.render.scene import GROUND, PlacedBlock, Scene
from setwise.render.shapes import Floats, distance, rotation_about_z
from setwise.render.silhouette import rays_of, visible_surfaces

_VERSION = 1
_WALL = 38.0  # the y of what is behind the ground
_AMBIENT = 0.08  # light that comes from everywhere
_SHINE = 40.0  # the larger, the smaller a lamp is in the mirror
_MIRRORED = 0.35, 0.05  # what metal sees of the ground below and the room above
_STEP = 1e-3  # between points whose distances tell a normal


class SketchRenderer:
    """Draws scenes as uint8 [H, W, 3], with at least ``samples`` points for each pixel."""

    def __init__(self, width: int, height: int, samples: int) -> None:
        self.width, self.height, self.grid = width, height, math.ceil(math.sqrt(samples))

    def __call__(self, scene: Scene) -> NDArray[np.uint8]:
        rays = rays_of(scene, self.width, self.height, self.grid)
        owner, depth = visible_surfaces(scene, rays)
        behind = _background(scene, rays_of(scene, self.width, self.height, grid=1))
        picture = behind.repeat(self.grid, axis=0).repeat(self.grid, axis=1)  # smooth as it is
        for number, placed in enumerate(scene.blocks):
            own = owner == number
            points = np.array(scene.camera) + depth[own, None] * rays[own]
            picture[own] = _lit(scene, placed, points, rays[own])
        shape = (self.height, self.grid, self.width, self.grid, 3)
        return display(picture.reshape(shape).mean((1, 3)))

    def close(self) -> None:
        """Nothing is held."""


def version() -> str:
    """What pictures depend on besides the scene."""
    return f"sketch {_VERSION}"


def _background(scene: Scene, rays: Floats) -> Floats:
    """The ground, z = 0, and the wall behind it, wherever rays [*, 3] meet them: [*, 3]."""
    x, y, z = scene.camera
    with np.errstate(divide="ignore"):
        down = np.where(rays[..., 2] < 0, -z / rays[..., 2], np.inf)
    back = (_WALL - y) / rays[..., 1]
    points = np.array([x, y, z]) + np.minimum(down, back)[..., None] * rays
    normals = np.where((down < back)[..., None], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0])
    return GROUND * _received(scene, points, normals)


def _lit(scene: Scene, placed: PlacedBlock, points: Floats, rays: Floats) -> Floats:
    """The light [P, 3] that points of a block send back along the rays [P, 3] that met them."""
    normals = _normals(placed, points)
    if placed.material == "rubber":
        return np.array(placed.colour) * _received(scene, points, normals)
    mirrored = rays - 2 * (rays * normals).sum(-1, keepdims=True) * normals
    below, above = _MIRRORED
    seen = np.where(mirrored[:, 2:] < 0, below, above) * np.ones(3)
    for lamp in scene.lamps:
        towards = np.array(lamp.position) - points
        towards /= np.linalg.norm(towards, axis=-1, keepdims=True)
        near = (mirrored * towards).sum(-1, keepdims=True).clip(0, 1) ** _SHINE
        seen += near * np.array(lamp.colour)
    result: Floats = np.array(placed.colour) * seen
    return result


def _received(scene: Scene, points: Floats, normals: Floats) -> Floats:
    """The light that points [*, 3] of a dull white surface give back: [*, 3]."""
    sun = scene.sun
    light = np.full(points.shape, _AMBIENT)
    light += (normals @ -np.array(sun.direction)).clip(0)[..., None] * sun.irradiance / math.pi
    for lamp in scene.lamps:
        towards = np.array(lamp.position) - points
        far = np.linalg.norm(towards, axis=-1, keepdims=True)
        ahead = np.array(scene.aim) - lamp.position
        leaving = (-towards @ (ahead / np.linalg.norm(ahead)))[..., None].clip(0)
        falling = (normals * towards).sum(-1, keepdims=True).clip(0) * leaving / far**4
        light += falling * np.array(lamp.radiance) * lamp.side**2 / math.pi
    return light


def _normals(placed: PlacedBlock, points: Floats) -> Floats:
    """The unit normals [P, 3] of a block at points of its surface: where the distance grows."""
    turn = rotation_about_z(placed.block.rotation)
    own = (points - placed.location) @ turn
    shape, half = placed.block.shape, placed.block.half
    slopes = [
        distance(shape, half, own + step) - distance(shape, half, own - step)
        for step in _STEP * np.eye(3)
    ]
    normals = np.stack(slopes, axis=-1) @ turn.T
    result: Floats = normals / np.linalg.norm(normals, axis=-1, keepdims=True).clip(1e-9)
    return result
