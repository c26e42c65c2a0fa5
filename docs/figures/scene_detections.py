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
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from found import EACH, RED, SIDE, YELLOW, Told, beside, caption, sheet, unmatched
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

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
STUDY = run_file("study", ROOT / "studies" / "rendered_scenes.py")
RECORD = ROOT / "results" / "scenes" / "detections.json"
FIGURE = HERE / "scene-detections.jpg"
SETTINGS = STUDY.DATA.render_settings()
JUDGED = 200  # of the pictures that are held out
WITHIN = 0.5  # of a scene that spans 6


def main(arguments: list[str] | None = None) -> None:
    """Write the figure beside this file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--network", type=Path, help="saved by setwise train --keep all")
    if (network := parser.parse_args(arguments).network) is not None:
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text(json.dumps(record(network), indent=1) + "\n")
    for number, column in enumerate(json.loads(RECORD.read_text())["shown"]):
        beside(*pair(column)).save(RECORD.with_name(f"{number:02}.png"))
    draw(FIGURE)


@torch.no_grad()
def record(network: Path) -> dict[str, Any]:
    """What a network finds in the first held-out pictures, and some of them."""
    config = read_config(network)
    if config.data.unbound() != replace(STUDY.DATA, scale=config.data.scale):
        raise ValueError(
            f"{network}: expected a network of {STUDY.EXPERIMENT.command}, whose pictures these "
            f"are; got one of {config.experiment}, trained on {config.data}"
        )
    first = STUDY.DATA.train
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
        "within": WITHIN,
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
        "captions": [
            caption(len(column["objects"]), *mistakes(column), len(WORDS))
            for column in recorded["shown"]
        ],
        "command": "python docs/figures/scene_detections.py --network FILE",
    }


def mistakes(column: dict[str, Any]) -> tuple[list[Told], list[Told]]:
    """Objects that were missed, and outputs that are wrong."""
    return unmatched(column["objects"], column["found"], len(WORDS), WITHIN)


def pair(column: dict[str, Any]) -> tuple[Any, Any]:
    """What the network saw, and what it put out in the same light."""
    missed, wrong = mistakes(column)
    scene = SETTINGS.scene(column["scene"])
    again = replace(scene, blocks=tuple(_placed(one) for one in column["found"]))
    size = {"width": SIDE, "height": SIDE, "samples": SETTINGS.samples}
    with open_renderer("torch", **size) as render:
        seen, said = Image.fromarray(render(scene)), Image.fromarray(render(again))
    return _ringed(seen, scene, missed, YELLOW), _ringed(said, scene, wrong, RED)


def _ringed(picture: Any, scene: Scene, ringed: list[Told], colour: tuple[int, ...]) -> Any:
    pen = ImageDraw.Draw(picture)
    for told in ringed:
        x, y, radius = ring(scene, told)
        pen.ellipse([x - radius, y - radius, x + radius, y + radius], outline=colour, width=2)
    return picture


def ring(scene: Scene, told: Told) -> tuple[float, float, float]:
    """Around an object, in pixels: x, y and radius."""
    middle = np.array(told[len(WORDS) :])
    x, y, depth = project(scene.camera, middle, SIDE, SIDE, scene.aim)
    return x, y, 1.4 * SIZES[told[3]] * SIDE / depth


def draw(path: Path) -> None:
    """The figure of the pictures that lie beside the record."""
    shown = json.loads(RECORD.read_text())["shown"]
    pairs = [Image.open(RECORD.with_name(f"{number:02}.png")) for number in range(len(shown))]
    sheet(pairs).save(path, quality=88, subsampling=0, optimize=True)


def _told(element: Tensor) -> Told:
    """Shape, colour, material, size, and x, y and z in the units of scenes."""
    *looks, place = SCENE.split(element)
    words = [names[part.argmax()] for names, part in zip(WORDS.values(), looks, strict=True)]
    return [*words, *(round(number, 3) for number in (REACH * place).tolist())]


def _placed(told: Told) -> PlacedBlock:
    shape, colour, material, size, x, y, z = told
    return PlacedBlock(Block(shape, size, colour, rotation=0.0), material, (x, y, z))


if __name__ == "__main__":
    main()
