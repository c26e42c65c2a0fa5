"""Which sets the members of an ensemble produce.

Legend: K members, S examples, N elements, F features.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from setwise.experiments.config import Config
from setwise.experiments.ensemble import Ensemble, finite_sets
from setwise.experiments.randomness import random_order
from setwise.experiments.task import Task
from setwise.metrics import multiset_equality, set_success

# Sets evaluated at once, over all members; bounds the memory.
SETS_AT_ONCE = 40_000


@torch.no_grad()
def success_of(
    ensemble: Ensemble, task: Task, configs: Sequence[Config] = ()
) -> tuple[Tensor, Tensor]:
    """1.0 where a member [K] succeeds on an example [S] without noise, else 0.0; twice.

    First as the paper counts: every target is among the outputs. Then strictly: and nothing else.
    Outputs that are not finite are no success.
    With ``configs``, members that reconstruct sets read the sets themselves, in a random order
    where their config says so; without, the counts that training reads, which is faster.
    """
    members = len(next(iter(ensemble.weights.values())))
    temperature = torch.ones((), device=task.targets.device)
    chunk = max(1, SETS_AT_ONCE // members)
    found: list[Tensor] = []
    exact: list[Tensor] = []
    for start in range(0, len(task.targets), chunk):
        targets = task.targets[start : start + chunk].expand(members, -1, -1, -1)
        inputs = task.inputs[start : start + chunk].expand(members, -1, -1)
        if configs and task.elements is not None:
            inputs = _presented(targets, start, configs)
        logits, finite = finite_sets(ensemble(inputs, temperature, training=False))
        for metric, values in ((set_success, found), (multiset_equality, exact)):
            value = metric(logits, targets, task.features, reduction="none")
            values.append(value.masked_fill(~finite, 0.0))
    return torch.cat(found, dim=1), torch.cat(exact, dim=1)


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
