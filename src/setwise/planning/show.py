"""The pictures of a plan, from what was decoded: a strip, an animation, or one of each state.

Legend: P states of a plan, N objects, F features, H, W height and width of a picture.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from setwise import environment
from setwise.planning.domain import Domain
from setwise.planning.latent import device_of
from setwise.planning.learned import LearnedSpace
from setwise.planning.pictures import Between, Pictures, write_animation, write_strip
from setwise.planning.puzzle import PuzzleDomain
from setwise.planning.recorded import write_plan
from setwise.planning.tiles import draw_moves, draw_states
from setwise.planning.validate import FaultKind, Report

_MARGIN = 8  # pixels around the blocks
_HANDY = 280  # pixels from left to right, about


def write_pictures(
    space: LearnedSpace, objects: Tensor, report: Report, folder: Path, name: str
) -> tuple[Path, Path]:
    """Draw the states [P, N, F] of a plan; returns where the strip and the animation are."""
    captions, wrong = captions_of(space.domain, report)
    pictures, kind = draw_plan(space, objects), "png"
    between: Between | None = None
    if isinstance(space.domain, PuzzleDomain):
        puzzle, kind = space.domain, "gif"

        def between(step: int) -> Pictures:
            return draw_moves(puzzle, objects[step - 1], objects[step])

    # A suffix for each: no name of a problem can then lead to the file of another.
    strip, animation = folder / f"{name}-strip.png", folder / f"{name}-animation.{kind}"
    write_strip(strip, pictures, captions, wrong=wrong)
    write_animation(animation, pictures, captions, wrong=wrong, between=between)
    return strip, animation


def record_plan(
    space: LearnedSpace, objects: Tensor, report: Report, folder: Path, command: str
) -> None:
    """Write the states [P, N, F] of a plan into a folder of its own, for `setwise report`."""
    config = space.config
    captions, _ = captions_of(space.domain, report)
    about = {
        "domain": space.domain.name,
        "verdict": str(report).partition("\n")[0],
        "valid": report.valid,
        "network": {
            "file": space.path.name,
            "table": config.table,
            "scenario": config.scenario,
            "loss": config.loss,
            "seed": config.seed,
        },
        "command": command,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment.describe(device_of(space.model)),
    }
    write_plan(folder, draw_plan(space, objects), captions, about)


def draw_plan(space: LearnedSpace, objects: Tensor) -> Pictures:
    """The states [P, N, F] of a plan as pictures [P, H, W, 3]."""
    if isinstance(space.domain, PuzzleDomain):
        return draw_states(space.domain, objects)
    return _photographs(space, objects)


def captions_of(domain: Domain, report: Report) -> tuple[list[str], set[int]]:
    """What was done to come to each state, and the numbers of those where something is wrong."""
    faults: dict[int, list[FaultKind]] = {}
    for fault in report.faults:
        faults.setdefault(fault.at, []).append(fault.kind)
    captions = []
    states = [None if state is None else torch.tensor(state) for state in report.states]
    for number, state in enumerate(states):
        said = ["init"] if number == 0 else []
        before = states[number - 1] if number else None
        illegal = FaultKind.ILLEGAL_STEP in faults.get(number, [])
        if before is not None and state is not None and not illegal:
            said.append(domain.action(before, state))
        said += [str(kind) for kind in faults.get(number, [])]
        if number == report.length and number not in faults:
            said.append("goal")
        captions.append(f"{number}: {', '.join(said)}" if said else str(number))
    return captions, set(faults)


def _photographs(space: LearnedSpace, objects: Tensor) -> Pictures:
    """Decoded patches, pasted into their boxes: [P, H, W, 3], the same part of each, enlarged."""
    assert space.pictures is not None
    drawn = space.pictures.pictures(objects.nan_to_num()).movedim(-3, -1)
    return enlarged((255 * drawn).round().clamp(0, 255).to(torch.uint8).numpy())


def enlarged(pictures: Pictures) -> Pictures:
    """The part of pictures [P, H, W, 3] that is not black in all of them, in a handy size."""
    height, width = pictures.shape[1:3]
    rows, columns = np.nonzero((pictures > 0).any(axis=(0, 3)))
    if len(rows) == 0:
        return pictures
    top, bottom = max(0, rows.min() - _MARGIN), min(height, rows.max() + 1 + _MARGIN)
    left, right = max(0, columns.min() - _MARGIN), min(width, columns.max() + 1 + _MARGIN)
    factor = max(1, round(_HANDY / (right - left)))
    size = (factor * int(right - left), factor * int(bottom - top))
    parts = [Image.fromarray(picture[top:bottom, left:right]) for picture in pictures]
    return np.stack([np.asarray(part.resize(size, Image.Resampling.BICUBIC)) for part in parts])
