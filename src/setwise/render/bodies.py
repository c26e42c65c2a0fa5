"""The blocks of many scenes as tensors, and where rays meet them: what the tracer sees.

Legend: S scenes, N blocks in the fullest of them, R rays, P pairs of a ray and a block near it.
Vectors have their x, y and z along the first dimension, [3, R].

Only sums, products, quotients and roots are taken, one number at a time: these are rounded alike
everywhere, so that a ray meets the same point on any device, alone or among a million others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, get_args

import torch
from torch import Tensor

from setwise.render.scene import Scene
from setwise.render.shapes import BACKDROP, BEVEL, Shape

GROUND = -1  # the owner of what is no block
_SHAPES: tuple[Shape, ...] = get_args(Shape)
_STEPS = 12  # from a body with sharp edges to the same with round ones
_TOUCH = 1e-3  # as of `silhouette`
_FLAT = 1e-5  # what sides without an edge are off by rounding, at most
_AROUND = {"cube": math.sqrt(3), "cylinder": math.sqrt(2), "sphere": 1.0}  # of the half extent
# Of a ball of the same surface, and so of the same shadow on average, the square of the radius.
_BALL = {"cube": 6 / math.pi, "cylinder": 1.5, "sphere": 1.0}
_SPARE = 1.01  # that balls around blocks are larger
_LEAST = 1e-9  # instead of zero, where it is divided by


class Rays(NamedTuple):
    """Rays from ``start`` along unit vectors, and the scene that each of them is in."""

    start: Tensor  # [3, R]
    way: Tensor  # [3, R]
    scene: Tensor  # int64 [R]

    def of(self, index: Tensor) -> Rays:
        """Those of some indices."""
        return Rays(self.start[:, index], self.way[:, index], self.scene[index])

    def at(self, far: Tensor) -> Tensor:
        """Points [3, R] so far along."""
        return self.start + far * self.way


def looked_up(table: Tensor, scene: Tensor, scenes: int) -> Tensor:
    """Columns of a table [*, fields, S], one for each ray [R], or one for all of them."""
    return table if scenes == 1 else table[..., scene]


def dot(one: Tensor, other: Tensor) -> Tensor:
    """The product [R] of vectors [3, R], summed in the same order whatever their number."""
    x, y, z = (one * other).unbind()
    return x + y + z


def unit(vectors: Tensor) -> Tensor:
    """Vectors [3, R] of length 1."""
    return vectors / dot(vectors, vectors).sqrt().clamp(min=_LEAST)


class Bodies:
    """The blocks of S scenes; ray tracing is all that it is for."""

    def __init__(self, scenes: Sequence[Scene], device: torch.device) -> None:
        self.number = len(scenes)
        self.most = max((len(scene.blocks) for scene in scenes), default=0)
        rows = [[_numbers(scene, place) for scene in scenes] for place in range(self.most)]
        table = torch.tensor(rows, dtype=torch.float64).reshape(self.most, self.number, _WIDTH)
        # For each block [fields, S], in a row, so that one lookup gives all of them.
        self.table = table.movedim(-1, 1).contiguous().to(device, torch.float32)
        self._flat = self.table.movedim(1, 0).reshape(_WIDTH, -1)

    def close(self, rays: Rays, spread: float | Tensor) -> Tensor:
        """Which rays [R] are near a block, or others that differ by an angle up to ``spread``."""
        across, radius = self._across(rays)
        along = dot(across, rays.way.unsqueeze(1))
        wide = radius + spread * along.abs()
        return ((dot(across, across) - along * along < wide * wide) & (radius > 0)).any(0)

    def nearest(self, rays: Rays) -> tuple[Tensor, Tensor]:
        """How far each ray goes [R], infinitely if it meets nothing, and whose is what it meets."""
        far = ground(rays)
        owner = torch.full_like(rays.scene, GROUND)
        pairs = self._met(rays, far)
        if pairs is not None:
            ray, block, along = pairs
            first = far.scatter_reduce(0, ray, along, "amin")
            wins = along == first[ray]
            ray, block = ray[wins], block[wins]
            nobody = torch.full_like(owner, self.most)
            lowest = nobody.scatter_reduce(0, ray, block, "amin")
            owner = torch.where(lowest < self.most, lowest, owner)
            far = first
        return far, owner

    def blocked(self, rays: Rays, reach: Tensor) -> Tensor:
        """Whether a block is met before ``reach`` [R]: bool [R]."""
        result = torch.zeros_like(reach, dtype=torch.bool)
        pairs = self._met(rays, reach)
        if pairs is not None:
            result[pairs[0]] = True
        return result

    def normals(self, points: Tensor, scene: Tensor, owner: Tensor) -> Tensor:
        """Unit vectors [3, R] that stand on the surface of whatever owns points [3, R]."""
        block = owner.clamp(min=0)
        own = self._fields(block, scene)
        local = _turned(points - own.middle, own)
        cylinder = own.shape == _SHAPES.index("cylinder")
        found = _turned_back(unit(_away(local, own.core, cylinder)), own)
        return torch.where(owner >= 0, found, ground_normals(points))

    def colours(self, scene: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
        """The colour [3, R] of blocks, and whether they are of metal [R]."""
        own = self._fields(owner, scene)
        return own.colour, own.metal > 0

    def balls(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of every block its colour [3, N S], whether it is metal, and how large a ball like it is.

        The last as the square of the radius.
        """
        own = _Fields.read(self._flat)
        across = own.core.new_tensor([_BALL[shape] for shape in _SHAPES])[own.shape.long()]
        return own.colour, own.metal > 0, across * own.half * own.half

    def _fields(self, block: Tensor, scene: Tensor) -> _Fields:
        return _Fields.read(self._flat.index_select(1, block * self.number + scene))

    def _met(self, rays: Rays, reach: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
        """All meetings [P] before ``reach`` [R]: of which ray, with which block, and how far."""
        ray, block, nearby = self._near(rays, reach)
        if not len(ray):
            return None
        own = self._fields(block, rays.scene[ray])
        # From the point that is nearest to the middle of a block all numbers are small.
        start = _turned(rays.start[:, ray] + nearby * rays.way[:, ray] - own.middle, own)
        way = _turned(rays.way[:, ray], own)
        along = nearby + _entered(own, start, way, -nearby)
        met = (along > 0) & (along < reach[ray])
        return ray[met], block[met], along[met]

    def _near(self, rays: Rays, reach: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rays that pass through the ball around a block, the block, and where they do."""
        across, radius = self._across(rays)
        along = dot(across, rays.way.unsqueeze(1))  # [N, R]
        apart = dot(across, across) - along * along
        near = (apart < radius * radius) & (radius > 0)
        near &= (along > -radius) & (along - radius < reach)
        block, ray = near.nonzero().unbind(-1)
        return ray, block, along[block, ray]

    def _across(self, rays: Rays) -> tuple[Tensor, Tensor]:
        """From the start of rays to the middles of all blocks [3, N, R], and the radii of these."""
        ball = looked_up(self.table[:, :4], rays.scene, self.number).movedim(1, 0)
        return ball[:3] - rays.start.unsqueeze(1), ball[3]


class _Fields(NamedTuple):
    """Blocks of rays: what `_numbers` says of each."""

    middle: Tensor  # [3, P]
    around: Tensor  # [P], the radius of a ball that holds it
    half: Tensor
    core: Tensor  # of what is rounded, half of its extent
    shape: Tensor
    cos: Tensor
    sin: Tensor
    colour: Tensor  # [3, P]
    metal: Tensor

    def of(self, index: Tensor) -> _Fields:
        """Those of some indices."""
        return _Fields(*(field[..., index] for field in self))

    @staticmethod
    def read(found: Tensor) -> _Fields:
        """Out of all numbers [fields, P]."""
        around, half, core, shape, cos, sin = found[3:9].unbind()
        return _Fields(found[:3], around, half, core, shape, cos, sin, found[9:12], found[12])


_WIDTH = 13


def _numbers(scene: Scene, place: int) -> list[float]:
    """A block in numbers; where a scene has no such block, one below the ground, of no radius."""
    if place >= len(scene.blocks):
        return [0.0, 0.0, -100.0, 0.0, *[0.0] * (_WIDTH - 4)]
    placed = scene.blocks[place]
    shape, half = placed.block.shape, placed.block.half
    core = 0.0 if shape == "sphere" else half - BEVEL * half
    turn = math.radians(placed.block.rotation)
    return [
        *placed.location,
        _SPARE * _AROUND[shape] * half,
        half,
        core,
        float(_SHAPES.index(shape)),
        math.cos(turn),
        math.sin(turn),
        *placed.colour,
        float(placed.material == "metal"),
    ]


def ground(rays: Rays) -> Tensor:
    """How far [R] the backdrop is, infinitely where a ray does not meet it; see `backdrop`."""
    (x, y, z), (dx, dy, dz) = rays.start, rays.way
    down = z / (-dz).clamp(min=_LEAST)
    at = y + down * dy
    flat = (dz < 0) & (at >= BACKDROP.front) & (at <= BACKDROP.bend)
    # The far side of the round part, from its axis.
    y, z = y - BACKDROP.bend, z - BACKDROP.radius
    bent = (dy * dy + dz * dz).clamp(min=_LEAST)
    half = y * dy + z * dz
    under = half * half - bent * (y * y + z * z - BACKDROP.radius**2)
    back = (under.clamp(min=0).sqrt() - half) / bent
    swept = (under > 0) & (back > 0) & (y + back * dy >= 0) & (z + back * dz <= 0)
    far = torch.where(flat, down, torch.where(swept, back, math.inf))
    return torch.where((x + far * dx).abs() <= BACKDROP.side, far, math.inf)


def ground_normals(points: Tensor) -> Tensor:
    """Unit vectors [3, R] on the backdrop at its points [3, R]."""
    _, y, z = points
    along = (y - BACKDROP.bend).clamp(min=0)
    up = torch.where(along > 0, BACKDROP.radius - z, 1.0)
    return unit(torch.stack([torch.zeros_like(y), -along, up]))


def _turned(vectors: Tensor, own: _Fields) -> Tensor:
    """Vectors [3, P] in the axes of their blocks."""
    x, y, z = vectors
    return torch.stack([own.cos * x + own.sin * y, own.cos * y - own.sin * x, z])


def _turned_back(vectors: Tensor, own: _Fields) -> Tensor:
    x, y, z = vectors
    return torch.stack([own.cos * x - own.sin * y, own.sin * x + own.cos * y, z])


def _entered(own: _Fields, start: Tensor, way: Tensor, first: Tensor) -> Tensor:
    """Where rays [P] enter blocks, in the axes of these and not before ``first``; or infinity."""
    half = own.half
    cylinder = own.shape == _SHAPES.index("cylinder")
    near, far = _slab(start, way, half)  # between all three pairs of sides
    low = torch.maximum(torch.maximum(near[0], near[1]), near[2])
    high = torch.minimum(torch.minimum(far[0], far[1]), far[2])
    (x, y, _), (dx, dy, _) = start.unbind(), way.unbind()
    bent = (dx * dx + dy * dy).clamp(min=_LEAST)
    middle = x * dx + y * dy
    under = middle * middle - bent * (x * x + y * y - half * half)
    root = under.clamp(min=0).sqrt()
    entry = torch.maximum(near[2], (-middle - root) / bent)
    leave = torch.minimum(far[2], torch.where(under > 0, (root - middle) / bent, -math.inf))
    low, high = torch.where(cylinder, entry, low), torch.where(cylinder, leave, high)
    along = torch.maximum(low, first)
    # A ball is no sharp body: of its entry there is a formula.
    inside = half * half - dot(start, start)
    ball = own.shape == _SHAPES.index("sphere")
    into = -inside.clamp(min=0).sqrt() - dot(start, way)
    along, met = torch.where(ball, into, along), torch.where(ball, inside > 0, low < high)
    # Others lie within the sharp one, a little behind its edges: march on, by the distance.
    edge = (met & ~ball & (_gap(start + along * way, own, cylinder) > _FLAT)).nonzero().squeeze(-1)
    if len(edge):
        start, way, own, cylinder = start[:, edge], way[:, edge], own.of(edge), cylinder[edge]
        at = along[edge]
        gap = at
        for _ in range(_STEPS):
            gap = _gap(start + at * way, own, cylinder)
            at = at + gap
        along[edge], met[edge] = at, gap < _TOUCH
    return torch.where(met, along, math.inf)


def _gap(points: Tensor, own: _Fields, cylinder: Tensor) -> Tensor:
    """How far points [3, P] are outside of blocks that are no balls."""
    away = _away(points, own.core, cylinder)
    return dot(away, away).sqrt() - (own.half - own.core)


def _slab(start: Tensor, way: Tensor, half: Tensor) -> tuple[Tensor, Tensor]:
    """Where rays enter and leave what lies between two planes."""
    way = torch.where(way.abs() < _LEAST, _LEAST, way)
    one, other = (-half - start) / way, (half - start) / way
    return torch.minimum(one, other), torch.maximum(one, other)


def _away(points: Tensor, core: Tensor, cylinder: Tensor) -> Tensor:
    """From the nearest point of a cube, or of a cylinder where it is one, to points [3, P]."""
    boxed = points - torch.minimum(torch.maximum(points, -core), core)
    x, y, _ = points.unbind()
    radius = (x * x + y * y).sqrt().clamp(min=_LEAST)
    beyond = (1 - core / radius).clamp(min=0)
    return torch.stack(
        [
            torch.where(cylinder, x * beyond, boxed[0]),
            torch.where(cylinder, y * beyond, boxed[1]),
            boxed[2],
        ]
    )
