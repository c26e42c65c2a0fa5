"""Lamps and the sun of many scenes as tensors: what they shine on, and what shines back.

Legend: S scenes, N blocks, L lamps, R rays; vectors are [3, R], see `bodies`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from setwise.render import scene as looks
from setwise.render.bodies import Bodies, Rays, dot, looked_up
from setwise.render.scene import Scene

_LEAST = 1e-9
_FAINT = 0.004  # light from everywhere, that has gone to and fro
_SHADED = 0.7  # of the ground around a block, the share that is no shadow
_METAL = 0.5  # of its colour, that metal throws on what is around it
_SPREAD = 0.01  # of shadows within a pixel
_MOST = 0.5  # of what a point of the ground can see, taken by one block


class Lights:
    """The lamps and the sun of S scenes."""

    def __init__(self, scenes: Sequence[Scene], device: torch.device) -> None:
        self.number = len(scenes)
        lamps = max((len(scene.lamps) for scene in scenes), default=0)
        rows = [[_lamp_numbers(scene, place) for scene in scenes] for place in range(lamps)]
        table = torch.tensor(rows, dtype=torch.float64).reshape(lamps, self.number, 16)
        self._lamps = table.movedim(-1, 1).contiguous().to(device, torch.float32)
        suns = [[*unit_of(scene.sun.direction), scene.sun.irradiance] for scene in scenes]
        self._suns = torch.tensor(suns, dtype=torch.float64).reshape(-1, 4).T
        self._suns = self._suns.contiguous().to(device, torch.float32)

    def towards(self, points: Tensor, scene: Tensor, chance: Tensor) -> list[_Beam]:
        """The light of each lamp, from one of its points, and of the sun, without any shadow."""
        found = []
        for which in range(len(self._lamps)):
            lamp = self._lamp(which, scene)
            u, v = (chance[(2 * which + side) % 4] - 0.5 for side in (0, 1))
            across = lamp.middle + u * lamp.right + v * lamp.up - points
            square = dot(across, across).clamp(min=_LEAST)
            far = square.sqrt()
            way = across / far
            leaving = (-dot(way, lamp.ahead)).clamp(min=0)
            light = lamp.radiance * (leaving * lamp.area / square)
            found.append(_Beam(way, far, light, (lamp.area / 2).sqrt()))
        sun = looked_up(self._suns, scene, self.number)
        far = torch.full_like(points[0], math.inf)
        way, light = -sun[:3].expand_as(points), sun[3].expand_as(points)
        found.append(_Beam(way, far, light, torch.zeros_like(sun[3])))
        return found

    def open(self, points: Tensor, normals: Tensor, scene: Tensor) -> Tensor:
        """What white dull surfaces [3, R] give back of all light, where nothing is in between."""
        total = torch.zeros_like(points)
        middle = torch.full_like(points[:1], 0.5).expand(4, -1)
        for beam in self.towards(points, scene, middle):
            total = total + beam.light * (dot(normals, beam.way).clamp(min=0) * (1 / math.pi))
        return total

    def hidden(self, bodies: Bodies, points: Tensor, scene: Tensor) -> Tensor:
        """Whether a block may hide a part of any lamp or the sun from the ground at points [R]."""
        found = torch.zeros_like(scene, dtype=torch.bool)
        middle = torch.full_like(points[:1], 0.5).expand(4, -1)
        for beam in self.towards(points, scene, middle):
            found |= bodies.close(Rays(points, beam.way, scene), _SPREAD + beam.wide / beam.far)
        return found

    def seen(self, rays: Rays, far: Tensor) -> Tensor:
        """The light [3, R] of lamps that rays meet before they have gone ``far`` [R]."""
        total = torch.zeros_like(rays.start)
        for which in range(len(self._lamps)):
            lamp = self._lamp(which, rays.scene)
            facing = -dot(rays.way, lamp.ahead)
            along = dot(rays.start - lamp.middle, lamp.ahead) / facing.clamp(min=_LEAST)
            off = rays.at(along) - lamp.middle
            half = lamp.area / 2  # edges are as long as the side, so products are of its square
            inside = (dot(off, lamp.right).abs() < half) & (dot(off, lamp.up).abs() < half)
            shown = inside & (facing > 0) & (along > 0) & (along < far)
            total = total + torch.where(shown, lamp.radiance, 0.0)
        return total

    def _lamp(self, which: int, scene: Tensor) -> _Lamp:
        found = looked_up(self._lamps[which], scene, self.number)
        return _Lamp(found[:3], found[3:6], found[6:9], found[9:12], found[12:15], found[15])


class _Lamp(NamedTuple):
    middle: Tensor  # [3, R], all of them
    right: Tensor  # along its edges, as long as these
    up: Tensor
    ahead: Tensor  # where it shines
    radiance: Tensor
    area: Tensor  # [R]


class _Beam(NamedTuple):
    way: Tensor  # [3, R], towards the light
    far: Tensor  # [R]
    light: Tensor  # [3, R], on a surface that faces it
    wide: Tensor  # [R], from the middle of the lamp to its corners


def unit_of(vector: looks.Vector) -> looks.Vector:
    """A vector of length 1."""
    x, y, z = (part / math.hypot(*vector) for part in vector)
    return x, y, z


def axes_of(position: looks.Vector, aim: looks.Vector) -> tuple[looks.Vector, ...]:
    """Right, up and ahead of what looks from a position towards an aim."""
    ahead = unit_of(tuple(to - at for at, to in zip(position, aim, strict=True)))  # type: ignore[arg-type]
    right = unit_of((ahead[1], -ahead[0], 0.0))
    up = (
        right[1] * ahead[2] - right[2] * ahead[1],
        right[2] * ahead[0] - right[0] * ahead[2],
        right[0] * ahead[1] - right[1] * ahead[0],
    )
    return right, up, ahead


def _lamp_numbers(scene: Scene, place: int) -> list[float]:
    """A lamp in numbers; where a scene has no such lamp, a dark one."""
    if place >= len(scene.lamps):
        return [0.0, 0.0, 100.0, *[0.0] * 12, 1.0]
    lamp = scene.lamps[place]
    right, up, ahead = axes_of(lamp.position, scene.aim)
    edges = [lamp.side * part for edge in (right, up) for part in edge]
    return [*lamp.position, *edges, *ahead, *lamp.radiance, lamp.side**2]


class Glow:
    """The light that blocks throw on what is around them, each as if it were a dull ball.

    A ball of radius r fills the share ``cos r^2 / d^2`` of what a surface sees at a distance d. Its
    side that faces a surface in the direction n sends ``even + sloped . n``: of light that comes
    from w, a dull ball gives back max(0, n . w), which is nearly 1/4 + n . w / 2.
    """

    def __init__(self, bodies: Bodies, lights: Lights) -> None:
        self.number = bodies.number
        middle = bodies.table[:, :3].movedim(1, 0).flatten(1)  # [3, N S]
        scene = torch.arange(self.number, device=middle.device).repeat(bodies.most)
        even, sloped = torch.zeros_like(middle), torch.zeros_like(middle).expand(3, -1, -1).clone()
        below = torch.zeros_like(middle)
        for beam in lights.towards(middle, scene, torch.full_like(middle[:1], 0.5).expand(4, -1)):
            even = even + beam.light / 4
            sloped = sloped + beam.way.unsqueeze(1) * beam.light / 2
            below = below + beam.way[2].clamp(min=0) * beam.light
        below = below * (_SHADED * looks.GROUND / 2)
        even = even + below
        sloped[2] = sloped[2] - below
        colour, metal, square = bodies.balls()
        colour = torch.where(metal, _METAL * colour, colour)
        found = torch.cat(
            [
                middle,
                square[None],
                even * colour / math.pi,
                (sloped * colour / math.pi).flatten(0, 1),
            ]
        )
        self._table = found.unflatten(1, (bodies.most, self.number)).movedim(1, 0).contiguous()

    def __call__(self, points: Tensor, normals: Tensor, scene: Tensor) -> Tensor:
        """What blocks send to surfaces at points [3, R]."""
        total = torch.full_like(points, _FAINT)
        for table in self._table:
            own = looked_up(table, scene, self.number)
            across = own[:3] - points
            square = dot(across, across).clamp(min=_LEAST)
            far = square.sqrt()
            filled = (dot(across, normals).clamp(min=0) * own[3] / (square * far)).clamp(max=_MOST)
            x, y, z = across / far
            sent = own[4:7] - (x * own[7:10] + y * own[10:13] + z * own[13:16])
            total = total + filled * sent.clamp(min=0)
        return total
