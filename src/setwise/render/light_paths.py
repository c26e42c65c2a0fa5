"""Light along paths: what the camera sees of a point, directly and after bounces.

Legend: S scenes, L lamps, R rays; vectors are [3, R], see `bodies`.

Paths are followed from the camera, from mirror to mirror. At every point of a path each lamp and
the sun shine on it, through one of the points of the lamp, unless a block is in between. The light
that dull surfaces throw on each other is a formula: paths that go anywhere would be noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from setwise.render import scene as looks
from setwise.render.bodies import Bodies, Rays, dot, ground, ground_normals, unit
from setwise.render.lamps import Glow, Lights
from setwise.render.scene import Scene

_MIRRORS = 3  # along a path
_SHADED = 0.85  # of the ground near a block, the share that is no shadow
_OFF = 2e-3  # the surface, where a path goes on; more than rays take for touching
_TABLE = 4096  # angles around a circle
_UNITS = 2**16  # of a random number
# Multiples of these spread well in four dimensions: powers of 1 / 1.16730397826, the root of
# x^5 = x + 1 (Roberts, 2018).
_SPREAD = tuple(round(_UNITS * 1.16730397826141868425604**-power) | 1 for power in range(1, 5))
_STEP, *_MIXERS = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # SplitMix64


class Surface(NamedTuple):
    """What is met: where, and how it gives light back."""

    point: Tensor  # [3, R], a little above the surface
    normal: Tensor  # [3, R]
    dull: Tensor  # [3, R], the share that goes anywhere
    shine: Tensor  # [3, R], the share of a blurred mirror, for lamps and the sun
    mirror: Tensor  # [3, R], the share that goes on along a path
    width: Tensor  # [R], how blurred it is, the alpha of GGX
    metal: Tensor  # [R]

    def of(self, index: Tensor) -> Surface:
        """That of some indices."""
        return Surface(*(field[..., index] for field in self))


def chances(key: Tensor, turn: Tensor, bounce: int) -> Tensor:
    """Four numbers [4, R] in (0, 1): of the turns of a key they are spread, of keys random."""
    mixed = key + _signed((bounce + 1) * _STEP)
    for shift, mixer in zip((30, 27), _MIXERS, strict=True):
        mixed = (mixed ^ ((mixed >> shift) & (2 ** (64 - shift) - 1))) * _signed(mixer)
    mixed = mixed ^ ((mixed >> 31) & (2**33 - 1))
    parts = [
        (mixed >> (16 * number)) + turn * step & (_UNITS - 1) for number, step in enumerate(_SPREAD)
    ]
    return (torch.stack(parts).float() + 0.5) / _UNITS


def _signed(number: int) -> int:
    """The number whose last 64 bits are the same, as signed integers have them."""
    return (number + 2**63) % 2**64 - 2**63


class Paths:
    """Follows the light in S scenes."""

    def __init__(self, scenes: Sequence[Scene], bodies: Bodies, device: torch.device) -> None:
        self._bodies, self._lights = bodies, Lights(scenes, device)
        self._glow = Glow(bodies, self._lights)
        angle = 2 * math.pi * (torch.arange(_TABLE, dtype=torch.float64) + 0.5) / _TABLE
        self._circle = torch.stack([angle.cos(), angle.sin()]).to(device, torch.float32)

    def followed(self, rays: Rays, far: Tensor, owner: Tensor, key: Tensor, turn: Tensor) -> Tensor:
        """The light [3, R] that comes back along rays, which met ``owner`` [R] so far away [R].

        Of a ``key`` [R], a pixel of a scene, each ``turn`` [R] takes other chances.
        """
        total = torch.zeros_like(rays.start)
        share = torch.ones_like(rays.start)
        index = torch.arange(far.shape[0], device=far.device)
        on = far.isfinite().nonzero().squeeze(-1)
        for bounce in range(_MIRRORS + 1):
            if not len(on):
                break
            rays, far, owner, index = rays.of(on), far[on], owner[on], index[on]
            share, key, turn = share[:, on], key[on], turn[on]
            chance = chances(key, turn, bounce)
            met = self._surface(rays, far, owner)
            light = self._shone_on(met, rays, chance) + met.dull * self._around(met, rays.scene)
            total[:, index] += share * light
            on = met.metal.nonzero().squeeze(-1)
            if bounce == _MIRRORS or not len(on):
                break
            met, rays, index = met.of(on), rays.of(on), index[on]
            share, key, turn = share[:, on] * met.mirror, key[on], turn[on]
            way, sharp = self._mirrored(met, rays.way, chance[:, on])
            rays = Rays(met.point, way, rays.scene)
            far, owner = self._bodies.nearest(rays)
            total[:, index] += share * torch.where(sharp, self._lights.seen(rays, far), 0.0)
            on = far.isfinite().nonzero().squeeze(-1)
        return total

    def open_ground(self, rays: Rays) -> tuple[Tensor, Tensor]:
        """The light [3, R] of ground that no block takes any from, and which [R] is such ground."""
        far = ground(rays)
        there = far.isfinite()
        point = rays.at(torch.where(there, far, 0.0))
        normal = ground_normals(point)
        calm = there & ~self._lights.hidden(self._bodies, point, rays.scene)
        direct = self._lights.open(point, normal, rays.scene)
        return looks.GROUND * (direct + self._glow(point, normal, rays.scene)), calm

    def _surface(self, rays: Rays, far: Tensor, owner: Tensor) -> Surface:
        point = rays.at(far)
        normal = self._bodies.normals(point, rays.scene, owner)
        block = (owner >= 0).nonzero().squeeze(-1)
        dull = torch.full_like(point, looks.GROUND)
        mirror, shine = torch.zeros_like(point), torch.zeros_like(point)
        width, metal = torch.ones_like(far), torch.zeros_like(owner, dtype=torch.bool)
        colour, own = self._bodies.colours(rays.scene[block], owner[block])
        white = looks.RUBBER_SHINE * looks.RUBBER_WHITE
        dull[:, block] = torch.where(own, 0.0, (1 - looks.RUBBER_SHINE) * colour)
        mirror[:, block] = torch.where(own, colour, 0.0)
        shine[:, block] = torch.where(own, (1 - looks.METAL_SHARP) * colour, white)
        rough = torch.where(own, looks.METAL_ROUGHNESS[0], looks.RUBBER_ROUGHNESS)
        width[block], metal[block] = rough * rough, own
        return Surface(point + _OFF * normal, normal, dull, shine, mirror, width, metal)

    def _around(self, met: Surface, scene: Tensor) -> Tensor:
        """The light [3, R] of all other surfaces on dull ones: of blocks, and of the ground."""
        return self._glow(met.point, met.normal, scene) + self._from_below(met, scene)

    def _from_below(self, met: Surface, scene: Tensor) -> Tensor:
        """Of the ground, which fills a share of what a surface sees, and lies in front of it."""
        x, y, z = met.point
        nx, ny, nz = met.normal
        # On the whole it is seen as far in front as below.
        seen = torch.stack([x + z * nx, y + z * ny, torch.zeros_like(z)])
        up = torch.tensor([0.0, 0.0, 1.0], device=z.device)[:, None].expand_as(seen)
        share = looks.GROUND * _SHADED * (1 - nz) / 2
        return share * self._lights.open(seen, up, scene)

    def _shone_on(self, met: Surface, rays: Rays, chance: Tensor) -> Tensor:
        """The light [3, R] of lamps and sun that comes back along the rays."""
        beams = self._lights.towards(met.point, rays.scene, chance)
        falling = torch.stack([dot(met.normal, beam.way) for beam in beams])  # [L + 1, R]
        which, lit = (falling > 0).nonzero().unbind(-1)
        ways = torch.stack([beam.way for beam in beams], dim=1)[:, which, lit]
        far = torch.stack([beam.far for beam in beams])[which, lit]
        dark = self._bodies.blocked(Rays(met.point[:, lit], ways, rays.scene[lit]), far)
        shown = torch.zeros_like(falling)
        shown[which, lit] = torch.where(dark, 0.0, 1.0)
        shiny = (met.shine[0] > 0).nonzero().squeeze(-1)
        glossy = met.of(shiny)
        total = torch.zeros_like(met.point)
        for beam, cosine, share in zip(beams, falling, shown, strict=True):
            given = met.dull * (cosine * (1 / math.pi))
            given[:, shiny] += _glossy(glossy, beam.way[:, shiny], rays.way[:, shiny])
            total = total + given * beam.light * share
        return total

    def _mirrored(self, met: Surface, way: Tensor, chance: Tensor) -> tuple[Tensor, Tensor]:
        """Where paths that meet metal go on [3, R], and which of them [R] by the sharp mirror."""
        u, v, choice, _ = chance
        around = self._circle[:, (v * _TABLE).long()]
        sharp = choice < looks.METAL_SHARP
        # Of the blurred mirror the normal is off, by the density of GGX.
        square = met.width * met.width * u / (1 - u)
        high = torch.where(sharp, 1.0, 1 / (1 + square))
        wide = (1 - high).clamp(min=0).sqrt()
        right, ahead = _across(met.normal)
        normal = met.normal * high.sqrt() + wide * (around[0] * right + around[1] * ahead)
        blurred = way - 2 * dot(way, normal) * normal
        straight = way - 2 * dot(way, met.normal) * met.normal
        # It may send a path into its own surface: then along the sharp one.
        return unit(torch.where(dot(blurred, met.normal) > 0, blurred, straight)), sharp


def _across(normal: Tensor) -> tuple[Tensor, Tensor]:
    """Two vectors at right angles to unit vectors [3, R], and to each other."""
    x, _, z = normal
    upright = z.abs() > 0.9
    helper = torch.stack([torch.zeros_like(x), upright.to(x.dtype), (~upright).to(x.dtype)])
    right = unit(_cross(helper, normal))
    return right, _cross(normal, right)


def _cross(one: Tensor, other: Tensor) -> Tensor:
    (a, b, c), (x, y, z) = one, other
    return torch.stack([b * z - c * y, c * x - a * z, a * y - b * x])


def _glossy(met: Surface, to_light: Tensor, way: Tensor) -> Tensor:
    """What a blurred mirror [3, R] gives back of light, times the cosine: GGX (Walter, 2007)."""
    half = unit(to_light - way)
    falling, leaving = dot(met.normal, to_light), -dot(met.normal, way)
    square = met.width * met.width
    high = dot(met.normal, half).clamp(0, 1)
    flat = high * high * (square - 1) + 1
    density = square / (math.pi * flat * flat)
    # Of both sides what is not in the shadow of the roughness, over four cosines (Smith).
    falling, leaving = falling.clamp(min=1e-4), leaving.clamp(min=1e-4)
    hidden = [
        (square + (1 - square) * cosine * cosine).sqrt() + cosine for cosine in (falling, leaving)
    ]
    return met.shine * (density / (hidden[0] * hidden[1]) * falling)
