"""A family of one's own in one file: waiting times until something wears out (Weibull).

The density of a time x around a typical time t is ``k/t (x/t)^(k - 1) exp(-(x/t)^k)``, with
``k = shape``: an exponential family whose statistic is ``x^k``, not x. An output is ``log t``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import setwise as sw

LARGEST = 10.0  # of the logarithm of a typical time, either way: powers stay finite


@dataclass(frozen=True)
class Weibull(sw.Family):
    """Positive waiting times; of a shape above 1 things wear out, at 1 they do not age."""

    shape: float = 1.5

    target_range = (1e-6, math.inf)
    target_rule = "must be waiting times, positive and finite"
    blank = 1.0

    def statistic(self, target: Tensor) -> Tensor:
        return target**self.shape

    def natural(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        log_times = logits.clamp(-LARGEST, LARGEST)
        return -torch.exp(-self.shape * log_times), self.shape * log_times.sum(-1)

    def base(self, target: Tensor) -> Tensor:
        return (math.log(self.shape) + (self.shape - 1) * target.log()).sum(-1)

    def mean(self, logits: Tensor) -> Tensor:
        return logits.clamp(-LARGEST, LARGEST).exp() * self._mean_of_one

    def from_mean(self, mean: Tensor) -> Tensor:
        return torch.log(mean / self._mean_of_one)

    def random_targets(
        self, shape: Sequence[int], generator: torch.Generator | None = None
    ) -> Tensor:
        device = None if generator is None else generator.device
        waits = torch.empty((*shape, self.width), device=device).exponential_(generator=generator)
        return (waits ** (1 / self.shape)).clamp(min=1e-3)

    @property
    def _mean_of_one(self) -> float:
        """The mean waiting time where the typical one is 1."""
        return math.gamma(1 + 1 / self.shape)
