"""A folder of pictures: what it was made with, and for each state an image and a description.

Legend: N blocks; W, H width and height in pixels. The folder holds

    settings.json           everything the pictures depend on, but the device
    images/00000123.png     the picture of the state of rank 123
    scenes/00000123.json    what is in it: blocks, boxes, camera, lamps; the device, by torch

Files appear in one step, the description last: a state that has one is finished, and what a killed
process left behind is never mistaken for a result.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.Image import DecompressionBombError
from torch import Tensor

from setwise.data.blocksworld import Blocksworld
from setwise.data.blocksworld_steps import state_to_json
from setwise.files import atomic_write_text, require_regular, unfinished
from setwise.outside import named, read_json
from setwise.render.scene import Scene
from setwise.render.silhouette import boxes, project

SETTINGS, UNFINISHED = "settings.json", "unfinished"


def prepare(folder: Path, settings: dict[str, Any]) -> None:
    """Make the folder, or see that it was made with the same settings."""
    text = _as_text(settings)
    settings = json.loads(text)
    if os.path.lexists(folder / SETTINGS):
        found = read_settings(folder)
        different = [
            f"{name} {found.get(name)} instead of {settings.get(name)}"
            for name in sorted(found.keys() | settings.keys())
            if found.get(name) != settings.get(name)
        ]
        if different:
            raise ValueError(
                f"{folder} holds pictures made with other settings ({'; '.join(different)}): "
                f"use another folder, or remove this one"
            )
        clean(folder)
    elif os.path.lexists(folder / UNFINISHED):
        raise ValueError(
            f"{folder / UNFINISHED}: is there already, and not of pictures; use another folder"
        )
    else:  # first of all: from now on the folder is known to be one of pictures
        atomic_write_text(folder / SETTINGS, text)
    for name in ("images", "scenes", UNFINISHED):
        (folder / name).mkdir(exist_ok=True)


def read_settings(folder: Path) -> dict[str, Any]:
    """What `prepare` wrote."""
    if not os.path.lexists(folder / SETTINGS):
        raise FileNotFoundError(f"{folder} is no folder of pictures: it has no {SETTINGS}")
    return read_json(folder / SETTINGS)


def clean(folder: Path) -> None:
    """Remove what a killed process left unfinished."""
    shutil.rmtree(folder / UNFINISHED, ignore_errors=True)


def finished(folder: Path, rank: int) -> bool:
    """Whether the picture of a state is there, and all that belongs to it."""
    return scene_path(folder, rank).exists() and image_path(folder, rank).exists()


def image_path(folder: Path, rank: int) -> Path:
    return folder / "images" / f"{rank:08d}.png"


def scene_path(folder: Path, rank: int) -> Path:
    return folder / "scenes" / f"{rank:08d}.json"


def encode(image: NDArray[np.uint8]) -> bytes:
    """A picture as it is in its file."""
    content = io.BytesIO()
    Image.fromarray(image).save(content, format="PNG")
    return content.getvalue()


def save(folder: Path, rank: int, image: bytes, description: dict[str, Any]) -> None:
    """Write a picture, which `encode` gave, and its description: both are whole or not there."""
    _write(image_path(folder, rank), folder, image)
    _write(scene_path(folder, rank), folder, _as_text(description).encode())


def load(folder: Path, rank: int, size: tuple[int, int]) -> tuple[Image.Image, dict[str, Any]]:
    """A picture, which must be of this width and height, and its description."""
    if not finished(folder, rank):
        raise FileNotFoundError(f"{folder} has no picture of state {rank}; draw it first")
    return load_image(image_path(folder, rank), size), read_json(scene_path(folder, rank))


def load_image(path: Path, size: tuple[int, int]) -> Image.Image:
    """A picture in a PNG file, which must be of this width and height."""
    require_regular(path)
    # PIL says of a damaged file that its syntax is wrong, and of a huge one that it is a bomb.
    damage = (OSError, SyntaxError, EOFError, struct.error, zlib.error, DecompressionBombError)
    with named(path, *damage), Image.open(path, formats=["PNG"]) as image:
        if image.size != size:
            raise ValueError(f"expected a picture of {size} pixels, got {image.size}")
        image.load()
    return image


def describe(
    world: Blocksworld, state: Tensor, scene: Scene, width: int, height: int
) -> dict[str, Any]:
    """The description of a picture; ``objects`` are in the form of the original generator."""
    told = {"state": state_to_json(world, state)}
    return describe_scene(int(world.rank(state)), scene, width, height, told)


def describe_scene(
    number: int, scene: Scene, width: int, height: int, told: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What there is to say of any scene, by the number of its picture, and what else was told."""
    locations = np.array([block.location for block in scene.blocks])
    middles = project(scene.camera, locations, width, height, scene.aim)
    objects = [
        {
            "shape": placed.block.shape,
            "size": placed.block.size,
            "color": placed.block.colour,
            "material": placed.material,
            "rotation": placed.block.rotation,
            "location": list(placed.location),
            "pixel_coords": middle,
            "bbox": box,
        }
        for placed, middle, box in zip(
            scene.blocks,
            middles.round(3).tolist(),
            boxes(scene, width, height).tolist(),
            strict=True,
        )
    ]
    return {
        "image_index": number,
        "image_filename": image_path(Path(), number).name,
        **(told or {}),
        "objects": objects,
        "camera": list(scene.camera),
        "lamps": [asdict(lamp) for lamp in scene.lamps],
        "sun": asdict(scene.sun),
        "noise": scene.noise,
    }


def _write(path: Path, folder: Path, content: bytes) -> None:
    """In one step; not beside the path, where thousands of names would be looked through."""
    with unfinished(folder / UNFINISHED / path.name) as place:
        place.write_bytes(content)
        place.replace(path)


def _as_text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=1) + "\n"
