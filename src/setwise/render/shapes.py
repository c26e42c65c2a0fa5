"""The bodies in the picture as triangle meshes: blocks with rounded edges, and the backdrop.

Legend: V vertices, F triangles. Every backend draws these meshes, so that all show the same scene.

A block is a core, a smaller cube or cylinder, and all points at most ``bevel`` away from it. That
gives the vertices, their exact normals, and the distance of any point to the surface. A sphere is
just that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Shape = Literal["cube", "cylinder", "sphere"]
Floats = NDArray[np.float64]

BEVEL = 0.12  # of the half extent
_ARC = 6  # segments of an edge's quarter circle
_ROUND = 96  # segments around a cylinder: a polygon 0.0004 away from its circle
_SWEEP = 64  # segments of the quarter circle of the backdrop


class Backdrop(NamedTuple):
    """The ground, flat from the y ``front`` to ``bend``, then a quarter circle upwards."""

    front: float
    bend: float
    radius: float
    side: float  # half of its width


BACKDROP = Backdrop(front=-40.0, bend=15.0, radius=23.0, side=60.0)


@dataclass(frozen=True)
class Mesh:
    """Triangles that turn counter-clockwise seen from outside, with a normal at each vertex."""

    vertices: Floats  # [V, 3]
    normals: Floats  # [V, 3]
    faces: NDArray[np.int64]  # [F, 3]

    def placed(self, rotation: float, location: tuple[float, float, float]) -> Mesh:
        """The same turned about z, in degrees, and moved."""
        turn = rotation_about_z(rotation)
        return Mesh(self.vertices @ turn.T + location, self.normals @ turn.T, self.faces)


def rotation_about_z(degrees: float) -> Floats:
    """The matrix [3, 3] that turns points counter-clockwise seen from above."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])


def block_mesh(shape: Shape, half: float) -> Mesh:
    """A block of half extent ``half`` around the origin, standing on z = -half."""
    return {"cube": _cube, "cylinder": _cylinder, "sphere": _sphere}[shape](half)


def distance(shape: Shape, half: float, points: Floats) -> Floats:
    """How far points [*, 3] are outside a block's surface, negative inside: [*]."""
    # One by one: NumPy is slow along axes that are so short.
    x, y, z = points[..., 0], points[..., 1], points[..., 2]
    if shape == "sphere":
        round_one: Floats = np.sqrt(x * x + y * y + z * z) - half
        return round_one
    bevel = BEVEL * half
    sides = [np.abs(x), np.abs(y)] if shape == "cube" else [np.hypot(x, y)]
    first, *others = (side - (half - bevel) for side in (*sides, np.abs(z)))
    deepest, squares = first, np.maximum(first, 0) ** 2
    for beyond in others:
        deepest = np.maximum(deepest, beyond)
        squares = squares + np.maximum(beyond, 0) ** 2
    result: Floats = np.sqrt(squares) + np.minimum(deepest, 0) - bevel
    return result


def backdrop() -> Mesh:
    """The ground, z = 0, which behind the blocks sweeps up into a wall."""
    angle = np.linspace(0, math.pi / 2, _SWEEP + 1)
    y = np.concatenate([[BACKDROP.front], BACKDROP.bend + BACKDROP.radius * np.sin(angle)])
    z = np.concatenate([[0.0], BACKDROP.radius * (1 - np.cos(angle))])
    normal = np.stack([0 * y, [0.0, *-np.sin(angle)], [1.0, *np.cos(angle)]], axis=-1)
    left, right = (np.stack([0 * y + side, y, z], -1) for side in (-BACKDROP.side, BACKDROP.side))
    return Mesh(
        np.stack([left, right], axis=1).reshape(-1, 3),
        np.repeat(normal, 2, axis=0),
        _grid_faces(len(y), 2)[:, ::-1],
    )


def _cube(half: float) -> Mesh:
    """Each side is a grid, dense where it bends over an edge up to half way around."""
    bevel = BEVEL * half
    arc = half - bevel + bevel * np.tan(np.linspace(0, math.pi / 4, _ARC // 2 + 1))
    line = np.concatenate([-arc[::-1], arc])
    u, v = (grid.ravel() for grid in np.meshgrid(line, line, indexing="ij"))
    faces = _grid_faces(len(line), len(line))
    sides: list[Floats] = []
    triangles: list[NDArray[np.int64]] = []
    for axis in range(3):
        for sign in (-1.0, 1.0):
            side = np.full((len(u), 3), sign * half)
            side[:, (axis + 1) % 3], side[:, (axis + 2) % 3] = u, v
            triangles.append(faces[:, :: int(sign)] + len(u) * len(sides))
            sides.append(side)
    surface = np.concatenate(sides)
    core = surface.clip(-(half - bevel), half - bevel)
    normals = surface - core
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
    return Mesh(core + bevel * normals, normals, np.concatenate(triangles))


def _cylinder(half: float) -> Mesh:
    """A profile from the middle of the top, over both edges, to the middle of the bottom."""
    bevel = BEVEL * half
    arc = np.linspace(0, math.pi / 2, _ARC + 1)
    edge = np.stack([np.sin(arc), np.cos(arc)], axis=-1)  # the normals of the upper edge
    normals = np.concatenate([[[0, 1]], edge, edge[::-1] * [1, -1], [[0, -1]]])
    core = np.full((len(normals), 2), half - bevel)
    core[[0, -1], 0] = 0
    core[len(core) // 2 :, 1] *= -1
    return _turned(core + bevel * normals, normals)


def _sphere(half: float) -> Mesh:
    """A profile from the top to the bottom."""
    angle = np.linspace(0, math.pi, _ROUND // 2 + 1)
    normals = np.stack([np.sin(angle), np.cos(angle)], axis=-1)
    normals[[0, -1], 0] = 0  # exactly, as both ends are one point
    return _turned(half * normals, normals)


def _turned(profile: Floats, normals: Floats) -> Mesh:
    """What a profile [p, 2], distances from the axis and heights, sweeps over when it is turned."""
    turn = np.linspace(0, 2 * math.pi, _ROUND + 1)
    cos, sin, one = np.cos(turn), np.sin(turn), np.ones_like(turn)
    vertices, normals = (
        np.stack([np.outer(r, cos), np.outer(r, sin), np.outer(z, one)], -1).reshape(-1, 3)
        for r, z in (profile.T, normals.T)
    )
    faces = _grid_faces(len(profile), len(turn))
    first, last = faces < len(turn), faces >= len(vertices) - len(turn)  # all one point, each
    return Mesh(vertices, normals, faces[(first.sum(1) < 2) & (last.sum(1) < 2)])


def _grid_faces(rows: int, columns: int) -> NDArray[np.int64]:
    """Two triangles for each cell of a grid whose vertices are counted row by row."""
    corner = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).ravel()
    right, below = corner + 1, corner + columns
    lower, upper = [corner, below, below + 1], [corner, below + 1, right]
    return np.concatenate([np.stack(lower, -1), np.stack(upper, -1)])
