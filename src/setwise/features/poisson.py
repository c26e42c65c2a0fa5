"""Counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from setwise.features.family import RARE, Family, clamp_with_gradient, device_of, no_distance

# Beyond this log rate, which no count reaches, the rate goes on along its tangent: it stays finite.
_LARGEST = 30.0
# The rate that random targets are drawn with.
_TYPICAL = 3.0


@dataclass(frozen=True)
class Poisson(Family):
    """Counts; outputs are the logs of their rates, targets numbers that are not negative.

    The cost is ``rate - x log rate + log x!``, as of `torch.nn.PoissonNLLLoss` with
    ``log x!`` in full, and defined for targets between the integers as well. Even a perfect output
    costs something: a count under its own rate is not certain.

    An output is discretised to the count nearest to its rate. The likeliest count would be the
    integer below the rate, but a network that has learned to answer 4 gives rates just above and
    just below 4.

    >>> Poisson(3).discretise(torch.tensor([0.0, 3.99, 4.2]).log())
    tensor([0., 4., 4.])
    """

    target_range: ClassVar[tuple[float, float]] = (0.0, math.inf)
    target_rule = "must be counts, finite and 0 or more"

    def natural(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        return logits, self.mean(logits).sum(-1)

    def base(self, target: Tensor) -> Tensor:
        return -torch.lgamma(target + 1).sum(-1)

    def mean(self, logits: Tensor) -> Tensor:
        rate = logits.clamp(max=_LARGEST).exp()
        return rate * (1 + (logits - _LARGEST).relu())

    def from_mean(self, mean: Tensor) -> Tensor:
        return clamp_with_gradient(mean, torch.finfo(mean.dtype).eps).log()

    def discretise(self, logits: Tensor) -> Tensor:
        return self.mean(logits).round()

    def soft_logits(self, prototype: Tensor) -> Tensor:
        return self.from_mean(prototype.clamp(min=RARE))

    def random_targets(
        self, shape: Sequence[int], generator: torch.Generator | None = None
    ) -> Tensor:
        rate = torch.full((*shape, self.width), _TYPICAL, device=device_of(generator))
        return torch.poisson(rate, generator=generator)

    def differ(self, target: Tensor, answer: Tensor, tolerance: float) -> Tensor:
        """Whatever the tolerance: a count is right or wrong."""
        return super().differ(target, answer, 0.0)

    def distance(self, target: Tensor, answer: Tensor) -> Tensor:
        return no_distance(target, answer)

    @property
    def dummy_digits(self) -> tuple[int, ...]:
        return (10,) * self.width

    def dummies(self, digits: Tensor) -> Tensor:
        return digits.float()
