"""Sets whose elements have a kind, a look and a place, for tests that recombine them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from setwise.experiments.config import Schedule
from setwise.experiments.recipes import table3
from setwise.experiments.tasks import Task
from setwise.features import Bernoulli, Categorical, Features

CPU = torch.device("cpu")
FEATURES = Features(Bernoulli(4), Categorical(6), Bernoulli(1))
TRAIN, HELD_OUT, KINDS = 40, 10, 3
DONORS = 32
# In scenario 2 inputs are shuffled and targets are not.
CONFIG = replace(
    table3.paper("2", "set_cross_entropy", seed=0), schedule=Schedule(epochs=1, batch=20)
)


def some_sets(states: int = TRAIN + HELD_OUT) -> Tensor:
    """Three kinds, each with its own feature near 1, in random orders, and looks of their own."""
    generator = torch.Generator().manual_seed(0)
    looks = 0.1 + 0.05 * torch.rand(states, KINDS, 4, generator=generator)
    looks[:, range(KINDS), range(KINDS)] += 0.8
    places = torch.nn.functional.one_hot(torch.randint(6, (states, KINDS), generator=generator), 6)
    # The last feature says how an element looks as well.
    sets = torch.cat([looks, places, torch.rand(states, KINDS, 1, generator=generator)], dim=-1)
    order = torch.rand(states, KINDS, generator=generator).argsort(-1)
    return sets.gather(1, order.unsqueeze(-1).expand_as(sets))


SETS = some_sets()
TASK = Task(SETS, SETS, TRAIN, FEATURES)
LOOK = torch.tensor([True] * 4 + [False] * 6 + [True])
ROWS = torch.arange(TRAIN).unsqueeze(0)
