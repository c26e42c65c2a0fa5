"""Binary features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from setwise.features.family import RARE, Family, clamp_with_gradient, device_of, no_distance

# log(1 + e^z) equals z to the last bit of a double beyond this point.
_SOFTPLUS_IS_IDENTITY = 40.0


@dataclass(frozen=True)
class Bernoulli(Family):
    """Independent binary features; outputs are logits, targets probabilities.

    >>> Bernoulli(2).discretise(torch.tensor([1.5, -0.2]))
    tensor([1., 0.])
    """

    target_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    target_rule = "must be probabilities in [0, 1]"

    @property
    def kernel(self) -> tuple[str, float] | None:
        return ("bernoulli", self.weight) if type(self) is Bernoulli else None

    def natural(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        return logits, _softplus(logits).sum(-1)

    def cost(self, logits: Tensor, target: Tensor) -> Tensor:
        return (target * _softplus(-logits) + (1 - target) * _softplus(logits)).sum(-1)

    def mean(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()

    def from_mean(self, mean: Tensor) -> Tensor:
        tiny = torch.finfo(mean.dtype).eps
        return torch.logit(clamp_with_gradient(mean, tiny, 1 - tiny))

    def discretise(self, logits: Tensor) -> Tensor:
        return (logits > 0).to(logits.dtype)

    def soft_logits(self, prototype: Tensor) -> Tensor:
        return self.from_mean(prototype.clamp(RARE, 1 - RARE))

    def random_targets(
        self, shape: Sequence[int], generator: torch.Generator | None = None
    ) -> Tensor:
        size = (*shape, self.width)
        return torch.randint(0, 2, size, generator=generator, device=device_of(generator)).float()

    def differ(self, target: Tensor, answer: Tensor, tolerance: float) -> Tensor:
        """Whatever the tolerance: a bit is right or wrong."""
        return binary_distance(target, answer) > 0

    def distance(self, target: Tensor, answer: Tensor) -> Tensor:
        return no_distance(target, answer)

    def error(self, target: Tensor, answer: Tensor) -> Tensor:
        return binary_distance(target, answer)

    @property
    def dummy_digits(self) -> tuple[int, ...]:
        return (2,) * self.width

    def dummies(self, digits: Tensor) -> Tensor:
        return digits.float()


def binary_distance(target: Tensor, answer: Tensor) -> Tensor:
    """``sum_f |x_f - y_f|`` of targets in [0, 1] and answers of 0 and 1: -> [*, M, N].

    A biased dot product as well, ``x . (1 - 2y) + sum y``, and exact where x is 0 or 1 too.
    """
    return target @ (1 - 2 * answer).mT + answer.sum(-1).unsqueeze(-2)


def _softplus(logits: Tensor) -> Tensor:
    return F.softplus(logits, threshold=_SOFTPLUS_IS_IDENTITY)
