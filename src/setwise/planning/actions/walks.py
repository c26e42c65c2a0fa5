"""Recordings of worlds: random walks, and nothing else of what a world knows.

Legend: T transitions, W walks, C numbers of a configuration, A actions.
"""

from __future__ import annotations

import math

import torch

from setwise.data.checks import random_bits, require_int
from setwise.planning.actions.recording import Recording, from_tensors
from setwise.worlds import World


def record_walks(world: World, transitions: int, seed: int, steps: int = 20) -> Recording:
    """So many transitions, in walks of ``steps`` from states drawn at random.

    At each state every legal action is equally likely; elements come in random order.

    >>> from setwise.worlds import Hanoi
    >>> len(record_walks(Hanoi(3), transitions=50, seed=0))
    50
    """
    require_int("transitions", transitions, 1)
    require_int("steps", steps, 1)
    here = world.sample(math.ceil(transitions / steps), seed)  # [W, C]
    bits = random_bits("walks", seed)
    before, after = [], []
    for _ in range(steps):
        reached, legal = world.successors(here)
        words = torch.from_numpy(bits.random_raw(tuple(legal.shape)) >> 11).double()
        # A state without a way out is left where it is.
        chosen = torch.where(legal, words, -1.0).argmax(-1)
        there = reached[torch.arange(len(here)), chosen]
        there = torch.where(legal.any(-1, keepdim=True), there, here)
        before.append(here)
        after.append(there)
        here = there
    ends = []
    for walk in (before, after):
        sets = world.objects(torch.stack(walk, dim=1).flatten(0, 1)[:transitions])
        words = torch.from_numpy(bits.random_raw(tuple(sets.shape[:2])).argsort(-1, kind="stable"))
        ends.append(sets[torch.arange(len(sets)).unsqueeze(-1), words])
    return from_tensors(ends[0], ends[1], world.features, names=world.feature_names)
