"""The hardest problem of a world, solved in the codes of a network.

Legend: C numbers of a configuration, n states of one level.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from setwise.planning import LatentHealth, LatentPlanner, PlanningResult
from setwise.planning.learned import LearnedSpace
from setwise.worlds import World


@dataclass(frozen=True)
class Solved:
    """A problem, what was found for it, and what the codes are worth."""

    puzzle: World
    init: Tensor  # configurations [C]
    goal: Tensor
    health: LatentHealth
    result: PlanningResult


def solve(space: LearnedSpace) -> Solved:
    """Plan from a state that is as far from the goal as any; the objects come in random order."""
    world = space.world
    goal = world.start()
    assert goal is not None, f"{world.name} has no state that problems lead to"
    init = farthest(world, goal)
    ends = world.objects(torch.stack([init, goal]))
    order = torch.randperm(ends.shape[1], generator=torch.Generator().manual_seed(0))
    with LatentPlanner(space.model, world) as planner:
        return Solved(world, init, goal, planner.health(), planner.solve(*ends[:, order]))


def farthest(world: World, goal: Tensor) -> Tensor:
    """A state [C] from which the shortest way to the goal is longest; the first by index.

    >>> from setwise.planning import shortest_length
    >>> from setwise.worlds import PuzzleWorld
    >>> puzzle = PuzzleWorld(2, 3)
    >>> state = farthest(puzzle, puzzle.goal())
    >>> state.tolist(), shortest_length(puzzle, state, puzzle.goal())
    ([1, 0, 3, 2, 5, 4], 21)
    """
    states = world.states()
    level, seen = goal.unsqueeze(0), torch.zeros(len(states), dtype=torch.bool)
    while True:
        seen[world.index(level)] = True
        after, legal = world.successors(level)
        reached = world.index(after[legal]).unique()
        new = reached[~seen[reached]]
        if len(new) == 0:
            return level[0]
        level = states[new]
