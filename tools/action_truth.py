"""Learned models of the 8-puzzle beside the truth, in all of its states: for docs/action-models.md.

Legend: S states, C cells, A actions of the puzzle.

`tools.actions` runs it. Where a model can act, and where that leads, is compared with the puzzle in
each of the 362,880 states, without a planner; then the state that is furthest from the goal is
solved by A*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from setwise.planning import ActionModel, shortest_length
from setwise.planning.actions import record_walks
from setwise.worlds import PuzzleWorld
from tools import action_records
from tools.action_curves import is_valid
from tools.markdown import markdown

RECORDS = action_records.FOLDER / "truth.jsonl"
FURTHEST = (8, 0, 6, 5, 4, 7, 2, 3, 1)  # no state is further from the goal


@dataclass(frozen=True)
class Setting:
    """What is learned from, and how."""

    transitions: int
    lift: bool = True
    absent: bool = True
    seed: int = 0


def settings() -> list[Setting]:
    """Lifted and ground models; the last two have what their conditions cost."""
    return [
        Setting(500),
        Setting(5000, lift=False, absent=False),
        Setting(5000, lift=False),
        Setting(20000, lift=False),
    ]


def measure(setting: Setting) -> dict[str, Any]:
    """Learn, compare, and plan from the furthest state."""
    world = PuzzleWorld()
    recording = record_walks(world, setting.transitions, setting.seed, steps=1)
    model = ActionModel.learn(recording, lift=setting.lift, absent=setting.absent)
    found = {"actions": len(model.actions)} | compare(model, world)
    start, goal = torch.tensor(FURTHEST), world.goal()
    plan = model.plan(world.objects(start), world.objects(goal), seconds=600.0)
    return found | {
        "furthest": shortest_length(world, start, goal),
        "steps": len(plan.steps) if plan.solved and is_valid(world, plan, start, goal) else None,
        "outcome": str(plan.outcome),
    }


def compare(model: ActionModel, world: PuzzleWorld) -> dict[str, int]:
    """Of all states and moves, how many there are, and how many the model lacks or makes up."""
    states = world.states()  # [S, C], the tile on each cell
    cells = np.arange(world.cells)
    x, y = (
        np.broadcast_to(one, states.shape) for one in (cells % world.width, cells // world.width)
    )
    codes = np.ravel_multi_index((states.numpy(), x, y), model.symbols.sizes)  # [S, C]
    there = np.zeros((len(codes), model.symbols.count), dtype=bool)
    np.put_along_axis(there, codes, values=True, axis=1)
    # A set by the sum of random numbers of its elements.
    weight = np.random.default_rng(0).integers(0, 2**62, model.symbols.count)
    hashed = weight[codes].sum(-1)
    after, legal = world.successors(states)
    reached = np.where(legal.numpy(), hashed[world.rank(after).numpy()], -1)  # [S, A]
    right, made_up = np.zeros(len(codes), dtype=int), np.zeros(len(codes), dtype=int)
    for action in model.actions:
        can = np.asarray(there[:, list(action.must)].all(-1))
        can[can] = action.may[codes[can]].all(-1)
        change = weight[list(action.added)].sum() - weight[list(action.removed)].sum()
        true = (reached[can] == (hashed[can] + change)[:, None]).any(-1)
        right[can] += true
        made_up[can] += ~true
    moves = legal.sum(-1).numpy()
    return {
        "states": len(codes),
        "moves": int(moves.sum()),
        "states_wrong": int(((right != moves) | (made_up > 0)).sum()),
        "moves_lacking": int((moves - right).sum()),
        "moves_made_up": int(made_up.sum()),
    }


def record() -> None:
    """Measure what is not recorded yet."""
    action_records.record(RECORDS, settings(), measure)


def table(records: Sequence[dict[str, Any]]) -> str:
    """A line for each model."""
    titles = ["learned", "transitions", "actions", "states that differ", "moves lacking"]
    titles += ["moves made up", "the furthest state"]
    lines = []
    for one in records:
        setting = one["setting"]
        kind = "lifted" if setting["lift"] else "ground"
        if one["steps"] is not None:
            furthest = f"{one['steps']} steps, the fewest being {one['furthest']}"
        else:
            furthest = "an invalid plan" if one["outcome"] == "solved" else one["outcome"]
        lines.append(
            [
                kind if setting["absent"] else f"{kind}, `absent=False`",
                f"{setting['transitions']:,}",
                str(one["actions"]),
                f"{one['states_wrong']:,} of {one['states']:,}",
                f"{one['moves_lacking'] / one['moves']:.2%}",
                f"{one['moves_made_up']:,}",
                furthest,
            ]
        )
    return "\n".join(markdown(titles, lines)) + f"\n\n{action_records.made_on(records)}"
