"""Bits that a network makes up beside the elements themselves: for docs/action-models.md.

`tools.actions` runs it. Both models learn from the same recording and are asked the same problems;
the world judges every plan, and what a network writes that is no state of the world is no plan.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from setwise.cli.actions import world_named
from setwise.planning import ActionModel, ActionPlan, BitActionModel
from setwise.planning.actions import record_walks
from setwise.worlds import World
from tools import action_curves, action_records
from tools.markdown import markdown

RECORDS = action_records.FOLDER / "bits.jsonl"
_SECONDS = 120.0  # for each plan


@dataclass(frozen=True)
class Setting:
    """What is learned from, and how large the network is."""

    world: str
    transitions: int
    walk: int
    steps: int
    bits: int
    actions: int
    training: int
    problems: int = 5
    seed: int = 0


def settings() -> list[Setting]:
    """Three worlds; the puzzle from fewer transitions than contexts need, and from enough."""
    hanoi = Setting("hanoi-4x3", 500, 20, 20, bits=32, actions=64, training=600)
    puzzle = Setting("puzzle-3x3", 20000, 1, 20, bits=100, actions=300, training=800)
    lights = Setting("lights-4x4", 3000, 20, 8, bits=64, actions=800, training=800)
    return [
        *(replace(hanoi, seed=seed) for seed in range(3)),
        *(replace(lights, seed=seed) for seed in range(2)),
        replace(puzzle, transitions=5000),
        *(replace(puzzle, seed=seed) for seed in range(2)),
    ]


def measure(setting: Setting) -> dict[str, Any]:
    """Learn in three ways, plan and judge."""
    world = world_named(setting.world)
    recording = record_walks(world, setting.transitions, setting.seed, setting.walk)
    start = time.process_time()
    before, after = (
        torch.stack([recording.symbols.tensor(state) for state in side])
        for side in (recording.before, recording.after)
    )
    bits = BitActionModel.fit(
        before,
        after,
        world.features,
        bits=setting.bits,
        actions=setting.actions,
        steps=setting.training,
        seed=setting.seed,
    )
    found: dict[str, Any] = {
        "recovered": bits.recovered,
        "explained": bits.explained,
        "bits": len(bits.model.seen),
        "schemas": len(bits.model.schemas),
        "training_seconds": round(time.process_time() - start, 1),
    }
    asked = action_curves.Setting(
        setting.world,
        setting.transitions,
        setting.walk,
        setting.steps,
        problems=setting.problems,
        seed=setting.seed,
    )
    problems = action_curves.problems_of(world, asked)
    models: dict[str, ActionModel | BitActionModel] = {
        "bits": bits,
        "ground": ActionModel.learn(recording, lift=False),
        "lifted": ActionModel.learn(recording),
    }
    for name, model in models.items():
        plans = [
            model.plan(world.objects(init), world.objects(goal), searcher="ff", seconds=_SECONDS)
            for init, goal in problems
        ]
        found[f"{name}_plans"] = [
            _judged(world, plan, *problem) for plan, problem in zip(plans, problems, strict=True)
        ]
    return found


def _judged(world: World, plan: ActionPlan, init: Tensor, goal: Tensor) -> dict[str, Any]:
    valid = plan.solved and action_curves.is_valid(world, plan, init, goal)
    return {
        "outcome": str(plan.outcome),
        "valid": bool(valid),
        "steps": len(plan.steps),
        "seconds": round(plan.seconds, 2),
    }


def record() -> None:
    """Measure what is not recorded yet."""
    action_records.record(RECORDS, settings(), measure)


def table(records: Sequence[dict[str, Any]]) -> str:
    """A line for each network, and what the elements themselves give beside it."""
    titles = [
        "world",
        "transitions",
        "training",
        "seed",
        "sets back",
        "explained",
        "bits",
        "actions",
    ]
    titles += ["bits: valid, of found", "ground: valid, of found", "lifted: valid, of found"]
    lines = []
    for one in sorted(records, key=_place):
        setting = one["setting"]
        plans = [one[f"{name}_plans"] for name in ("bits", "ground", "lifted")]
        counts = [
            (sum(p["valid"] for p in some), sum(p["outcome"] == "solved" for p in some))
            for some in plans
        ]
        lines.append(
            [
                setting["world"],
                f"{setting['transitions']:,}",
                f"{setting['training']:,} steps",
                str(setting["seed"]),
                f"{one['recovered']:.1%}",
                f"{one['explained']:.1%}",
                str(one["bits"]),
                str(one["schemas"]),
                *(f"{valid} of {solved}, {setting['problems']} asked" for valid, solved in counts),
            ]
        )
    return "\n".join(markdown(titles, lines)) + f"\n\n{action_records.made_on(records)}"


def _place(record: dict[str, Any]) -> tuple[str, int, int]:
    setting = record["setting"]
    return setting["world"], setting["transitions"], setting["seed"]
