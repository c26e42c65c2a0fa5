"""Draw the second picture of docs/renderers.md from results/scenes; --network FILE records anew.

Above held-out scenes of ``studies/rendered_scenes.py``, below what a network put out for them,
drawn again with the same camera and lamps: the first that came out right and the first that did
not. A wrong output has a red ring, and an object that no output found a yellow one. Networks do not
say how an object is turned. Beside the record lie the same pictures one by one, for the page of
``setwise report``.
"""

from __future__ import annotations

import argparse
import json
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from setwise import environment
from setwise.cli.user_file import run_file
from setwise.data.scenes import REACH, SCENE, WORDS
from setwise.experiments import Task
from setwise.experiments.saved_networks import read_config
from setwise.experiments.weights import load_weights
from setwise.render import Scene, open_renderer
from setwise.render.batches import scene_pictures
from setwise.render.environment import SIZES, Block
from setwise.render.scene import PlacedBlock
from setwise.render.silhouette import project
from setwise.render.tabletop import SceneSettings

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RECORD = ROOT / "results" / "scenes" / "detections.json"
FIGURE = HERE / "scene-detections.jpg"
SPRITES = runpy.run_path(str(HERE / "detections.py"))
EACH, GAP, RED, YELLOW = (SPRITES[name] for name in ("EACH", "GAP", "RED", "YELLOW"))
SETTINGS = SceneSettings(renderer="torch")
SIDE = SETTINGS.width
JUDGED = 200  # of the pictures that are held out
WITHIN = 0.5  # of a scene that spans 6


def main(arguments: list[str] | None = None) -> None:
    """Write the figure beside this file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--network", type=Path, help="saved by setwise train --keep all")
    if (network := parser.parse_args(arguments).network) is not None:
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text(json.dumps(record(network), indent=1) + "\n")
        shown = json.loads(RECORD.read_text())["shown"]
        for number, column in enumerate(shown):
            _beside(*pair(column)).save(RECORD.with_name(f"{number:02}.png"))
    draw(FIGURE)


@torch.no_grad()
def record(network: Path) -> dict[str, Any]:
    """What a network finds in the first held-out pictures, and some of them."""
    study = run_file("study", ROOT / "studies" / "rendered_scenes.py")
    config = read_config(network)
    first = study.DATA.train
    pictures, objects, valid = scene_pictures(SETTINGS, range(first, first + JUDGED))
    inputs = pictures.float() / 255
    targets = torch.cat([objects, valid.unsqueeze(-1).float()], dim=-1)
    task = Task(inputs, targets, JUDGED, SCENE)
    model = config.network.model(
        load_weights(network, lambda: config.network.build(task, to_train=False))
    )
    elements, presence = model(inputs)
    answers = SCENE.discretise(elements)
    columns = [
        {
            "scene": first + b,
            "objects": [_told(one) for one in objects[b][valid[b]]],
            "found": [_told(one) for one in answers[b][presence[b] > 0]],
        }
        for b in range(JUDGED)
    ]
    wrong = [column for column in columns if any(mistakes(column))]
    right = [column for column in columns if not any(mistakes(column))]
    found = {
        "environment": environment.describe(pictures.device),
        "run": config.identity,
        "judged": JUDGED,
        "right": len(right),
        "shown": [*right[:EACH], *wrong[:EACH]],
    }
    return found | for_report(found)


def for_report(recorded: dict[str, Any]) -> dict[str, Any]:
    """What ``setwise report`` says of the pictures."""
    return {
        "said": (
            f"Rendered scenes that were held out, and beside each what a network of "
            f"studies/rendered_scenes.py found in it, drawn again: the first that came out right, "
            f"then the first that did not. A red ring is around a wrong output, a yellow one "
            f"around an object that no output found; how an object is turned is not asked for. In "
            f"{recorded['right']} of {recorded['judged']} pictures all objects were found within "
            f"{WITHIN:g}, of scenes that span {2 * REACH:g}, and nothing else was."
        ),
        "captions": [_caption(column) for column in recorded["shown"]],
        "command": "python docs/figures/scene_detections.py --network FILE",
    }


def mistakes(column: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Objects that were missed, and outputs that are wrong."""
    found: tuple[list[Any], list[Any]] = SPRITES["unmatched"](
        column["objects"], column["found"], len(WORDS), WITHIN
    )
    return found


def _caption(column: dict[str, Any]) -> str:
    missed, wrong = mistakes(column)
    if not missed and not wrong:
        return f"right: all of {len(column['objects'])} objects"
    words = [
        f"{what} {', '.join(' '.join(reversed(one[: len(WORDS)])) for one in some)}"
        for what, some in (("missed", missed), ("found instead", wrong))
        if some
    ]
    return f"wrong: {'; '.join(words)}"


def pair(column: dict[str, Any]) -> tuple[Any, Any]:
    """What the network saw, and what it put out in the same light."""
    missed, wrong = mistakes(column)
    scene = SETTINGS.scene(column["scene"])
    again = replace(scene, blocks=tuple(_placed(one) for one in column["found"]))
    size = {"width": SIDE, "height": SIDE, "samples": SETTINGS.samples}
    with open_renderer("torch", **size) as render:
        seen, said = Image.fromarray(render(scene)), Image.fromarray(render(again))
    return _ringed(seen, scene, missed, YELLOW), _ringed(said, scene, wrong, RED)


def _ringed(picture: Any, scene: Scene, ringed: list[Any], colour: tuple[int, ...]) -> Any:
    pen = ImageDraw.Draw(picture)
    for told in ringed:
        middle = np.array(told[len(WORDS) :])
        x, y, depth = project(scene.camera, middle, SIDE, SIDE, scene.aim)
        radius = 1.4 * SIZES[told[3]] * SIDE / depth
        pen.ellipse([x - radius, y - radius, x + radius, y + radius], outline=colour, width=2)
    return picture


def draw(path: Path) -> None:
    """The figure of the pictures that lie beside the record: seen above, found below."""
    shown = json.loads(RECORD.read_text())["shown"]
    width = len(shown) * (SIDE + GAP) + GAP  # and a gap more between right and wrong
    sheet = Image.new("RGB", (width, 2 * SIDE + 3 * GAP), "white")
    for number in range(len(shown)):
        x = GAP + number * (SIDE + GAP) + (GAP if number >= EACH else 0) - GAP // 2
        with Image.open(RECORD.with_name(f"{number:02}.png")) as both:
            sheet.paste(both.crop((0, 0, SIDE, SIDE)), (x, GAP))
            sheet.paste(both.crop((SIDE + GAP, 0, 2 * SIDE + GAP, SIDE)), (x, SIDE + 2 * GAP))
    sheet.save(path, quality=88, subsampling=0, optimize=True)


def _beside(seen: Any, said: Any) -> Any:
    both = Image.new("RGB", (2 * SIDE + GAP, SIDE), "white")
    both.paste(seen, (0, 0))
    both.paste(said, (SIDE + GAP, 0))
    return both


def _told(element: Tensor) -> list[Any]:
    """Shape, colour, material, size, and x, y and z in the units of scenes."""
    *looks, place = SCENE.split(element)
    words = [names[part.argmax()] for names, part in zip(WORDS.values(), looks, strict=True)]
    return [*words, *(round(number, 3) for number in (REACH * place).tolist())]


def _placed(told: list[Any]) -> PlacedBlock:
    shape, colour, material, size, x, y, z = told
    return PlacedBlock(Block(shape, size, colour, rotation=0.0), material, (x, y, z))


if __name__ == "__main__":
    main()
