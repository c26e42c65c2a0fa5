"""Scenes drawn by Mitsuba 3, a path tracer that pip installs and that needs no GPU.

Legend: W, H width and height in pixels; P passes.

The picture is the sum of one picture for each lamp. So no lamp's body is in another one's light,
and no random number is spent on the choice of a lamp. Each of these is drawn twice, with few but
well spread rays: a pixel that is far brighter in one pass than in the other saw a lamp by a rare
chance, in the reflection of a reflection, and counts only once. Otherwise it would be a white dot.

The variant ``scalar_rgb`` is used because it gives the same picture on any number of threads and
needs no LLVM, old versions of which (14 to 16) abort the process.
"""

from __future__ import annotations

import math
from typing import Any

import drjit as dr
import mitsuba as mi
import numpy as np
from numpy.typing import NDArray

from setwise.render import scene as looks
from setwise.render.light import display
from setwise.render.scene import Lamp, PlacedBlock, Scene
from setwise.render.shapes import Mesh, backdrop, block_mesh

_VARIANT = "scalar_rgb"
_PASSES = 2
_BOUNCES = 6
_TILE = 16  # pixels along each side of what a thread draws at once; random numbers depend on it
# A pass is left out of a pixel where it is brighter than this times the other, plus a little.
_FAR_BRIGHTER, _A_LITTLE = 1.5, 0.03


class MitsubaRenderer:
    """Draws scenes as uint8 [H, W, 3] with at least ``samples`` rays for each pixel.

    Rays are spread well in squares, so that their number is rounded up to 8, 32, 72, 128, ...
    """

    def __init__(self, width: int, height: int, samples: int, threads: int | None = None) -> None:
        self.width, self.height = width, height
        self.samples = math.ceil(math.sqrt(samples / (_PASSES * (len(looks.LAMPS) + 1)))) ** 2
        self._threads_before = dr.thread_count()
        dr.set_thread_count(self._threads_before if threads is None else threads)
        if mi.variant() is None:
            mi.set_variant(_VARIANT)

    def __call__(self, scene: Scene) -> NDArray[np.uint8]:
        with mi.util.variant_context(_VARIANT):
            return display(np.sum(self._lit(scene), axis=0))

    def close(self) -> None:
        """Give the threads back; they are those of the whole process."""
        dr.set_thread_count(self._threads_before)

    def _lit(self, scene: Scene) -> list[NDArray[np.float32]]:
        """The scene in the light of the sun and of each lamp alone."""
        common = {
            "type": "scene",
            "integrator": {
                "type": "path",
                "max_depth": _BOUNCES,
                "hide_emitters": True,
                "block_size": _TILE,
            },
            "sensor": self._sensor(scene),
            **bodies(scene),
        }
        pictures = []
        for number, light in enumerate(
            [_sun(scene), *(_lamp(lamp, scene) for lamp in scene.lamps)]
        ):
            lit = mi.load_dict({**common, "light": light})
            seeds = [mi.UInt32(scene.noise + _PASSES * number + turn) for turn in range(_PASSES)]
            passes = [np.array(mi.render(lit, spp=self.samples, seed=seed)) for seed in seeds]
            pictures.append(_mean_without_dots(np.stack(passes)))
        return pictures

    def _sensor(self, scene: Scene) -> dict[str, Any]:
        film = {
            "type": "hdrfilm",
            "width": self.width,
            "height": self.height,
            "pixel_format": "rgb",
            "component_format": "float32",
            "rfilter": {"type": "box"},
        }
        return {
            "type": "perspective",
            "fov": looks.FIELD_OF_VIEW,
            "fov_axis": "x",
            "to_world": _looking(scene.camera, scene),
            "film": film,
            "sampler": {"type": "multijitter", "sample_count": self.samples},
        }


def version() -> str:
    """What pictures depend on besides the scene."""
    return f"mitsuba {mi.__version__} {_VARIANT}"


def bodies(scene: Scene) -> dict[str, Any]:
    """The ground and the blocks, without light: shapes by name, in the words of ``load_dict``."""
    ground = {"type": "diffuse", "reflectance": _rgb(looks.GROUND)}
    found = {"ground": _mesh("ground", backdrop(), ground)}
    for number, placed in enumerate(scene.blocks):
        name, block = f"block{number}", placed.block
        mesh = block_mesh(block.shape, block.half).placed(block.rotation, placed.location)
        found[name] = _mesh(name, mesh, _surface(placed))
    return found


def _mesh(name: str, mesh: Mesh, surface: dict[str, Any]) -> Any:
    properties = mi.Properties()
    properties["surface"] = mi.load_dict(surface)
    body = mi.Mesh(name, len(mesh.vertices), len(mesh.faces), properties, has_vertex_normals=True)
    parameters = mi.traverse(body)
    parameters["vertex_positions"] = mesh.vertices.astype(np.float32).ravel()
    parameters["vertex_normals"] = mesh.normals.astype(np.float32).ravel()
    parameters["faces"] = mesh.faces.astype(np.uint32).ravel()
    parameters.update()
    return body


def _surface(placed: PlacedBlock) -> dict[str, Any]:
    if placed.material == "metal":
        blurred, sharp = (_mirror(rough, placed.colour) for rough in looks.METAL_ROUGHNESS)
        return {"type": "blendbsdf", "weight": looks.METAL_SHARP, "first": blurred, "second": sharp}
    dull = {"type": "diffuse", "reflectance": _rgb(placed.colour)}
    shine = _mirror(looks.RUBBER_ROUGHNESS, looks.RUBBER_WHITE)
    return {"type": "blendbsdf", "weight": looks.RUBBER_SHINE, "first": dull, "second": shine}


def _mirror(roughness: float, colour: looks.Vector | float) -> dict[str, Any]:
    return {
        "type": "roughconductor",
        "material": "none",
        "distribution": "ggx",
        "alpha": max(roughness**2, 1e-3),  # less makes 32-bit numbers overflow
        "specular_reflectance": _rgb(colour),
    }


def _sun(scene: Scene) -> dict[str, Any]:
    sun = scene.sun
    return {
        "type": "directional",
        "direction": list(sun.direction),
        "irradiance": _rgb(sun.irradiance),
    }


def _lamp(lamp: Lamp, scene: Scene) -> dict[str, Any]:
    return {
        "type": "rectangle",
        "to_world": _looking(lamp.position, scene) @ mi.ScalarTransform4f().scale(lamp.side / 2),
        "emitter": {"type": "area", "radiance": _rgb(lamp.radiance)},
        "surface": {"type": "diffuse", "reflectance": _rgb(0.0)},
    }


def _looking(position: looks.Vector, scene: Scene) -> Any:
    return mi.ScalarTransform4f().look_at(origin=position, target=scene.aim, up=(0, 0, 1))


def _rgb(colour: looks.Vector | float) -> dict[str, Any]:
    return {"type": "rgb", "value": colour if isinstance(colour, float) else list(colour)}


def _mean_without_dots(passes: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean [H, W, 3] of passes [P, H, W, 3] that are not far brighter than the darkest."""
    red, green, blue = (passes[..., channel, None] for channel in range(3))
    brightness = (red + green + blue) / 3
    likely = brightness <= _FAR_BRIGHTER * brightness.min(0) + _A_LITTLE
    mean: NDArray[np.float32] = (passes * likely).sum(0) / likely.sum(0)
    return mean
