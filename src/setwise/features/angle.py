"""Directions in the plane."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from setwise.features.family import Family, device_of, require_positive


@dataclass(frozen=True)
class Angle(Family):
    """Angles in radians around a mean direction (von Mises); outputs are the directions themselves.

    An angle and the same angle plus full turns are the same, as a target and as an output. The
    statistic is ``(cos x, sin x)``. As for `Gaussian` the constant is left out: the cost is
    ``concentration * (1 - cos(x - y))``, and a perfect output costs nothing. To small differences
    a concentration is what ``1 / scale^2`` is for a Gaussian.

    >>> Angle(concentration=2.0).cost(torch.tensor([0.0]), torch.tensor([math.pi]))
    tensor(4.)
    >>> Angle().discretise(torch.tensor([-0.5, 6.0]))  # in [-pi, pi)
    tensor([-0.5000, -0.2832])
    """

    concentration: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("Angle", "concentration", self.concentration)

    def statistic(self, target: Tensor) -> Tensor:
        return _on_the_circle(target)

    @property
    def curvature(self) -> float:
        """``1 - cos(x - y)`` is half the square of the chord between two points of the circle."""
        return self.concentration / 2

    def location(self, logits: Tensor) -> Tensor:
        return _on_the_circle(logits)

    def natural(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        natural = self.concentration * _on_the_circle(logits)
        return natural, natural.new_full(natural.shape[:-1], self.concentration * self.width)

    def cost(self, logits: Tensor, target: Tensor) -> Tensor:
        half = (target - logits) / 2
        return 2 * self.concentration * half.sin().square().sum(-1)

    def mean(self, logits: Tensor) -> Tensor:
        return _wrap(logits)

    def from_mean(self, mean: Tensor) -> Tensor:
        return mean

    def random_targets(
        self, shape: Sequence[int], generator: torch.Generator | None = None
    ) -> Tensor:
        turn = torch.rand((*shape, self.width), generator=generator, device=device_of(generator))
        return _wrap(turn * (2 * math.pi))

    def average(self, target: Tensor, dim: int) -> Tensor:
        """The direction of the average point on the circle."""
        return torch.atan2(target.sin().mean(dim), target.cos().mean(dim))

    def differ(self, target: Tensor, answer: Tensor, tolerance: float) -> Tensor:
        """The shorter way round may be as long as the tolerance."""
        return ~(_distance(target, answer).amax(-1) <= tolerance)

    def distance(self, target: Tensor, answer: Tensor) -> Tensor:
        """By the shorter ways round."""
        return _distance(target, answer).norm(dim=-1)

    def error(self, target: Tensor, answer: Tensor) -> Tensor:
        """The shorter ways round, in units of ``1 / sqrt(concentration)``."""
        return _distance(target, answer).sum(-1) * math.sqrt(self.concentration)

    @property
    def dummy_digits(self) -> tuple[int, ...]:
        return (4,) * self.width

    def dummies(self, digits: Tensor) -> Tensor:
        """Quarter turns."""
        return _wrap(digits * (math.pi / 2))


def _on_the_circle(angles: Tensor) -> Tensor:
    """[*, w] -> [*, 2 w]."""
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def _wrap(angles: Tensor) -> Tensor:
    """The same angles in [-pi, pi); those that are there already stay what they are."""
    nearest = angles - 2 * math.pi * (angles / (2 * math.pi)).round()
    return torch.where(nearest >= math.pi, nearest - 2 * math.pi, nearest)


def _distance(target: Tensor, answer: Tensor) -> Tensor:
    """The shorter way round from [*, M, w] to [*, N, w]: [*, M, N, w].

    Targets are wrapped as answers were, so that a target that is answered exactly is 0 away.
    """
    return _wrap(_wrap(target).unsqueeze(-2) - answer.unsqueeze(-3)).abs()
