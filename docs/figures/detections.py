"""Draw the picture of docs/pictures.md from results/detect/detections.json; --train records anew.

Above what the network of examples/detect.py saw, below what it put out, for the first pictures that
came out right and the first that did not. A wrong output has a red ring, and an object that no
output found a yellow one. Beside the record lie the same pictures one by one, for the page of
``setwise report``.
"""

from __future__ import annotations

import argparse
import json
import runpy
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw
from torch import Tensor

import setwise as sw
from found import EACH, RED, SIDE, YELLOW, Told, beside, caption, sheet, unmatched
from setwise import environment
from setwise.data.sprites import COLOURS, SHAPES, SIZES, SPRITE, draw_sprites, sprites

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RECORD = ROOT / "results" / "detect" / "detections.json"
FIGURE = "detections.png"
NAMES = (SHAPES, tuple(COLOURS), tuple(SIZES))
WITHIN = 0.1


def main(arguments: list[str] | None = None) -> None:
    """Write the figure beside this file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--train", action="store_true", help="train and record first")
    if parser.parse_args(arguments).train:
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text(json.dumps(record(), indent=1) + "\n")
    draw(HERE / FIGURE)
    for number, picture in enumerate(pictures()):
        picture.save(RECORD.with_name(f"{number:02}.png"))


@torch.no_grad()
def record() -> dict[str, Any]:
    """What the example finds, and some of its pictures."""
    with torch.enable_grad():
        example = runpy.run_path(str(ROOT / "examples" / "detect.py"))
        model = example["train"](example["STEPS"])
    pictures, objects, valid = sprites(1000, torch.Generator().manual_seed(1), **example["SCENES"])
    elements, presence = model(pictures)
    masks = {"presence": presence, "target_valid": valid, "reduction": "none"}
    right = sw.metrics.multiset_equality(elements, objects, SPRITE, tolerance=WITHIN, **masks) == 1
    shown = [*right.nonzero()[:EACH].flatten(), *(~right).nonzero()[:EACH].flatten()]
    answers = SPRITE.discretise(elements)
    found = {
        "environment": environment.describe(pictures.device),
        "average precision": example["judge"](model),
        "pictures that are right": right.float().mean().item(),
        "side": pictures.shape[-1],
        "shown": [
            {
                "objects": [_told(one) for one in objects[b][valid[b]]],
                "found": [_told(one) for one in answers[b][presence[b] > 0]],
            }
            for b in shown
        ],
    }
    return found | for_report(found)


def for_report(recorded: dict[str, Any]) -> dict[str, Any]:
    """What ``setwise report`` says of the pictures."""
    precision = recorded["average precision"]
    numbers = ", ".join(f"{value:.3f} {name}" for name, value in precision.items())
    return {
        "said": (
            f"New pictures of sprites, and beside each what the network of examples/detect.py "
            f"found in it: the first that came out right, then the first that did not. A red ring "
            f"is around a wrong output, a yellow one around an object that no output found. "
            f"Average precision {numbers}; {recorded['pictures that are right']:.1%} of a thousand "
            f"pictures are right."
        ),
        "captions": [
            caption(len(column["objects"]), *mistakes(column), len(NAMES))
            for column in recorded["shown"]
        ],
        "command": "python docs/figures/detections.py --train",
    }


def draw(path: Path) -> None:
    """The figure of what is recorded."""
    sheet(pictures()).save(path)


def pictures() -> list[Any]:
    """What is recorded, a picture and what was found in it side by side."""
    recorded = json.loads(RECORD.read_text())
    return [beside(*_pair(column, recorded["side"])) for column in recorded["shown"]]


def _pair(column: dict[str, Any], side: int) -> tuple[Any, Any]:
    """What the network saw, and what it put out."""
    missed, wrong = mistakes(column)
    seen, said = column["objects"], column["found"]
    return _ringed(seen, missed, YELLOW, side), _ringed(said, wrong, RED, SIDE)


def mistakes(column: dict[str, Any]) -> tuple[list[Told], list[Told]]:
    """Objects that were missed, and outputs that are wrong."""
    return unmatched(column["objects"], column["found"], len(NAMES), WITHIN)


def _ringed(objects: list[Any], ringed: list[Any], colour: tuple[int, ...], side: int) -> Any:
    """Objects drawn with this many pixels, enlarged, and rings around some."""
    if objects:
        elements = torch.stack([_element(one) for one in objects]).unsqueeze(0)
    else:
        elements = torch.zeros(1, 0, SPRITE.width)
    drawn = draw_sprites(elements, torch.ones(1, len(objects), dtype=torch.bool), side)[0]
    pixels = (drawn.movedim(0, -1) * 255).round().byte().numpy()
    picture = Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.NEAREST)
    pen = ImageDraw.Draw(picture)
    for *_, x, y in ringed:
        middle, radius = ((x + 1) * SIDE / 2, (y + 1) * SIDE / 2), 21
        corners = [middle[0] - radius, middle[1] - radius, middle[0] + radius, middle[1] + radius]
        pen.ellipse(corners, outline=colour, width=2)
    return picture


def _told(element: Tensor) -> list[Any]:
    """Shape, colour, size, x and y."""
    *looks, place = SPRITE.split(element)
    words = [names[part.argmax()] for names, part in zip(NAMES, looks, strict=True)]
    return [*words, *(round(number, 4) for number in place.tolist())]


def _element(told: list[Any]) -> Tensor:
    looks = [
        torch.eye(len(names))[names.index(word)] for names, word in zip(NAMES, told, strict=False)
    ]
    return torch.cat([*looks, torch.tensor(told[3:])])


if __name__ == "__main__":
    main()
