"""Which sets the members of an ensemble reconstruct.

Legend: K members, S examples, N elements, F features.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from setwise.experiments.config import Config
from setwise.experiments.ensemble import Ensemble
from setwise.experiments.randomness import random_order
from setwise.experiments.task import Task
from setwise.metrics import multiset_equality, set_success

# Sets evaluated at once, over all members; bounds the memory.
SETS_AT_ONCE = 40_000


@torch.no_grad()
def success_of(
    ensemble: Ensemble, task: Task, configs: Sequence[Config] = (), *, exact: bool = False
) -> Tensor:
    """1.0 where a member [K] reconstructs an example [S] without noise, else 0.0.

    With ``configs`` the members read the sets themselves, in a random order where their config says
    so; without, the counts that training reads, which is faster. Success is the paper's: every
    target is among the outputs. ``exact`` also asks that nothing else is.
    """
    metric = multiset_equality if exact else set_success
    members = len(next(iter(ensemble.weights.values())))
    temperature = torch.ones((), device=task.sets.device)
    chunk = max(1, SETS_AT_ONCE // members)
    found = []
    for start in range(0, len(task.sets), chunk):
        targets = task.sets[start : start + chunk].expand(members, -1, -1, -1)
        if configs:
            inputs = _presented(targets, start, configs)
        else:
            inputs = task.counts[start : start + chunk].expand(members, -1, -1)
        logits = ensemble(inputs, temperature, training=False)
        found.append(metric(logits, targets, task.features, reduction="none"))
    return torch.cat(found, dim=1)


def _presented(sets: Tensor, start: int, configs: Sequence[Config]) -> Tensor:
    """Sets [K, s, N, F] in a random order for those members that shuffle their input."""
    device = sets.device
    members, count, size, _ = sets.shape
    seeds = torch.tensor([config.seed for config in configs], device=device).unsqueeze(-1)
    rows = torch.arange(start, start + count, device=device).expand(members, -1)
    order = random_order(size, seeds, rows)
    shuffled = torch.tensor([config.shuffle_input for config in configs], device=device)
    order = torch.where(shuffled[:, None, None], order, torch.arange(size, device=device))
    return sets.gather(2, order.unsqueeze(-1).expand_as(sets))
