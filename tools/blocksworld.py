"""Draw the pictures of docs/blocksworld.md: states, both renderers, and what networks make of them.

    python -m tools.blocksworld [FOLDER]

renders 20 states with Mitsuba and with Blender into the folder, by default runs/figures, which
takes minutes the first time, and writes ``docs/figures/blocksworld-*.jpg``.

    python -m tools.blocksworld reconstructions [RUNS]

draws ``docs/figures/blocksworld-reconstructions.png`` from results/table3-reconstructions.npz. With
RUNS, the folder runs/table3 of ``setwise reproduce table3 --keep best``, that file is first made
anew; the pictures that the networks learned from are looked for in the folder above.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from setwise.data.blocksworld import Blocksworld
from setwise.data.blocksworld_steps import action_between
from setwise.experiments.experiment import Sheet
from setwise.experiments.recipes import table3
from setwise.experiments.reconstruct import reconstruct
from setwise.experiments.reconstructions import Reconstructions
from setwise.render import Environment, Settings, files, render_states
from setwise.render.patches import cut
from tools.photographs import contact_sheet, draw_reconstructions, enlarged, save

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "figures"
WORLD = Blocksworld(blocks=5, stacks=3)
STATES = 20
# The first states of Table 3 that no network was trained on.
HELD_OUT = range(table3.DATA.train, table3.DATA.train + 4)
SCENARIO = "4"  # inputs and targets in random order
SCALE = 2
# Rows and columns of the part of an enlarged picture in which the blocks of these states are.
WINDOW = np.s_[SCALE * 62 : SCALE * 172, SCALE * 85 : SCALE * 215]


def main() -> None:
    """Draw what was asked for."""
    command, *rest = [*sys.argv[1:], "runs/figures"]
    if command == "reconstructions":
        kept = ROOT / "results" / "table3-reconstructions.npz"
        if len(sys.argv) > 2:
            collect_reconstructions(Path(rest[0]), HELD_OUT, kept)
        found = Reconstructions.read(kept)
        sheet = Sheet.read(ROOT / "results" / "table3.json")
        draw_reconstructions(sheet, found, SCENARIO, FIGURES / "blocksworld-reconstructions.png")
    else:
        draw_states(Path(command))


def collect_reconstructions(runs: Path, states: Sequence[int], path: Path) -> None:
    """Write what the networks kept in a folder of runs make of these states of their data."""
    reconstruct(sorted(runs.glob("*.safetensors")), states, runs.parent).write(path)


def draw_states(folder: Path) -> None:
    """States of the data set and a step between two, rendered into the folder."""
    states = WORLD.sample(STATES, seed=0)  # those that the data set begins with
    after = WORLD.successors(states[0])
    steps = torch.cat([states[:1], after[0][after[1]]])
    drawn: dict[Any, list[tuple[NDArray[np.uint8], NDArray[np.uint16]]]] = {}
    for renderer in ("mitsuba", "blender"):
        settings = Settings(Environment.draw(WORLD, seed=0), renderer=renderer)
        render_states(settings, states, folder / renderer)
        drawn[renderer] = [_load(folder / renderer, state) for state in states]
        if renderer == "mitsuba":
            render_states(settings, steps[:2], folder / renderer)
    pairs = [
        enlarged(picture, SCALE, boxes)[WINDOW]
        for both in zip(drawn["mitsuba"], drawn["blender"], strict=True)
        for picture, boxes in both
    ]
    save(contact_sheet(pairs, columns=8), FIGURES / "blocksworld-renderers.jpg")
    sheet = contact_sheet([picture for picture, _ in drawn["mitsuba"][:12]], columns=4)
    save(sheet, FIGURES / "blocksworld-states.jpg")
    print(action_between(WORLD, steps[0], steps[1]))
    save(_transition(folder / "mitsuba", steps[:2]), FIGURES / "blocksworld-transition.jpg")


def _load(folder: Path, state: Tensor) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    image, description = files.load(folder, int(WORLD.rank(state)))
    boxes = np.array([block["bbox"] for block in description["objects"]], dtype=np.uint16)
    return np.asarray(image.convert("RGB")), boxes


def _transition(folder: Path, states: Tensor) -> NDArray[np.uint8]:
    """Two pictures side by side, and below each its blocks as they are cut out."""
    columns = []
    for state in states:
        picture, boxes = _load(folder, state)
        image, _ = files.load(folder, int(WORLD.rank(state)))
        picture = enlarged(picture, SCALE, boxes)
        cuts = [enlarged(patch, SCALE) for patch in cut(image, boxes)]
        patches = contact_sheet(cuts, columns=len(boxes))
        below = np.full((patches.shape[0] + 8, picture.shape[1], 3), 255, dtype=np.uint8)
        left = (picture.shape[1] - patches.shape[1]) // 2
        below[8:, left : left + patches.shape[1]] = patches
        columns.append(np.concatenate([picture, below]))
    return contact_sheet(columns, columns=2)


if __name__ == "__main__":
    main()
