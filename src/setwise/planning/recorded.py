"""A plan as a folder of files, for whoever shows it later; `setwise report` does.

    plan.json        a caption for each state, the verdict, the network, and where it was found
    00.png, 01.png   the states as they were decoded, in their order

Legend: P states of a plan, H, W height and width of a picture.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from setwise.files import unfinished
from setwise.worlds.drawing import Pictures

PLAN = "plan.json"
_FILES = re.compile(r"plan\.json|\d{2,}\.png")  # of a plan


def write_plan(
    folder: Path, pictures: Pictures, captions: Sequence[str], about: dict[str, Any]
) -> None:
    """Write pictures [P, H, W, 3] and what is said of them; a plan that was there is replaced."""
    check_place(folder)
    with unfinished(folder, folder=True) as new, unfinished(folder, folder=True) as aside:
        for number, picture in enumerate(pictures):
            # A quarter of the size, and no difference to be seen.
            few = Image.fromarray(picture).quantize(256, dither=Image.Dither.NONE)
            few.save(new / f"{number:02}.png", optimize=True)
        record = {"captions": list(captions), **about}
        (new / PLAN).write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
        _put(new, folder, aside)


def check_place(folder: Path) -> None:
    """A plan may be written where there is nothing, or another plan and nothing else."""
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir() or not (folder / PLAN).is_file():
        raise ValueError(f"{folder}: is there already and is no plan; choose another place or name")
    if others := [path.name for path in folder.iterdir() if not _FILES.fullmatch(path.name)]:
        raise ValueError(
            f"{folder}: holds more than a plan, such as {others[0]}, which would be lost; choose "
            f"another place or name"
        )


def _put(new: Path, folder: Path, aside: Path) -> None:
    """Rename, with what was there moved aside first: after an error it is there again."""
    if not folder.exists():
        new.rename(folder)
        return
    before = folder.rename(aside / folder.name)
    try:
        check_place(before)  # again, where nobody puts anything into it
        new.rename(folder)
    except BaseException:
        before.rename(folder)
        raise
