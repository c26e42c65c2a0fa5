"""The true length of a shortest plan, by search in the world itself.

Legend: C numbers of a configuration, A actions, n states of one level.
"""

from __future__ import annotations

import torch
from torch import Tensor

from setwise.worlds import World
from setwise.worlds.rows import row_keys


def shortest_length(world: World, start: Tensor, goal: Tensor) -> int | None:
    """The fewest actions from configuration ``start`` to ``goal``; None if there is no way.

    Breadth-first from both ends, level by level, always where fewer states wait. Before the levels
    meet they have no state in common, so the first meeting is the shortest way.

    >>> from setwise.worlds import PuzzleWorld
    >>> shortest_length(PuzzleWorld(), torch.tensor([8, 0, 6, 5, 4, 7, 2, 3, 1]), torch.arange(9))
    31
    """
    if start.equal(goal):
        return 0
    if not bool(world.solvable(start, goal)):
        return None
    ends = [start.unsqueeze(0), goal.unsqueeze(0)]  # [n, C]
    seen = [set(row_keys(end)) for end in ends]
    length = 0
    while all(map(len, ends)):
        length += 1
        side = int(len(ends[1]) < len(ends[0]))
        after, legal = world.successors(ends[side])
        reached = after[legal]
        keys = row_keys(reached)
        if not seen[1 - side].isdisjoint(keys):
            return length
        new = {key: row for row, key in enumerate(keys) if key not in seen[side]}
        seen[side].update(new)
        ends[side] = reached[torch.tensor(list(new.values()), dtype=torch.int64)]
    return None
