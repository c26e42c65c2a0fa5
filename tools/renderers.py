"""The renderers beside each other: how near to Mitsuba's with many rays their pictures come.

    python -m tools.renderers measure  # the record and the figure; needs Blender, takes minutes
    python -m tools.renderers write    # the table of docs/pictures.md

The record is benchmarks/records/renderers.json. Signal to noise is that of bytes, 10 lg(255^2 / d)
with the mean square difference d; seconds are those of one core, which Blender, a program of its
own, does not tell.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from setwise.data import Blocksworld
from setwise.environment import describe
from setwise.files import atomic_write_text
from setwise.render import Environment, Scene, Settings, open_renderer
from setwise.render.backends import RendererName
from setwise.render.tabletop import SceneSettings
from tools.markdown import markdown, with_blocks
from tools.photographs import contact_sheet, save

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "benchmarks" / "records" / "renderers.json"
PAGE = ROOT / "docs" / "pictures.md"
FIGURE = ROOT / "docs" / "figures" / "renderers.png"
SCENES = 4
MANY = 256  # rays for each pixel of what all are held against
TABLE = SceneSettings()
BLOCKS = Settings(Environment.draw(Blocksworld(4, 3), 0))


def drawn(
    name: RendererName, scenes: Sequence[Scene], samples: int, **size: int
) -> tuple[list[NDArray[np.uint8]], float]:
    """Pictures of the scenes on one core, and the seconds of each after the first."""
    with open_renderer(name, samples=samples, threads=1, **size) as draw:
        pictures = [draw(scenes[0])]  # loads what has to be loaded
        before = time.process_time()
        pictures += [draw(scene) for scene in scenes[1:]]
        took = time.process_time() - before
    return pictures, took / max(1, len(scenes) - 1)


def noise(pictures: Sequence[NDArray[np.uint8]], true: Sequence[NDArray[np.uint8]]) -> float:
    """Peak signal to noise in decibels, the mean over pictures."""
    pairs = zip(pictures, true, strict=True)
    squares = [((one.astype(float) - two) ** 2).mean() for one, two in pairs]
    return round(float(np.mean([10 * math.log10(255**2 / square) for square in squares])), 2)


def measure() -> None:
    """Draw by all of them, and write the record and the figure."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {"scenes": SCENES, "many": MANY, "of": {}}
    rows: list[NDArray[np.uint8]] = []
    for kind, settings in (("scenes", TABLE), ("blocks", BLOCKS)):
        numbers = range(SCENES) if kind == "scenes" else range(100, 100 + 700 * SCENES, 700)
        scenes = settings.scenes(list(numbers))
        size = {"width": settings.width, "height": settings.height}
        true, _ = drawn("mitsuba", scenes, MANY, **size)
        told = {}
        for name in get_args(RendererName):
            pictures, took = drawn(name, scenes, settings.samples, **size)
            told[name] = {"decibels": noise(pictures, true)}
            if name != "blender":  # a process of its own
                told[name]["seconds"] = round(took, 3)
            if kind == "scenes":
                rows += pictures
            print(kind, name, told[name], flush=True)
        found["of"][kind] = told | {"samples": settings.samples, **size}
    save(contact_sheet(rows, columns=SCENES), FIGURE)
    found["environment"] = describe(torch.device("cpu"))
    atomic_write_text(RECORD, json.dumps(found, indent=1) + "\n")


def table() -> str:
    """How near each renderer comes, and what it takes."""
    found = json.loads(RECORD.read_text(encoding="utf-8"))["of"]
    rows = []
    for name in get_args(RendererName):
        row = [f"`{name}`"]
        for kind in ("scenes", "blocks"):
            told = found[kind][name]
            row += [
                f"{told['decibels']:.1f}",
                f"{told['seconds']:.2f}" if "seconds" in told else "",
            ]
        rows.append(row)
    titles = ["renderer"]
    for kind, what in (("scenes", "scenes"), ("blocks", "blocks")):
        size = f"{found[kind]['width']} x {found[kind]['height']}"
        titles += [f"{what}, {size}: dB", "seconds of a core"]
    return "\n".join(markdown(titles, rows)) + "\n"


def written(text: str) -> str:
    """The page with the table of the record."""
    return with_blocks(text, PAGE.name, {"renderers": table()})


def main(arguments: Sequence[str] | None = None) -> None:
    """See above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["measure", "write"])
    if parser.parse_args(arguments).what == "measure":
        measure()
    else:
        atomic_write_text(PAGE, written(PAGE.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
