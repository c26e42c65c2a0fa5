"""Draw the plans of docs/planning.md, from the pictures of their states in results/plans/."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from setwise.planning.pictures import write_strip

HERE = Path(__file__).parent
PLANS = HERE.parent.parent / "results" / "plans"
FIGURES = {"plan-puzzle.png": "puzzle-3x3-14-seed3", "plan-blocks.png": "blocks-4x3-14-seed1"}


def main() -> None:
    """Write a strip for each, beside this file."""
    for figure, plan in FIGURES.items():
        draw(PLANS / plan, HERE / figure)


def draw(plan: Path, path: Path) -> None:
    """The states of a recorded plan, each with its caption."""
    captions = json.loads((plan / "plan.json").read_text())["captions"]
    files = [plan / f"{number:02}.png" for number in range(len(captions))]
    pictures = np.stack([np.asarray(Image.open(file).convert("RGB")) for file in files])
    write_strip(path, pictures, captions)


if __name__ == "__main__":
    main()
