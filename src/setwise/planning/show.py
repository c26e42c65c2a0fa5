"""The pictures of a plan, from what was decoded: a strip, an animation, or one of each state.

Legend: P states of a plan, N objects, F features, H, W height and width of a picture.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import Tensor

from setwise import environment
from setwise.files import file_in
from setwise.planning.latent import device_of
from setwise.planning.learned import LearnedSpace
from setwise.planning.pictures import crossfade, write_animation, write_strip
from setwise.planning.recorded import write_plan
from setwise.planning.seen_space import SeenSpace
from setwise.planning.validate import FaultKind, Report
from setwise.worlds import World
from setwise.worlds.drawing import Pictures


def write_pictures(
    world: World, objects: Tensor, report: Report, folder: Path, name: str
) -> tuple[Path, Path]:
    """Draw the states [P, N, F] of a plan; returns where the strip and the animation are."""
    captions, wrong = captions_of(world, report)
    pictures = world.draw(objects)

    def between(step: int) -> Pictures:
        moving = world.draw_move(objects[step - 1], objects[step])
        return crossfade(pictures[step - 1], pictures[step]) if moving is None else moving

    # A suffix for each: no name of a problem can then lead to the file of another.
    kind = "png" if world.photographic else "gif"
    strip = file_in(folder, name, "-strip.png")
    animation = file_in(folder, name, f"-animation.{kind}")
    write_strip(strip, pictures, captions, wrong=wrong)
    write_animation(animation, pictures, captions, wrong=wrong, between=between)
    return strip, animation


def record_plan(
    space: LearnedSpace | SeenSpace, objects: Tensor, report: Report, folder: Path, command: str
) -> None:
    """Write the states [P, N, F] of a plan into a folder of its own, for `setwise report`."""
    captions, _ = captions_of(space.world, report)
    about = {
        "domain": space.world.name,
        "verdict": str(report).partition("\n")[0],
        "valid": report.valid,
        "network": space.as_dict(),
        "command": command,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment.describe(device_of(space.model)),
    }
    write_plan(folder, space.world.draw(objects), captions, about)


def captions_of(world: World, report: Report) -> tuple[list[str], set[int]]:
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
            said.append(world.action(before, state))
        said += [str(kind) for kind in faults.get(number, [])]
        if number == report.length and number not in faults:
            said.append("goal")
        captions.append(f"{number}: {', '.join(said)}" if said else str(number))
    return captions, set(faults)
