"""A plan as a folder of files, for whoever shows it later; `setwise report` does.

    plan.json        a caption for each state, the verdict, the network, and where it was found
    00.png, 01.png   the states as they were decoded, in their order

Legend: P states of a plan, H, W height and width of a picture.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from setwise.worlds.drawing import Pictures

PLAN = "plan.json"


def write_plan(
    folder: Path, pictures: Pictures, captions: Sequence[str], about: dict[str, Any]
) -> None:
    """Write pictures [P, H, W, 3] and what is said of them; a plan that was there is replaced."""
    check_place(folder)
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
    unfinished.mkdir(parents=True)
    try:
        for number, picture in enumerate(pictures):
            # A quarter of the size, and no difference to be seen.
            few = Image.fromarray(picture).quantize(256, dither=Image.Dither.NONE)
            few.save(unfinished / f"{number:02}.png", optimize=True)
        record = {"captions": list(captions), **about}
        (unfinished / PLAN).write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
        _put(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def check_place(folder: Path) -> None:
    """A plan may be written where there is nothing, or another plan."""
    if folder.exists() and not (folder / PLAN).exists():
        raise ValueError(f"{folder}: is there already and is no plan; choose another place or name")


def _put(new: Path, folder: Path) -> None:
    """Rename, with what was there moved aside first and removed last: one of both is kept."""
    before = new.with_name(f"{new.name}.before")
    try:
        if folder.exists():
            folder.rename(before)
        new.rename(folder)
    finally:
        if before.exists() and not folder.exists():
            before.rename(folder)
        shutil.rmtree(before, ignore_errors=True)
