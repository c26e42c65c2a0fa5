"""New sets out of the ones to train on: elements that look like others of their kind.

Legend: K ensemble members, b sets of a batch, S sets to train on, N elements and kinds, F features,
D donors.

A few sets show few combinations of what their elements may look like, and a network remembers which
go together. Here, an element keeps its place and gets the look that the element of its kind has in
one of the sets. Kinds are not told: they are the prototypes that elements are paired with, so that
a set has one element of each kind.

What an element looks like also depends on where it is: seen from another side, lit otherwise, cut
to a box of another form. So its donors are those of its kind that lie nearest to it, itself mostly
among them. Of more that are equally near, always the same are taken.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from setwise.data.look_and_place import LookAndPlace
from setwise.experiments.randomness import hashed
from setwise.experiments.tasks.task import Task
from setwise.models import pair_with_prototypes

_STEPS = 2**20  # in which chances are counted


class Recombination:
    """Gives a ``share`` of all elements the look of one of their donors, in training only."""

    def __init__(self, task: Task, share: float, donors: int, device: torch.device) -> None:
        if not task.reads_sets:
            raise ValueError(
                f"schedule: recombined {share} needs data whose inputs are the sets to produce, "
                f"element by element; with this data, leave recombined at 0"
            )
        try:
            parts = LookAndPlace(task.features)
        except ValueError as error:
            raise ValueError(
                f"schedule: recombined {share} does not go with these {error}; "
                f"leave recombined at 0"
            ) from None
        sets = task.targets[: task.train]
        of_kind = pair_with_prototypes(sets, task.prototypes, task.features)
        nearest = nearest_sets(parts.place(sets), of_kind, donors)
        self._sets = sets.to(device)
        self._of_kind = of_kind.to(device)  # [S, N], the element of each kind
        self._kind = of_kind.argsort(-1).to(device)  # [S, N], the kind of each element
        self._donors = nearest.to(device)  # [S, N, D], sets by the kind that is to get a look
        self._is_look = parts.is_look.to(device)
        self._chance = round(share * _STEPS)

    def __call__(self, rows: Tensor, seeds: Tensor, epoch: Tensor) -> Tensor:
        """The sets of these rows [K, b], recombined by the seeds [K] of members: [K, b, N, F]."""
        size = self._kind.shape[1]
        keys = seeds[:, None, None], epoch, rows.unsqueeze(-1)
        # Each question has numbers of its own; those below ``size`` ask for the order of a set.
        whence, whether = torch.arange(size, 3 * size, device=rows.device).split(size)
        kind = self._kind[rows]  # [K, b, N]
        which = hashed(*keys, whence) % self._donors.shape[-1]
        other = self._donors[rows.unsqueeze(-1), kind, which]
        looks = self._sets[other, self._of_kind[other, kind]]
        taken = hashed(*keys, whether) % _STEPS < self._chance
        return torch.where(taken.unsqueeze(-1) & self._is_look, looks, self._sets[rows])


def nearest_sets(places: Tensor, of_kind: Tensor, count: int) -> Tensor:
    """For each kind of each set, the sets [S, N, D] that have theirs nearest, by places [S, N, Q].

    How far apart two places are is the sum over their coordinates.
    """
    from scipy.spatial import cKDTree  # type: ignore[import-untyped]

    count = min(count, len(places))
    of_a_kind = places.gather(1, of_kind.unsqueeze(-1).expand_as(places)).cpu().numpy()
    found = []
    for kind in range(of_kind.shape[1]):
        where = of_a_kind[:, kind]
        _, sets = cKDTree(where).query(where, k=count, p=1)
        found.append(sets.reshape(len(where), count))
    return torch.from_numpy(np.stack(found, axis=1).astype(np.int64))
