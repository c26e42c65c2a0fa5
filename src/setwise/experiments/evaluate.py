"""What the members of an ensemble produce is worth, by the measure of their task.

Legend: K members, S examples, N elements, F features.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from setwise.experiments.config import Config
from setwise.experiments.ensemble import Ensemble, finite_sets
from setwise.experiments.randomness import random_order
from setwise.experiments.tasks.task import Task

# Sets evaluated at once, over all members; bounds the memory.
SETS_AT_ONCE = 40_000


@torch.no_grad()
def measured(
    ensemble: Ensemble,
    task: Task,
    configs: Sequence[Config] = (),
    rows: Tensor | None = None,
) -> dict[str, Tensor]:
    """The values [K, S] of the task's measure, by name, for each member without noise.

    With ``configs``, members that reconstruct sets read the sets themselves, in a random order
    where their config says so; without, what training reads, which is faster where it is counts.
    ``rows`` are the examples to look at, by default all of them.
    """
    members = len(next(iter(ensemble.weights.values())))
    device = task.targets.device
    temperature = torch.ones((), device=device)
    rows = torch.arange(len(task.targets), device=device) if rows is None else rows
    found: dict[str, list[Tensor]] = defaultdict(list)
    for some in rows.split(max(1, SETS_AT_ONCE // members)):
        targets, inputs = task.targets[some], task.inputs[some]
        inputs = inputs.expand(members, *inputs.shape)
        if configs and task.reconstructs:
            inputs = _presented(targets, some, configs)
        logits, finite = finite_sets(ensemble(inputs, temperature))
        for name, values in task.measure(logits, finite, targets, task.features).items():
            found[name].append(values)
    return {name: torch.cat(values, dim=1) for name, values in found.items()}


def _presented(sets: Tensor, rows: Tensor, configs: Sequence[Config]) -> Tensor:
    """Sets [s, N, F] for each member [K], in a random order where it shuffles its input."""
    device = sets.device
    sets = sets.expand(len(configs), *sets.shape)
    size = sets.shape[2]
    seeds = torch.tensor([config.seed for config in configs], device=device).unsqueeze(-1)
    order = random_order(size, seeds, rows.expand(len(configs), -1))
    shuffled = torch.tensor([config.shuffle_input for config in configs], device=device)
    order = torch.where(shuffled[:, None, None], order, torch.arange(size, device=device))
    return sets.gather(2, order.unsqueeze(-1).expand_as(sets))
