"""The renderers beside each other: how near to Mitsuba's with many rays their pictures come.

    python -m tools.renderers measure  # the record and the figure; needs Blender, takes minutes
    python -m tools.renderers write    # the tables of docs/renderers.md

The records are benchmarks/records/renderers.json, drawing-h200.json beside it, which
``benchmarks/drawing.py`` writes, and, of ``studies/rendered_scenes.py``,
results/rendered-scenes.jsonl and, by ``docs/figures/scene_detections.py``, results/scenes. Signal
to noise is that of bytes, 10 lg(255^2 / d) with the mean square difference d; seconds are those of
one core, which Blender, a program of its own, does not tell.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from setwise.cli.user_file import run_file
from setwise.environment import describe
from setwise.experiments import records
from setwise.experiments.experiment import Sheet
from setwise.experiments.settings import check_settings
from setwise.files import atomic_write_text
from setwise.render import Scene, SceneSettings, open_renderer
from setwise.render.backends import RendererName
from tools.markdown import markdown, with_blocks, wrapped
from tools.photographs import contact_sheet, save

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "benchmarks" / "records" / "renderers.json"
DRAWN = RECORD.with_name("drawing-h200.json")
PAGE = ROOT / "docs" / "renderers.md"
FIGURE = ROOT / "docs" / "figures" / "renderers.jpg"
SCENES = 4
MANY = 128  # rays for each pixel of what all are held against
TABLE = SceneSettings()
NAME = "rendered-scenes"
STUDY = run_file("study", ROOT / "studies" / "rendered_scenes.py")
# The numbers of a record, and the distance within which each counts an object as found.
LIMITS = {
    "ap": "any, all pictures",
    "heldout_ap": "any",
    "heldout_ap_1": "1",
    "heldout_ap_0.5": "0.5",
    "heldout_ap_0.25": "0.25",
    "heldout": "0.125",
}


def drawn(
    name: RendererName, scenes: Sequence[Scene], samples: int
) -> tuple[list[NDArray[np.uint8]], float]:
    """Pictures of the scenes on one core, and the seconds of each after the first."""
    with open_renderer(
        name, width=TABLE.width, height=TABLE.height, samples=samples, threads=1
    ) as draw:
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
    scenes = TABLE.scenes(range(SCENES))
    size = {"width": TABLE.width, "height": TABLE.height}
    true, _ = drawn("mitsuba", scenes, MANY)
    told: dict[str, dict[str, float]] = {}
    rows: list[NDArray[np.uint8]] = []
    for name in get_args(RendererName):
        pictures, took = drawn(name, scenes, TABLE.samples)
        told[name] = {"decibels": noise(pictures, true)}
        if name != "blender":
            told[name]["seconds"] = round(took, 3)
        rows += pictures
        print(name, told[name], flush=True)
    save(contact_sheet(rows, columns=SCENES), FIGURE)
    found = {"scenes": SCENES, "many": MANY, "samples": TABLE.samples, **size, "of": told}
    found["environment"] = describe(torch.device("cpu"))
    atomic_write_text(RECORD, json.dumps(found, indent=1) + "\n")


def compared() -> str:
    """How near each renderer comes, and what it takes."""
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    rows = []
    for name, told in found["of"].items():
        took = f"{told['seconds']:.2f}" if "seconds" in told else "not measured"
        rows.append([f"`{name}`", f"{told['decibels']:.1f}", took])
    size = f"{found['width']} x {found['height']} pixels, {found['samples']} rays each"
    return "\n".join(markdown([size, "decibels", "seconds of a core"], rows)) + "\n"


def on_a_gpu(record: Path = DRAWN) -> str:
    """How many pictures a GPU draws in a minute."""
    if not record.is_file():
        return wrapped(
            f"How many pictures a GPU draws in a minute has not been measured yet: "
            f"`python benchmarks/drawing.py` writes `benchmarks/records/{record.name}`."
        )
    found = json.loads(record.read_text(encoding="utf-8"))
    pictures, seconds, where = found["pictures"], found["seconds"], found["environment"]
    return wrapped(
        f"{where['hardware']} draws {60 * pictures / seconds:,.0f} pictures of {found['width']} x "
        f"{found['height']} pixels, {found['samples']} rays each, in a minute, straight into "
        f"tensors: {pictures:,} in {seconds:g} s, by `python benchmarks/drawing.py`, torch "
        f"{where['torch']}, commit {str(where['commit'])[:12]}."
    )


def learned(results: Path) -> str:
    """A row for each network with each loss, the best at the strictest distance first."""
    if not (results / f"{NAME}.jsonl").is_file():
        return "Nothing recorded yet.\n"
    sheet = Sheet.read(results / f"{NAME}.json")
    cells: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    lengths: dict[str, set[str]] = defaultdict(set)
    found = records.read(results / f"{NAME}.jsonl")
    check_settings(NAME, [record["config"] for record in found])
    for record in found:
        cell = record["scenario"], record["loss"]
        cells[cell].append(record["metrics"])
        lengths[_length(record["config"])].add(_named(sheet, *cell))
    rows = []
    for (scenario, loss), runs in cells.items():
        medians = [median(run[name] for run in runs) for name in LIMITS]
        style = sheet.losses[loss]
        told = [sheet.scenarios[scenario], style.symbol, str(len(runs))]
        rows.append((medians[-1], [*told, *(f"{value:.3f}" for value in medians)]))
    rows.sort(key=lambda row: -row[0])
    table = markdown(["network", "loss", "seeds", *LIMITS.values()], [row for _, row in rows])
    if len(lengths) == 1:
        said = f"Each was trained for {next(iter(lengths))}."
    else:
        parts = (f"For {length}: {'; '.join(sorted(own))}" for length, own in lengths.items())
        said = f"Not all were trained alike. {'. '.join(parts)}."
    if missing := [_named(sheet, *cell) for cell in STUDY.CELLS if cell not in cells]:
        said += f" Not trained yet: {'; '.join(missing)}."
    return "\n".join([wrapped(said), *table]) + "\n"


def _named(sheet: Sheet, scenario: str, loss: str) -> str:
    return f"{sheet.scenarios[scenario]} with {sheet.losses[loss].symbol}"


def _length(config: dict[str, Any]) -> str:
    """How long a network was trained, and on what."""
    epochs, batch = config["schedule"]["epochs"], config["schedule"]["batch"]
    pictures = config["data"]["train"]
    steps = epochs * (pictures // batch)  # what does not fill a batch sits an epoch out
    varied = (
        ", mirrored by chance and lit otherwise each time" if config["data"].get("varied") else ""
    )
    return f"{epochs} epochs of {pictures:,} pictures{varied}: {steps:,} steps of {batch}"


def found(results: Path) -> str:
    """In how many pictures one of these networks finds everything."""
    told = json.loads((results / "scenes" / "detections.json").read_text(encoding="utf-8"))
    return wrapped(
        f"In {told['right']} of the first {told['judged']} held-out pictures this network finds "
        f"every object within {told['within']:g} of its place, and nothing else."
    )


def written(text: str, results: Path = ROOT / "results") -> str:
    """The page with the tables of the records."""
    blocks = {"renderers": compared(), "drawing": on_a_gpu()}
    blocks |= {"rendered": learned(results), "found": found(results)}
    return with_blocks(text, PAGE.name, blocks)


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
