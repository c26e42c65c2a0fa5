"""Archives of scenes: drawn here, or out of the files of CLEVR."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from setwise.data.scenes import SceneArchive, archive_name
from setwise.executors import Executor
from setwise.outside import named, read_json
from setwise.render import files
from setwise.render.dataset import Program, render_scenes
from setwise.render.tabletop import SceneSettings

_CLEVR = (480, 320)  # width and height of its pictures
_MOST_JSON = 2**30  # bytes; the descriptions of its 70,000 pictures to train on are 500 MB


def draw_scenes(
    settings: SceneSettings,
    pictures: int,
    folder: Path,
    *,
    workers: int | None = None,
    blender: Program = None,
    progress: Callable[[int, int], None] | None = None,
    executor: Executor | None = None,
    device: str = "cpu",
) -> tuple[Path, SceneArchive]:
    """Draw the first so many scenes, except those the folder has; then write their archive.

    See `setwise.render.render_states` for the rest.
    """
    numbers = range(pictures)
    render_scenes(
        settings,
        numbers,
        folder,
        workers=workers,
        blender=blender,
        progress=progress,
        executor=executor,
        device=device,
    )
    drawn = np.empty((pictures, settings.height, settings.width, 3), dtype=np.uint8)
    scenes = []
    for number in numbers:
        image, description = files.load(folder, number, (settings.width, settings.height))
        drawn[number] = np.asarray(image.convert("RGB"))
        with named(files.scene_path(folder, number)):
            scenes.append(_objects(description))
    archive = SceneArchive.of(drawn, scenes)
    path = folder / archive_name(pictures)
    archive.write(path)
    return path, archive


def read_clevr(images: Path, scenes: Path, *, pictures: int | None = None) -> SceneArchive:
    """The first pictures of CLEVR's files, all by default, made smaller to 128 x 128 pixels.

    ``images`` is a folder such as ``CLEVR_v1.0/images/val``, ``scenes`` the file
    ``CLEVR_v1.0/scenes/CLEVR_val_scenes.json``. Pictures are squeezed, as is usual for sets of
    their objects (Zhang et al., 2019), so that no object is cut off.
    """
    described = read_json(scenes, _MOST_JSON).get("scenes")
    if not isinstance(described, list) or not all(isinstance(one, dict) for one in described):
        raise ValueError(f"{scenes}: expected scenes, a list of descriptions")
    if pictures is not None and len(described) < pictures:
        raise ValueError(f"{scenes}: describes {len(described)} pictures, not {pictures}")
    described = described[:pictures]
    side = SceneSettings.width
    small = np.empty((len(described), side, side, 3), dtype=np.uint8)
    objects = []
    for number, scene in enumerate(described):
        with named(scenes):
            name = scene.get("image_filename")
            if not isinstance(name, str) or Path(name).name != name:
                raise ValueError(
                    f"image_filename: expected the name of a picture, got {name!r:.60}"
                )
            objects.append(_objects(scene))
        image = files.load_image(images / name, _CLEVR).convert("RGB")
        small[number] = np.asarray(image.resize((side, side), Image.Resampling.BILINEAR))
    return SceneArchive.of(small, objects)


def _objects(scene: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects that a description lists."""
    objects = scene.get("objects")
    if not isinstance(objects, list) or not all(isinstance(one, dict) for one in objects):
        raise ValueError("objects: expected a list of descriptions")
    return objects
