"""Recordings of worlds to learn from, and learned models held against the worlds themselves.

Legend: T transitions, S states, C numbers of a configuration, N elements, A actions.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from tools.action_truth import compare
from torch import Tensor

from setwise.planning import ActionModel, ActionPlan
from setwise.worlds import PuzzleWorld, World


def random_steps(world: World, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Sets before and after random legal steps from random states, elements in random order."""
    before = world.sample(count, seed)
    after, legal = world.successors(before)
    generator = torch.Generator().manual_seed(seed)
    which = (torch.rand(legal.shape, generator=generator) * legal).argmax(-1)
    ends = world.objects(before), world.objects(after[torch.arange(count), which])
    return tuple(  # type: ignore[return-value]
        end[
            torch.arange(count).unsqueeze(-1),
            torch.rand(end.shape[:2], generator=generator).argsort(-1),
        ]
        for end in ends
    )


def puzzle_model(
    width: int, height: int, count: int, seed: int, *, lift: bool, absent: bool = True
) -> ActionModel:
    world = PuzzleWorld(width, height)
    before, after = random_steps(world, count, seed)
    names = ["tile", "x", "y"]
    return ActionModel.fit(before, after, world.features, names=names, lift=lift, absent=absent)


def puzzle_disagreements(model: ActionModel, world: PuzzleWorld) -> int:
    """In how many of all states the model leads elsewhere than the puzzle does.

    Independent of how the model plans: from its conditions and effects alone, state by state.
    """
    return compare(model, world)["states_wrong"]


def judged(world: World, plan: ActionPlan, init: Tensor, goal: Tensor) -> bool:
    """Whether a plan leads from one configuration to the other by legal moves of the world."""
    states = [world.configuration_of(one) for one in plan.states]
    legal = all(bool(world.is_legal_move(a, b)) for a, b in pairwise(states))
    return legal and states[0].equal(init) and states[-1].equal(goal)
