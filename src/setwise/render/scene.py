"""One picture in numbers: blocks in their places, camera and lamps. Every backend draws this.

Legend: N blocks. The axes are x to the right, y away from the camera and z up; the stacks stand
along y = 0. Light is linear RGB; strengths are chosen for pictures with a mean of about 95 of 255.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from setwise.data.blocksworld import MATERIALS, Material
from setwise.data.checks import require_int, require_shape
from setwise.render.environment import COLOURS, Block, Environment, uniform

Vector = tuple[float, float, float]

AIM: Vector = (0.0, 0.0, 3.0)  # of pictures of stacks
FIELD_OF_VIEW = 49.13  # of the camera from left to right, in degrees
GROUND = 0.8  # how much light the ground gives back, evenly in all directions
# Metal is a coloured mirror, partly blurred; rubber is dull, with a weak and broad white shine.
# Roughness is the square root of the GGX alpha.
METAL_ROUGHNESS = (0.2, 0.01)
METAL_SHARP = 0.6  # the share of the second
RUBBER_ROUGHNESS, RUBBER_SHINE, RUBBER_WHITE = 0.35, 0.06, 0.8

_CAMERA: Vector = (0.0, -16.0, 6.0)
CAMERA_JITTER, LAMP_JITTER = 0.5, 1.0  # at most, along each axis


@dataclass(frozen=True)
class Lamp:
    """A square that shines towards the aim and cannot be seen except in a mirror."""

    position: Vector
    side: float
    colour: Vector
    strength: float

    @property
    def radiance(self) -> Vector:
        red, green, blue = (0.8 * self.strength * part / self.side**2 for part in self.colour)
        return red, green, blue


@dataclass(frozen=True)
class Sun:
    """White parallel light; the irradiance is that of a surface it meets at a right angle."""

    direction: Vector
    irradiance: float


LAMPS = (
    Lamp((6.447, -2.905, 4.258), 0.5, (1.0, 0.932, 0.817), 100.0),  # key, from the right
    Lamp((-4.671, -4.014, 3.011), 0.5, (0.762, 0.818, 1.0), 30.0),  # fill, from the left
    Lamp((-1.169, 2.646, 5.816), 1.0, (1.0, 1.0, 1.0), 50.0),  # from behind
)
SUN = Sun((-0.414, 0.195, -0.889), 0.25)


@dataclass(frozen=True)
class PlacedBlock:
    """A block, what it is made of, and where its middle is."""

    block: Block
    material: Material
    location: Vector

    @property
    def colour(self) -> Vector:
        red, green, blue = (part / 255 for part in COLOURS[self.block.colour])
        return red, green, blue


@dataclass(frozen=True)
class Scene:
    """All of a picture; ``noise`` seeds the renderer's own random numbers."""

    blocks: tuple[PlacedBlock, ...]  # in the order of the environment
    camera: Vector
    lamps: tuple[Lamp, ...]
    sun: Sun
    noise: int
    aim: Vector = AIM  # where the camera and the lamps look


def scene_of(environment: Environment, state: Tensor, seed: int) -> Scene:
    """The picture of a state [N, 3]: its blocks, exactly on top of each other.

    Camera, lamps and the noise to come depend on the seed and the state, and on nothing else.
    """
    world = environment.world
    require_shape("state", state, world.blocks, 3)
    require_int("seed", seed, 0)
    rank, rows = int(world.rank(state)), state.tolist()
    blocks: dict[int, PlacedBlock] = {}
    heights = [0.0] * world.stacks
    for number in sorted(range(world.blocks), key=lambda number: rows[number][1]):
        (stack, _, metal), block = rows[number], environment.blocks[number]
        location = (environment.stack_x[stack], 0.0, heights[stack] + block.half)
        blocks[number] = PlacedBlock(block, MATERIALS[metal], location)
        heights[stack] += 2 * block.half
    return jittered(tuple(blocks[number] for number in range(world.blocks)), seed, rank)


def jittered(
    blocks: tuple[PlacedBlock, ...],
    seed: int,
    number: int,
    camera: Vector = _CAMERA,
    aim: Vector = AIM,
) -> Scene:
    """Blocks as a scene, whose camera and lamps a seed and a number move a little."""
    words = np.random.PCG64([seed, number, *b"scene"]).random_raw(4 + 3 * len(LAMPS)).tolist()
    lamps = [
        replace(lamp, position=_jitter(lamp.position, words[4 + 3 * which :], LAMP_JITTER))
        for which, lamp in enumerate(LAMPS)
    ]
    return Scene(
        blocks=blocks,
        camera=_jitter(camera, words[1:], CAMERA_JITTER),
        lamps=tuple(lamps),
        sun=SUN,
        noise=words[0] >> 33,
        aim=aim,
    )


def camera_corners() -> list[Vector]:
    """The eight extreme places of the camera."""
    x, y, z = _CAMERA
    either = (-CAMERA_JITTER, CAMERA_JITTER)
    return [(x + dx, y + dy, z + dz) for dx in either for dy in either for dz in either]


def _jitter(point: Vector, words: list[int], most: float) -> Vector:
    x, y, z = (at + uniform(word, -most, most) for at, word in zip(point, words, strict=False))
    return x, y, z
