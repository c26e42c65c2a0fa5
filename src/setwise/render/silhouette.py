"""Where the blocks are in the picture: pixels they cover, and boxes around what can be seen.

Legend: N blocks; W, H width and height in pixels. Pixel (0, 0) is at the top left; a box is
(x1, y1, x2, y2) with x2 and y2 one past the last pixel, so that ``image[y1:y2, x1:x2]`` is the cut.

Rays through a fine grid of points march towards each block by their distance to it until they
touch it or pass; the nearest block owns the point. This needs no renderer, so that all have the
same boxes, and follows the true outline: rounded edges, rotation, and what stands in front.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from setwise.render.environment import Environment
from setwise.render.scene import AIM, FIELD_OF_VIEW, PlacedBlock, Scene, Vector, camera_corners
from setwise.render.shapes import Floats, distance, rotation_about_z

Window = tuple[slice, slice]  # rows and columns

_GRID = 4  # points per pixel, along each axis
_STEPS = 40
_TOUCH = 1e-3  # a fiftieth of a pixel


def project(camera: Vector, points: Floats, width: int, height: int, aim: Vector = AIM) -> Floats:
    """Points [*, 3] of the scene as x, y in pixels and depth along the view: [*, 3]."""
    right, up, ahead = _axes(camera, aim)
    offset = points - np.array(camera)
    depth = offset @ ahead
    scale = width / 2 / math.tan(math.radians(FIELD_OF_VIEW) / 2) / depth
    return np.stack(
        [width / 2 + scale * (offset @ right), height / 2 - scale * (offset @ up), depth], axis=-1
    )


def visible_blocks(scene: Scene, width: int, height: int) -> NDArray[np.int8]:
    """Whose each point is, [4 H, 4 W], four by four points for each pixel; -1 is nobody's."""
    size = (_GRID * height, _GRID * width)
    return _visible(scene, size, lambda window: rays_of(scene, width, height, _GRID, window))[0]


def rays_of(
    scene: Scene, width: int, height: int, grid: int, window: Window = np.s_[:, :]
) -> Floats:
    """Unit vectors from the camera, ``grid`` by ``grid`` for each pixel: [grid H, grid W, 3].

    Of these the ones in a window.
    """
    to_right, up, ahead = _axes(scene.camera, scene.aim)
    unit = math.tan(math.radians(FIELD_OF_VIEW) / 2) / (width / 2)
    x = ((np.arange(grid * width) + 0.5) / grid - width / 2) * unit
    y = (height / 2 - (np.arange(grid * height) + 0.5) / grid) * unit
    x, y = x[window[1]], y[window[0]]
    rays: Floats = ahead + x[None, :, None] * to_right + y[:, None, None] * up
    across, along, upwards = np.moveaxis(rays, -1, 0)
    rays /= np.sqrt(across**2 + along**2 + upwards**2)[..., None]
    return rays


def visible_surfaces(scene: Scene, rays: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Which block each of the rays [rows, columns, 3] meets first, -1 for none, and how far."""
    return _visible(scene, (rays.shape[0], rays.shape[1]), lambda window: rays[window])


def _visible(
    scene: Scene, size: tuple[int, int], rays: Callable[[Window], Floats]
) -> tuple[NDArray[np.int8], Floats]:
    """The same by the rays in windows around the blocks, out of so many rows and columns."""
    rows, columns = size
    owner = np.full((rows, columns), -1, dtype=np.int8)
    nearest = np.full((rows, columns), np.inf)
    for number, placed in enumerate(scene.blocks):
        corners = np.array(placed.location) + _reach(placed) * _CORNERS
        x, y, _ = project(scene.camera, corners, columns, rows, scene.aim).T
        left, right = (int(np.clip(edge, 0, columns)) for edge in (x.min(), x.max() + 1))
        top, bottom = (int(np.clip(edge, 0, rows)) for edge in (y.min(), y.max() + 1))
        window = np.s_[top:bottom, left:right]
        depth = _march(scene.camera, placed, rays(window))
        closer = depth < nearest[window]
        nearest[window][closer] = depth[closer]
        owner[window][closer] = number
    return owner, nearest


def boxes(scene: Scene, width: int, height: int) -> NDArray[np.uint16]:
    """The box [N, 4] around the visible part of each block."""
    owner = visible_blocks(scene, width, height)
    found = []
    for number in range(len(scene.blocks)):
        own = owner == number
        y, x = (own.any(axis).nonzero()[0] for axis in (1, 0))
        if not len(x):
            raise ValueError(f"block {number} cannot be seen in a picture of {width} x {height}")
        x1, y1, x2, y2 = (int(edge) // _GRID for edge in (x.min(), y.min(), x.max(), y.max()))
        found.append((x1, y1, x2 + 1, y2 + 1))
    return np.array(found, dtype=np.uint16)


def require_in_frame(environment: Environment, width: int, height: int) -> None:
    """An error unless all states fit into the picture, wherever the jitter moves the camera."""
    reach = max(math.hypot(1, 1) * block.half for block in environment.blocks)
    tall = sum(2 * block.half for block in environment.blocks)
    low = np.array([min(environment.stack_x) - reach, -reach, 0.0])
    high = np.array([max(environment.stack_x) + reach, reach, tall])
    corners = np.where(_CORNERS < 0, low, high)
    for camera in camera_corners():
        x, y, _ = project(camera, corners, width, height).T
        if min(x.min(), y.min()) < 0 or x.max() > width - 1 or y.max() > height - 1:
            raise ValueError(
                f"a picture of {width} x {height} would cut off states of {environment.world}: "
                f"the stacks take {high[0] - low[0]:.1f} and a stack of all blocks is {tall:.1f} "
                f"high; use another picture size, fewer blocks or stacks, or another seed"
            )


_CORNERS = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=float)


def _axes(camera: Vector, aim: Vector) -> tuple[Floats, Floats, Floats]:
    """Right, up and ahead as the camera sees them."""
    ahead = np.array(aim) - np.array(camera)
    ahead /= np.linalg.norm(ahead)
    right = np.cross(ahead, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    return right, np.cross(right, ahead), ahead


def _reach(placed: PlacedBlock) -> Floats:
    """Half of the widest box along the axes that the block fits into, whatever its rotation."""
    half = placed.block.half
    across = half * (math.sqrt(2) if placed.block.shape == "cube" else 1)
    return np.array([across, across, half])


def _march(camera: Vector, placed: PlacedBlock, rays: Floats) -> Floats:
    """How far the block is along rays [*, 3] from the camera, infinite where they miss it: [*]."""
    # In the block's own axes.
    turn = rotation_about_z(placed.block.rotation)
    start = (np.array(camera) - placed.location) @ turn
    half, middle = placed.block.half, float(np.linalg.norm(start))
    shape, rays = rays.shape[:-1], (rays @ turn).reshape(-1, 3)
    travelled = np.full(len(rays), middle - 2 * half)
    depth, underway = np.full(len(rays), np.inf), np.arange(len(rays))
    for _ in range(_STEPS):
        gap = distance(placed.block.shape, half, start + travelled[:, None] * rays)
        travelled = travelled + gap
        touched = gap < _TOUCH
        depth[underway[touched]] = travelled[touched]
        on = ~touched & (travelled < middle + 2 * half)
        rays, travelled, underway = rays[on], travelled[on], underway[on]
    return depth.reshape(shape)
