"""In which worlds the picture of a block tells its material: how the world of Table 5 was chosen.

Run ``python benchmarks/worlds.py``; it draws some states of each world, which takes a minute a
world on two cores and goes on where it was stopped, and writes the record
``benchmarks/records/worlds.json`` and the table of ``docs/planning.md``. No network is involved.

Legend: S states, N blocks, P numbers of a patch.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from setwise import environment
from setwise.data.blocksworld import Blocksworld
from setwise.files import write_text
from setwise.render import Environment, Settings, files, render_states
from setwise.render.patches import cut
from setwise.report.document import with_block

PAGE = Path(__file__).parent.parent / "docs" / "planning.md"
RECORD = Path(__file__).parent / "records" / "worlds.json"
WORLD = Blocksworld(blocks=4, stacks=3)
STATES = 48
# A first look at sixteen worlds: small blocks, and large cubes seen edge-on, do worst.
FIRST_LOOK = (0, 1, 2, 5, 6, 7, 8, 12, 14, 23, 25, 26, 28, 35, 36, 38)
# So a second at all worlds of large blocks, most of them cylinders, of the first so many seeds.
SEEDS = 500
# Patches are averaged over squares of so many pixels, so that the noise of the rays counts little.
SQUARE = 4


def candidates() -> list[int]:
    """The seeds of the worlds that are looked at."""
    return [*FIRST_LOOK, *(seed for seed in range(SEEDS) if _is_second_look(seed))]


def _is_second_look(seed: int) -> bool:
    blocks = Environment.draw(WORLD, seed).blocks
    cylinders = sum(block.shape == "cylinder" for block in blocks)
    return all(block.size == "large" for block in blocks) and cylinders > len(blocks) // 2


def measure(seed: int, folder: Path, **size: int) -> dict[str, Any]:
    """Draw states of a world, and see how far apart both materials of each block are."""
    world = Environment.draw(WORLD, seed)
    states = WORLD.sample(STATES, seed=0)
    render_states(Settings(world, seed=seed, **size), states, folder)
    patches = torch.stack([_patches(folder, rank) for rank in WORLD.rank(states).tolist()])
    blocks = [
        {
            "shape": block.shape,
            "size": block.size,
            "colour": block.colour,
            "apart": round(apart(patches[:, number], states[:, number, 2] == 1), 2),
        }
        for number, block in enumerate(world.blocks)
    ]
    return {"seed": seed, "least": min(block["apart"] for block in blocks), "blocks": blocks}


def _patches(folder: Path, rank: int) -> Tensor:
    """The blocks of a picture, coarsely: [N, P]."""
    image, scene = files.load(folder, rank)
    boxes = np.array([block["bbox"] for block in scene["objects"]], np.uint16)
    patches = torch.from_numpy(cut(image, boxes)).movedim(-1, 1).float() / 255
    return avg_pool2d(patches, SQUARE).flatten(1)


def apart(patches: Tensor, metal: Tensor) -> float:
    """How far the averages of patches [S, P] of both materials are from each other.

    The unit is how far a patch is from the average of its own material, as a root mean square.
    """
    averages = torch.stack([patches[~metal].mean(0), patches[metal].mean(0)])
    from_own = (patches - averages[metal.long()]).square().sum(-1).mean().sqrt()
    return float((averages[1] - averages[0]).norm() / from_own)


def table(record: dict[str, Any]) -> str:
    """The record as it stands on the page, the worlds in which most is seen first."""
    lines = ["| seed | blocks, and how far apart their materials are | least |", "|---|---|---|"]
    for row in sorted(record["rows"], key=lambda row: -row["least"]):
        blocks = ", ".join(
            f"{block['size']} {block['colour']} {block['shape']} {block['apart']:.2f}"
            for block in row["blocks"]
        )
        lines.append(f"| {row['seed']} | {blocks} | {row['least']:.2f} |")
    return "\n".join(lines) + "\n"


def page(record: dict[str, Any]) -> str:
    """The page with the table of a record."""
    return with_block(PAGE.read_text(), PAGE.name, "worlds", table(record))


def main() -> None:
    """Measure all candidates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path, default=Path("runs/worlds"))
    options = parser.parse_args()
    rows = []
    for seed in candidates():
        rows.append(measure(seed, options.pictures / str(seed)))
        print(rows[-1], flush=True)
    record = {"header": environment.describe(torch.device("cpu")), "states": STATES, "rows": rows}
    write_text(RECORD, json.dumps(record, indent=1) + "\n")
    write_text(PAGE, page(record))


if __name__ == "__main__":
    main()
