"""Symbols of features that shake, beside what they stand for: for docs/action-models.md.

Legend: T transitions, N elements, C classes of a feature.

`tools.actions` runs it. The worlds are known ones whose elements are measured: tiles have places
along x and y, disks lie at angles of a round table, lights have places in the plane and shine more
or less brightly. Whatever is measured shakes anew in every set. Symbols are learned from a
recording of such sets and compared with the truth; then actions are learned from the symbols,
problems are given as sets that shake as well, and the world judges every plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import setwise as sw
from setwise.cli.actions import world_named
from setwise.planning import ActionModel
from setwise.planning.actions import agreement, fit_symbols, record_walks
from tools import action_curves, action_records
from tools.markdown import markdown

RECORDS = action_records.FOLDER / "measured.jsonl"
SUPPORT = 2  # times; what was seen once is taken for noise
_SECONDS = 60.0  # for each plan


@dataclass(frozen=True)
class Setting:
    """What is learned from, and how much it shakes, in units of the distance of two values."""

    world: str
    transitions: int
    walk: int
    steps: int
    shaking: float
    problems: int = 5
    seed: int = 0


@dataclass(frozen=True)
class Measured:
    """How a world is measured: features, their names, and objects as sets that do not shake."""

    features: sw.Features
    names: tuple[str, ...]
    measure: Callable[[Tensor], Tensor]  # [*, N, F] -> [*, N, numbers]
    read: Callable[[Tensor], Tensor]  # the other way round, by the nearest value
    apart: tuple[float, ...]  # between two values of each number; 0 for those that do not shake


def settings() -> list[Setting]:
    """Three worlds, from hardly any shaking to more than can be read."""
    worlds = (("puzzle-3x3", 1000, 1, 20), ("hanoi-4x3", 1000, 20, 20), ("lights-3x3", 1000, 20, 5))
    return [Setting(*one, shaking=s) for s in (0.05, 0.1, 0.15, 0.2) for one in worlds]


def measured(world: str) -> Measured:
    """The worlds of the settings."""
    if world == "puzzle-3x3":
        return Measured(
            sw.Features(sw.Categorical(9), sw.Gaussian(1), sw.Gaussian(1)),
            ("tile", "x", "y"),
            lambda o: torch.cat([o[..., :9], _number(o[..., 9:12]), _number(o[..., 12:])], -1),
            lambda m: torch.cat([m[..., :9], _class(m[..., 9]), _class(m[..., 10])], -1),
            (0.0,) * 9 + (1.0, 1.0),
        )
    if world == "hanoi-4x3":
        third = 2 * math.pi / 3
        return Measured(
            sw.Features(sw.Categorical(4), sw.Angle(1)),
            ("disk", "peg"),
            lambda o: torch.cat([o[..., :4], third * _number(o[..., 4:])], -1),
            lambda m: torch.cat([m[..., :4], _class((m[..., 4] / third).round() % 3)], -1),
            (0.0,) * 4 + (third,),
        )
    return Measured(
        sw.Features(sw.Gaussian(2), sw.Gaussian(1)),
        ("place", "light"),
        lambda o: torch.cat([_number(o[..., :3]), _number(o[..., 3:6]), o[..., 6:]], -1),
        lambda m: torch.cat([_class(m[..., 0]), _class(m[..., 1]), m[..., 2:].round()], -1),
        (1.0, 1.0, 1.0),
    )


def measure(setting: Setting) -> dict[str, Any]:
    """Learn symbols and actions, plan and judge."""
    world, how = world_named(setting.world), measured(setting.world)
    recording = record_walks(world, setting.transitions, setting.seed, setting.walk)
    generator = torch.Generator().manual_seed(setting.seed)

    def shaken(objects: Tensor) -> Tensor:
        still = how.measure(objects)
        noise = torch.randn(still.shape, generator=generator)
        return still + setting.shaking * torch.tensor(how.apart) * noise

    true = [
        torch.stack([recording.symbols.tensor(state) for state in side])
        for side in (recording.before, recording.after)
    ]
    before, after = map(shaken, true)
    symbols = fit_symbols(before, after, how.features, names=how.names)
    codes = symbols.codes(torch.cat([before, after])).flatten(0, -2)
    kinds = [
        block.unique(dim=0, return_inverse=True)[1]
        for block in how.features.split(how.measure(torch.cat(true)).flatten(0, -2))
    ]
    found = {
        "sizes": symbols.sizes,
        "stable": symbols.stable,
        "agreement": [
            agreement(code, kind) for code, kind in zip(codes.unbind(-1), kinds, strict=True)
        ],
    }
    try:
        model = ActionModel.learn(symbols.recording(before, after), support=SUPPORT)
    except ValueError as error:  # two elements of a set are called the same
        return found | {"refused": str(error), "solved": 0, "valid": 0}
    asked = replace(
        action_curves.promised()[0],
        world=setting.world,
        steps=setting.steps,
        problems=setting.problems,
        seed=setting.seed,
    )
    solved = valid = 0
    for init, goal in action_curves.problems_of(world, asked):
        try:
            ends = symbols.encode(shaken(world.objects(torch.stack([init, goal]))))
            plan = model.plan(*ends, searcher="ff", seconds=_SECONDS)
        except ValueError:  # what shakes too much to be read
            continue
        if plan.solved:
            solved += 1
            sets = [how.read(symbols.decode(elements)) for elements in plan.sets]
            valid += action_curves.are_legal(world, sets, init, goal)
    return found | {"solved": solved, "valid": valid}


def record() -> None:
    """Measure what is not recorded yet."""
    action_records.record(RECORDS, settings(), measure)


def table(records: Sequence[dict[str, Any]]) -> str:
    """A line for each world and how much it shakes."""
    titles = ["world", "features", "shaking", "codes", "named rightly", "solved", "valid"]
    lines = []
    for one in sorted(
        records, key=lambda one: (one["setting"]["world"], one["setting"]["shaking"])
    ):
        setting = one["setting"]
        families = measured(setting["world"]).features.blocks
        lines.append(
            [
                setting["world"],
                ", ".join(
                    f"{name}: {type(family).__name__}({family.width})"
                    for name, family in zip(one["sizes"], families, strict=True)
                ),
                f"{setting['shaking']:g}",
                ", ".join(map(str, one["sizes"].values())),
                ", ".join(f"{share:.2%}" for share in one["agreement"]),
                f"{one['solved']} of {setting['problems']}",
                f"{one['valid']} of {one['solved']}",
            ]
        )
    return "\n".join(markdown(titles, lines)) + f"\n\n{action_records.made_on(records)}"


def _number(choice: Tensor) -> Tensor:
    """[*, C] -> [*, 1]."""
    return choice.argmax(-1, keepdim=True).to(choice)


def _class(number: Tensor) -> Tensor:
    """The nearest of three classes: [*] -> [*, 3]."""
    return torch.eye(3)[number.round().long().clamp(0, 2)]
