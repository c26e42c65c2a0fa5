"""New sets out of the ones to train on: elements that look like others of their kind.

Legend: K ensemble members, b sets of a batch, S sets to train on, N elements and kinds, F features.

A few sets show few combinations of what their elements may look like, and a network remembers which
go together. Here, an element keeps its place and gets the look of an element of the same kind in
another set. Kinds are not told: they are the prototypes that elements are paired with, so that a
set has one element of each kind.
"""

from __future__ import annotations

import torch
from torch import Tensor

from setwise.experiments.randomness import hashed
from setwise.experiments.task import Task
from setwise.features import Categorical
from setwise.models import pair_with_prototypes

_STEPS = 2**20  # in which chances are counted


class Recombination:
    """Gives a ``share`` of all elements another look, in training only.

    The look is all features but choices among classes, which say where an element is, as in
    `setwise.experiments.blocks`.
    """

    def __init__(self, task: Task, share: float, device: torch.device) -> None:
        if task.elements is not None or not task.reconstructs:
            raise ValueError(
                f"schedule: recombined {share} needs data whose inputs are the sets to produce, "
                f"element by element; with this data, leave it at 0"
            )
        chosen = [isinstance(block, Categorical) for block in task.features.blocks]
        if all(chosen) or not any(chosen):
            raise ValueError(
                f"schedule: recombined {share} needs some features that say how an element looks "
                f"and some choices among classes that say where it is, got {task.features}; leave "
                f"it at 0"
            )
        sets = task.targets[: task.train]
        of_kind = pair_with_prototypes(sets, task.prototypes, task.features)
        self._sets = sets.to(device)
        self._of_kind = of_kind.to(device)  # [S, N], the element of each kind
        self._kind = of_kind.argsort(-1).to(device)  # [S, N], the kind of each element
        widths = torch.tensor(task.features.widths)
        self._is_look = ~torch.tensor(chosen).repeat_interleave(widths).to(device)
        self._chance = round(share * _STEPS)

    def __call__(self, rows: Tensor, seeds: Tensor, epoch: Tensor) -> Tensor:
        """The sets of these rows [K, b], recombined by the seeds [K] of members: [K, b, N, F]."""
        size = self._kind.shape[1]
        keys = seeds[:, None, None], epoch, rows.unsqueeze(-1)
        # Each question has numbers of its own; those below ``size`` ask for the order of a set.
        whence, whether = torch.arange(size, 3 * size, device=rows.device).split(size)
        other = hashed(*keys, whence) % len(self._sets)  # [K, b, N]
        looks = self._sets[other, self._of_kind[other, self._kind[rows]]]
        taken = hashed(*keys, whether) % _STEPS < self._chance
        return torch.where(taken.unsqueeze(-1) & self._is_look, looks, self._sets[rows])
