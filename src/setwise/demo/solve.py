"""The hardest problem of the puzzle, solved in the codes of a network.

Legend: C cells, n states of one level.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from setwise.planning import (
    LatentHealth,
    LatentPlanner,
    PuzzleDomain,
    Result,
    encode_states,
    latent_health,
)
from setwise.planning.learned import LearnedSpace


@dataclass(frozen=True)
class Solved:
    """A problem, what was found for it, and what the codes are worth."""

    puzzle: PuzzleDomain
    init: Tensor  # configurations [C]
    goal: Tensor
    health: LatentHealth
    result: Result


def solve(space: LearnedSpace) -> Solved:
    """Plan from a state that is as far from the goal as any; the objects come in random order."""
    puzzle = space.domain
    assert isinstance(puzzle, PuzzleDomain)
    init, goal = farthest(puzzle), puzzle.goal()
    order = torch.randperm(puzzle.cells, generator=torch.Generator().manual_seed(0))
    codes = encode_states(space.model, puzzle, puzzle.configurations())
    health = latent_health(space.model, puzzle, codes=codes)
    with LatentPlanner(space.model, puzzle, codes=codes) as planner:
        ends = [puzzle.objects(state)[order] for state in (init, goal)]
        return Solved(puzzle, init, goal, health, planner.solve(*ends))


def farthest(puzzle: PuzzleDomain) -> Tensor:
    """A configuration [C] from which the shortest way to the goal is longest; the first by rank.

    >>> from setwise.planning import shortest_length
    >>> puzzle = PuzzleDomain(2, 3)
    >>> farthest(puzzle).tolist(), shortest_length(puzzle, farthest(puzzle), puzzle.goal())
    ([1, 0, 3, 2, 5, 4], 21)
    """
    level, seen = puzzle.goal().unsqueeze(0), torch.zeros(puzzle.number_of_states, dtype=torch.bool)
    while True:
        seen[puzzle.rank(level)] = True
        after, legal = puzzle.successors(level)
        ranks = puzzle.rank(after[legal]).unique()
        new = ranks[~seen[ranks]]
        if len(new) == 0:
            return level[0]
        level = puzzle.unrank(new)
