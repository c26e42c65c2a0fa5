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
from setwise.experiments.presentation import Presentation
from setwise.experiments.tasks.task import Task

# Sets evaluated at once, over all members; bounds the memory.
SETS_AT_ONCE = 40_000


@torch.no_grad()
def measured(
    ensemble: Ensemble,
    task: Task,
    configs: Sequence[Config],
    rows: Tensor | None = None,
    *,
    final: bool = True,
) -> dict[str, Tensor]:
    """The values [K, S] of the task's measure, by name, for each member without noise.

    ``rows`` are the examples to look at, by default all of them. What is not ``final`` may be read
    in a faster form; see `Presentation`.
    """
    presentation = Presentation(configs, task)
    device = task.targets.device
    temperature = torch.ones((), device=device)
    rows = torch.arange(len(task.targets), device=device) if rows is None else rows
    found: dict[str, list[Tensor]] = defaultdict(list)
    for some in rows.split(max(1, SETS_AT_ONCE // len(configs))):
        inputs = presentation.in_evaluation(some, final=final)
        logits, finite = finite_sets(ensemble(inputs, temperature))
        judged = task.measure(logits, finite, task.targets[some], task.features)
        for name, values in judged.items():
            found[name].append(values)
    return {name: torch.cat(values, dim=1) for name, values in found.items()}
