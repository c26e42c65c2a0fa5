"""Scenes drawn by Blender, a program of its own that runs without a window beside this one.

Legend: W, H width and height in pixels. One Blender serves many scenes, since its start takes
longer than a small picture; `blender_script` is what it runs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from setwise.render import blender_script
from setwise.render import scene as looks
from setwise.render.scene import PlacedBlock, Scene
from setwise.render.shapes import Mesh, backdrop, block_mesh

_BOUNCES = 6
_SECONDS = 60.0  # for Blender to say its version
_LINES_KEPT = 20  # of what Blender said, for an error


class BlenderRenderer:
    """Draws scenes as uint8 [H, W, 3] with ``samples`` rays for each pixel.

    ``program`` is the Blender to run, by default the one on the PATH. Close it after use.
    """

    def __init__(
        self,
        width: int,
        height: int,
        samples: int,
        threads: int | None = None,
        program: str | Path | None = None,
    ) -> None:
        self.width, self.height, self.samples = width, height, samples
        self._program = find_blender(program)
        self._folder = tempfile.TemporaryDirectory(prefix="setwise-blender-")
        self._said: deque[str] = deque(maxlen=_LINES_KEPT)
        options = ["--background", "--factory-startup", "--threads", str(threads or 0)]
        script = ["--python-exit-code", "1", "--python", blender_script.__file__]
        self._blender = subprocess.Popen(
            [self._program, *options, *script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._ask("")  # an empty line asks for nothing: it answers once it is there

    def __call__(self, scene: Scene) -> NDArray[np.uint8]:
        output = Path(self._folder.name) / "picture.png"
        job = describe(scene) | {
            "width": self.width,
            "height": self.height,
            "samples": self.samples,
            "output": str(output),
        }
        answer = self._ask(json.dumps(job))
        if "error" in answer:
            raise RuntimeError(f"{self._program} could not draw a scene: {answer['error']}")
        with Image.open(output) as picture:
            return np.array(picture.convert("RGB"))

    def close(self) -> None:
        """End Blender, which stops when there is nothing more to read."""
        self._blender.communicate()
        self._folder.cleanup()

    def _ask(self, line: str) -> dict[str, Any]:
        """Send a line to the script and wait for its answer; what Blender says besides is kept."""
        assert self._blender.stdin is not None
        assert self._blender.stdout is not None
        with suppress(BrokenPipeError):  # then it said why before it ended
            self._blender.stdin.write(line + "\n")
            self._blender.stdin.flush()
        for said in self._blender.stdout:
            if said.startswith(blender_script.PREFIX):
                answer: dict[str, Any] = json.loads(said.removeprefix(blender_script.PREFIX))
                return answer
            self._said.append(said)
        self.close()
        code = self._blender.returncode
        raise RuntimeError(f"{self._program} ended with code {code}: {''.join(self._said)}")


def version(program: str | Path | None = None) -> str:
    """What pictures depend on besides the scene."""
    command = [find_blender(program), "--version"]
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"{command[0]} does not say its version: {error}") from error
    said = answer.stdout.partition("\n")[0].strip().lower()
    if answer.returncode or not said.startswith("blender"):
        raise RuntimeError(
            f"{command[0]} is no Blender: asked for its version, it ended with code "
            f"{answer.returncode} and said {said[:60]!r}"
        )
    return said


def find_blender(program: str | Path | None = None) -> str:
    """The path of Blender: ``program``, or the one on the PATH."""
    found = shutil.which("blender" if program is None else program)
    if found is None:
        raise FileNotFoundError(
            "there is no Blender on the PATH: install it (Debian: apt-get install blender; "
            "others: https://www.blender.org), say where it is, or use the renderer mitsuba"
            if program is None
            else f"{program} is no program that can be run: expected the path of Blender"
        )
    return found


def describe(scene: Scene) -> dict[str, Any]:
    """The scene in the words of `blender_script`, with all of its meshes."""
    ground = _body("ground", backdrop(), [_layer(looks.GROUND)])
    blocks = []
    for number, placed in enumerate(scene.blocks):
        block = placed.block
        mesh = block_mesh(block.shape, block.half).placed(block.rotation, placed.location)
        blocks.append(_body(f"block{number}", mesh, _layers(placed)))
    return {
        "camera": scene.camera,
        "aim": scene.aim,
        "field_of_view": looks.FIELD_OF_VIEW,
        "lamps": [
            {"position": lamp.position, "side": lamp.side, "radiance": lamp.radiance}
            for lamp in scene.lamps
        ],
        "sun": {"direction": scene.sun.direction, "irradiance": scene.sun.irradiance},
        "bodies": [ground, *blocks],
        "bounces": _BOUNCES,
        "noise": scene.noise,
    }


def _layers(placed: PlacedBlock) -> list[dict[str, Any]]:
    if placed.material == "metal":
        blurred, sharp = looks.METAL_ROUGHNESS
        return [_layer(placed.colour, blurred), _layer(placed.colour, sharp, looks.METAL_SHARP)]
    shine = _layer(looks.RUBBER_WHITE, looks.RUBBER_ROUGHNESS, looks.RUBBER_SHINE)
    return [_layer(placed.colour), shine]


def _layer(
    colour: looks.Vector | float, roughness: float | None = None, share: float = 1.0
) -> dict[str, Any]:
    rgb = [colour] * 3 if isinstance(colour, float) else list(colour)
    return {"colour": rgb, "roughness": roughness, "share": share}


def _body(name: str, mesh: Mesh, layers: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "vertices": mesh.vertices.tolist(),
        "normals": mesh.normals.tolist(),
        "faces": mesh.faces.tolist(),
        "layers": layers,
    }
