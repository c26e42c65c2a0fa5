"""Choices among classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from setwise.features.bernoulli import binary_distance
from setwise.features.family import (
    RARE,
    Family,
    Scoring,
    clamp_with_gradient,
    device_of,
    no_distance,
)


@dataclass(frozen=True)
class Categorical(Family):
    """One choice among ``width`` classes; outputs are logits, targets one-hot or distributions
    (their sum is not checked).

    ``scored_as="categorical"`` is the ordinary softmax cross entropy. ``scored_as="bernoulli"``
    takes the softmax probabilities and scores each as an independent Bernoulli, which also
    charges for the mass on the wrong classes: ``-sum x log p + (1 - x) log(1 - p)``.

    >>> Categorical(3).discretise(torch.tensor([0.1, 2.0, -1.0]))
    tensor([0., 1., 0.])
    """

    scored_as: Scoring = "categorical"

    target_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    target_rule = "must be probabilities in [0, 1]"
    is_choice = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width < 2:
            raise ValueError(f"Categorical: needs at least 2 classes, got {self.width}")
        if self.scored_as not in get_args(Scoring):
            raise ValueError(
                f"Categorical: scored_as must be 'categorical' or 'bernoulli', "
                f"got {self.scored_as!r}"
            )

    @property
    def kernel(self) -> tuple[str, float] | None:
        if type(self) is not Categorical:
            return None
        by_class = self.scored_as == "categorical"
        return ("categorical" if by_class else "categorical as bernoulli", self.weight)

    def natural(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        log_p = F.log_softmax(logits, dim=-1)
        if self.scored_as == "categorical":
            return log_p, log_p.new_zeros(log_p.shape[:-1])
        log_not_p = _log_one_minus_softmax(logits)
        return log_p - log_not_p, -log_not_p.sum(-1)

    def cost(self, logits: Tensor, target: Tensor) -> Tensor:
        cost = -target * F.log_softmax(logits, dim=-1)
        if self.scored_as == "bernoulli":
            cost = cost - (1 - target) * _log_one_minus_softmax(logits)
        return cost.sum(-1)

    def with_scoring(self, scored_as: Scoring) -> Categorical:
        return replace(self, scored_as=scored_as)

    def mean(self, logits: Tensor) -> Tensor:
        return logits.softmax(-1)

    def from_mean(self, mean: Tensor) -> Tensor:
        tiny = torch.finfo(mean.dtype).eps
        return clamp_with_gradient(mean, tiny, 1 - tiny).log()

    def discretise(self, logits: Tensor) -> Tensor:
        return self._one_hot(logits.argmax(-1, keepdim=True)).to(logits.dtype)

    def soft_logits(self, prototype: Tensor) -> Tensor:
        return self.from_mean((1 - RARE) * prototype + RARE / self.width)

    def random_targets(
        self, shape: Sequence[int], generator: torch.Generator | None = None
    ) -> Tensor:
        size, device = (*shape, 1), device_of(generator)
        classes = torch.randint(0, self.width, size, generator=generator, device=device)
        return self._one_hot(classes).float()

    def differ(self, target: Tensor, answer: Tensor, tolerance: float) -> Tensor:
        """Whatever the tolerance: a class is right or wrong."""
        return binary_distance(target, answer) > 0

    def distance(self, target: Tensor, answer: Tensor) -> Tensor:
        return no_distance(target, answer)

    def error(self, target: Tensor, answer: Tensor) -> Tensor:
        return binary_distance(target, answer) / 2  # a wrong class is off in two places

    @property
    def questions(self) -> int:
        return 1

    @property
    def dummy_digits(self) -> tuple[int, ...]:
        return (self.width,)

    def dummies(self, digits: Tensor) -> Tensor:
        return self._one_hot(digits).float()

    def _one_hot(self, classes: Tensor) -> Tensor:
        """Booleans [*, width] of classes [*, 1]."""
        return torch.arange(self.width, device=classes.device) == classes


def _log_one_minus_softmax(logits: Tensor) -> Tensor:
    """``log(1 - softmax(z))``, accurate and finite however saturated the softmax is.

    Every class but the largest has p <= 1/2, where log1p loses nothing; for the largest, 1 - p is
    the mass of all the others.
    """
    classes = torch.arange(logits.shape[-1], device=logits.device)
    is_top = classes == logits.argmax(-1, keepdim=True)
    log_total = torch.logsumexp(logits, dim=-1, keepdim=True)
    log_others = torch.logsumexp(logits.masked_fill(is_top, -math.inf), dim=-1, keepdim=True)
    p_not_top = (logits - log_total).masked_fill(is_top, -math.inf).exp()
    return torch.where(is_top, log_others - log_total, torch.log1p(-p_not_top))
