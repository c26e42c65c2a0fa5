"""Scenes of objects that stand about: as in CLEVR, drawn by the renderers of the Blocksworld.

Legend: N objects, W, H width and height of a picture in pixels.

A few objects of any shape, size, colour and material stand on the ground, apart from each other and
within the picture; enough of each can be seen. Every scene follows from a seed and its number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from setwise.data.blocksworld import MATERIALS
from setwise.data.checks import require_int
from setwise.data.scenes import REACH
from setwise.render.backends import RendererName, require_renderer
from setwise.render.chunks import Chunks
from setwise.render.environment import COLOURS, SIZES, Block, uniform
from setwise.render.scene import PlacedBlock, Scene, Vector, jittered
from setwise.render.shapes import Shape
from setwise.render.tracer import drawing_device, owners

MOST = 16  # objects, that there is room for
_LEAST_SIDE = 16  # pixels: in fewer, so many objects may never all be seen
_CAMERA: Vector = (0.0, -10.0, 7.0)
_AIM: Vector = (0.0, 0.0, 0.0)
_APART = 0.25  # between two objects, at least
_TRIES = 100  # at a place for an object, before a scene is begun anew
_SEEN = 0.0015  # of the picture, at least, is taken by what can be seen of an object


@dataclass(frozen=True)
class SceneSettings:
    """Everything that pictures of scenes depend on, except the renderer's version."""

    renderer: RendererName = "mitsuba"
    seed: int = 0
    width: int = 128
    height: int = 128
    samples: int = 32  # rays for each pixel
    least: int = 3  # objects
    most: int = 10

    def __post_init__(self) -> None:
        require_renderer(self.renderer)
        require_int("seed", self.seed, 0)
        for name in ("width", "height"):
            require_int(name, getattr(self, name), _LEAST_SIDE)
        require_int("samples", self.samples, 1)
        require_int("least", self.least, 1)
        require_int("most", self.most, self.least, MOST)
        if self.height > 2 * self.width or self.width > 2 * self.height:
            raise ValueError(
                f"width, height: expected sides of which none is more than twice the other, got "
                f"{self.width} and {self.height}"
            )

    def scene(self, number: int) -> Scene:
        """The first of the scenes drawn for a number in which enough can be seen."""
        return self.scenes([number])[0]

    def scenes(self, numbers: Sequence[int], device: str = "cpu") -> list[Scene]:
        """Those of several numbers, looked at on a device all at once."""
        for number in numbers:
            require_int("number", number, 0)
        drawn = {number: _drawn(self, number) for number in numbers}
        found: dict[int, Scene] = {}
        together = Chunks(drawing_device(device)).scenes(self.width, self.height)
        while missing := [number for number in drawn if number not in found]:
            for first in range(0, len(missing), together):
                some = missing[first : first + together]
                tried = [
                    jittered(next(drawn[number]), self.seed, number, _CAMERA, _AIM)
                    for number in some
                ]
                owner = owners(tried, self.width, self.height, device).cpu().numpy()
                for number, scene, own in zip(some, tried, owner, strict=True):
                    seen = np.bincount(own[own >= 0], minlength=len(scene.blocks)) / own.size
                    if (seen >= _SEEN).all():
                        found[number] = scene
        return [found[number] for number in numbers]

    def describe(self, number: int, scene: Scene) -> dict[str, Any]:
        """What is said beside its picture; places in the name that CLEVR has for them, too."""
        from setwise.render import files  # which needs Pillow

        told = files.describe_scene(number, scene, self.width, self.height)
        for described in told["objects"]:
            described["3d_coords"] = described["location"]
        return told


def _drawn(settings: SceneSettings, number: int) -> Iterator[tuple[PlacedBlock, ...]]:
    """Objects that stand apart, drawn anew without end."""
    bits = np.random.PCG64([settings.seed, number, *b"objects"])
    while True:
        wanted = settings.least + _choice(bits, settings.most - settings.least + 1)
        objects: list[PlacedBlock] = []
        while len(objects) < wanted:
            placed = _place(_object(bits), MATERIALS[_choice(bits, 2)], objects, bits)
            if placed is None:
                break
            objects.append(placed)
        else:
            yield tuple(objects)


def _object(bits: np.random.PCG64) -> Block:
    shapes: tuple[Shape, ...] = get_args(Shape)
    return Block(
        shape=shapes[_choice(bits, len(shapes))],
        size=list(SIZES)[_choice(bits, len(SIZES))],
        colour=list(COLOURS)[_choice(bits, len(COLOURS))],
        rotation=round(uniform(int(bits.random_raw()), 0, 360), 3),
    )


def _place(
    block: Block, material: Any, others: list[PlacedBlock], bits: np.random.PCG64
) -> PlacedBlock | None:
    """The object at a place where it touches no other; None if there is no room for it."""
    for _ in range(_TRIES):
        x, y = (round(uniform(int(word), -REACH, REACH), 4) for word in bits.random_raw(2))
        apart = (
            math.dist((x, y), other.location[:2]) - SIZES[block.size] - SIZES[other.block.size]
            for other in others
        )
        if all(gap >= _APART for gap in apart):
            return PlacedBlock(block, material, (x, y, block.half))
    return None


def _choice(bits: np.random.PCG64, count: int) -> int:
    return int(bits.random_raw()) % count
