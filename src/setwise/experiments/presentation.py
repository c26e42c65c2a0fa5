"""What networks read: in training, for learning curves and for the final numbers.

Legend: K members, b examples of a batch, s examples, N elements, F features.

Sets come in a random order where a config shuffles its input: another in every epoch of training,
and in evaluation one that the seed decides. All other inputs are read as they are. To a network
that adds up its elements an order is nothing, see `NetworkConfig.order_free`: none is drawn while
it trains, and counts of elements do instead of sets, which is faster. The final numbers are those
of the sets themselves, so that it is seen and not believed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from setwise.experiments.config import Config
from setwise.experiments.randomness import random_order
from setwise.experiments.tasks.task import Task

# Tells the orders of inputs in training from those of targets.
_INPUT = 1


class Presentation:
    """A task as the members of an ensemble read it."""

    def __init__(self, configs: Sequence[Config], task: Task) -> None:
        device = task.targets.device
        self._task, self._order_free = task, configs[0].network.order_free
        self._seeds = torch.tensor([config.seed for config in configs], device=device)
        self._shuffled = torch.tensor([config.shuffle_input for config in configs], device=device)

    def in_training(self, inputs: Tensor, rows: Tensor, epoch: Tensor) -> Tensor:
        """The inputs [K, b, ...] of these rows [K, b] as they are read in an epoch."""
        if self._order_free or not self._task.reads_sets:
            return inputs
        seeds = self._seeds.unsqueeze(-1)
        which = torch.full_like(seeds, _INPUT)
        return self._in_order(inputs, seeds, epoch.expand_as(seeds), rows, which)

    def in_evaluation(self, rows: Tensor, *, final: bool) -> Tensor:
        """The inputs [K, s, ...] of these rows [s]; ``final`` numbers need the sets themselves."""
        task, members = self._task, len(self._seeds)
        sets = final and task.reconstructs if self._order_free else task.reads_sets
        inputs = (task.targets if sets else task.inputs)[rows]
        inputs = inputs.expand(members, *inputs.shape)
        if not sets:
            return inputs
        return self._in_order(inputs, self._seeds.unsqueeze(-1), rows.expand(members, -1))

    def _in_order(self, sets: Tensor, *keys: Tensor) -> Tensor:
        """Sets [K, b, N, F] in an order that the keys decide, for members that shuffle."""
        own = torch.arange(sets.shape[2], device=sets.device)
        order = random_order(sets.shape[2], *keys)
        order = torch.where(self._shuffled[:, None, None], order, own)
        return sets.gather(2, order.unsqueeze(-1).expand_as(sets))
