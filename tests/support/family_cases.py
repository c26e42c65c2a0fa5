"""Every family beside its definition elsewhere, and the losses over a matrix of costs.

Legend: B sets, M targets, N outputs, w features of a family; ``*`` any leading dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import scipy.stats
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, distributions

import setwise as sw


def away(x: Tensor, y: Tensor) -> Tensor:
    return (x - y).abs()


def way_round(x: Tensor, y: Tensor) -> Tensor:
    """The shortest of three ways from angles to angles that are less than two turns apart."""
    ways = [(x - y + turns * 2 * math.pi).abs() for turns in (-1, 0, 1)]
    return torch.stack(ways).amin(0)


@dataclass(frozen=True)
class Case:
    """A family and what it should be; its weight is applied by `Features` alone."""

    family: sw.Family
    log_density: Callable[[Tensor, Tensor], Tensor]  # of targets [*, w] under outputs [*, w]: [*]
    mean: Callable[[Tensor], Tensor]
    # Outputs, as means would be, and what they answer with.
    means: list[float]
    answers: list[float]
    # What targets may not be, and what they may be at most and at least.
    refused: list[float]
    corners: list[float]
    # How far single features are apart, in which unit, and whether they may be, by a tolerance.
    distance: Callable[[Tensor, Tensor], Tensor] = away
    unit: float = 1.0
    tolerant: bool = False
    choice: bool = False
    most_dummies: int = 1

    @property
    def features(self) -> sw.Features:
        return sw.Features(self.family)

    def logits(self, *shape: int, seed: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        size = (*shape, self.family.width)
        return 1.5 * torch.randn(size, generator=generator, dtype=torch.float64)

    def targets(self, *shape: int, seed: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return self.family.random_targets(shape, generator).double()

    def costs(self, logits: Tensor, target: Tensor) -> Tensor:
        """Of all pairs: [*, N, w], [*, M, w] -> [*, M, N]."""
        x, y = torch.broadcast_tensors(target.unsqueeze(-2), logits.unsqueeze(-3))
        return -self.family.weight * self.log_density(x, y)

    def error(self, x: Tensor, y: Tensor) -> Tensor:
        """The mean error of answers over the questions of the family: [*, w] twice -> [*]."""
        apart = self.distance(x, y)
        return apart.amax(-1) if self.choice else apart.mean(-1) / self.unit


def scipy_log(density: Callable[..., Any], x: Tensor, *parameters: Any) -> Tensor:
    given = [p.numpy() if isinstance(p, Tensor) else p for p in parameters]
    return torch.as_tensor(density(x.numpy(), *given)).sum(-1)


def as_bernoulli(x: Tensor, y: Tensor) -> Tensor:
    return distributions.Bernoulli(probs=y.softmax(-1)).log_prob(x).sum(-1)


def gaussian(scale: float) -> Callable[[Tensor, Tensor], Tensor]:
    at_best = scipy.stats.norm.logpdf(0.0, scale=scale)
    return lambda x, y: scipy_log(scipy.stats.norm.logpdf, x, y, scale) - at_best * x.shape[-1]


def von_mises(kappa: float) -> Callable[[Tensor, Tensor], Tensor]:
    at_best = scipy.stats.vonmises.logpdf(0.0, kappa)
    return lambda x, y: scipy_log(scipy.stats.vonmises.logpdf, x, kappa, y) - at_best * x.shape[-1]


def principal(y: Tensor) -> Tensor:
    return torch.polar(torch.ones_like(y), y).angle()


CASES = {
    "bernoulli": Case(
        sw.Bernoulli(3),
        lambda x, y: distributions.Bernoulli(logits=y).log_prob(x).sum(-1),
        torch.sigmoid,
        means=[0.1, 0.49, 0.51],
        answers=[0.0, 0.0, 1.0],
        refused=[-1e-6, 1.1, math.inf],
        corners=[0.0, 1.0],
        most_dummies=8,
    ),
    "categorical": Case(
        sw.Categorical(3, weight=2.0),
        lambda x, y: distributions.OneHotCategorical(logits=y).log_prob(x),
        lambda y: y.softmax(-1),
        means=[0.3, 0.2, 0.5],
        answers=[0.0, 0.0, 1.0],
        refused=[-1e-6, 1.1, -math.inf],
        corners=[0.0, 1.0],
        choice=True,
        most_dummies=3,
    ),
    "as bernoulli": Case(
        sw.Categorical(4, scored_as="bernoulli"),
        as_bernoulli,
        lambda y: y.softmax(-1),
        means=[0.3, 0.1, 0.2, 0.4],
        answers=[0.0, 0.0, 0.0, 1.0],
        refused=[-0.5, 2.0],
        corners=[0.0, 1.0],
        choice=True,
        most_dummies=4,
    ),
    "gaussian": Case(
        sw.Gaussian(2, weight=0.5, scale=0.7),
        gaussian(0.7),
        lambda y: y,
        means=[-3.25, 1e3],
        answers=[-3.25, 1e3],
        refused=[math.inf, -math.inf],
        corners=[-1e6, 0.0, 1e6],
        unit=0.7,
        tolerant=True,
    ),
    "poisson": Case(
        sw.Poisson(2, weight=1.5),
        lambda x, y: scipy_log(scipy.stats.poisson.logpmf, x, y.exp()),
        torch.exp,
        means=[2.9, 0.4],
        answers=[3.0, 0.0],
        refused=[-1.0, -1e-6, math.inf],
        corners=[0.0, 1.0, 1e6],
        most_dummies=100,
    ),
    "angle": Case(
        sw.Angle(2, weight=3.0, concentration=2.5),
        von_mises(2.5),
        principal,
        means=[-3.0, math.pi + 0.5],
        answers=[-3.0, 0.5 - math.pi],
        refused=[math.inf, -math.inf],
        corners=[-100.0, -math.pi, 0.0, math.pi, 100.0],
        distance=way_round,
        unit=2.5**-0.5,
        tolerant=True,
        most_dummies=16,
    ),
}

Loss = Callable[..., Tensor]
# Each loss of one set, straight from its costs [M, N].
LOSSES: dict[str, tuple[Loss, dict[str, Any], Callable[[Tensor], Tensor]]] = {
    "ordered": (sw.ordered_cross_entropy, {}, lambda h: h.diagonal().sum()),
    "set": (sw.set_cross_entropy, {}, lambda h: -torch.logsumexp(-h, -1).sum()),
    "set, cold": (
        sw.set_cross_entropy,
        {"temperature": 0.5},
        lambda h: -0.5 * torch.logsumexp(-h / 0.5, -1).sum(),
    ),
    "average": (sw.set_average, {}, lambda h: h.amin(-1).mean()),
    "average, both ways": (
        sw.set_average,
        {"directed": False},
        lambda h: h.amin(-1).mean() + h.amin(-2).mean(),
    ),
    "hausdorff": (sw.hausdorff, {}, lambda h: h.amin(-1).amax()),
    "hausdorff, both ways": (
        sw.hausdorff,
        {"directed": False},
        lambda h: torch.maximum(h.amin(-1).amax(), h.amin(-2).amax()),
    ),
    "assignment": (
        sw.assignment_cross_entropy,
        {},
        lambda h: h[linear_sum_assignment(h.numpy())].sum(),
    ),
}
# Those that have a pairwise engine to choose.
PAIRWISE = [name for name in LOSSES if name not in ("ordered", "assignment")]
# Every loss with every engine it can have here; kernels compute in float32.
ENGINES = [("ordered", None), ("assignment", None)] + [
    (name, impl) for name in PAIRWISE for impl in ("reference", "chunked", "triton")
]


def run_loss(
    name: str, impl: str | None, logits: Tensor, target: Tensor, features: sw.Features, **masks: Any
) -> Tensor:
    """The loss of each set [B]."""
    loss, options, _ = LOSSES[name]
    engine = {} if impl is None else {"impl": impl}
    return loss(logits, target, features, reduction="none", **options, **engine, **masks)


def defined_loss(name: str, costs: Tensor) -> Tensor:
    """The same from costs [B, M, N], set by set."""
    return torch.stack([LOSSES[name][2](one) for one in costs])
