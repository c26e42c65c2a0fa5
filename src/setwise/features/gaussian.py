"""Real features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from setwise.features.family import Family, device_of, require_positive


@dataclass(frozen=True)
class Gaussian(Family):
    """Real features around a mean of fixed ``scale``; outputs are the means themselves.

    The constant ``width * log(scale * sqrt(2 pi))`` is left out, so that the cost is
    ``|x - y|^2 / (2 scale^2)`` and a perfect output costs nothing.

    >>> Gaussian(2, scale=0.5).cost(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0]))
    tensor(2.)
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("Gaussian", "scale", self.scale)

    @property
    def curvature(self) -> float:
        return 1 / (2 * self.scale**2)

    @property
    def kernel(self) -> tuple[str, float] | None:
        return ("square", self.weight * self.curvature) if type(self) is Gaussian else None

    def natural(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        return logits / self.scale**2, logits.square().sum(-1) / (2 * self.scale**2)

    def base(self, target: Tensor) -> Tensor:
        return -target.square().sum(-1) / (2 * self.scale**2)

    def cost(self, logits: Tensor, target: Tensor) -> Tensor:
        return (target - logits).square().sum(-1) / (2 * self.scale**2)

    def mean(self, logits: Tensor) -> Tensor:
        return logits

    def from_mean(self, mean: Tensor) -> Tensor:
        return mean

    def random_targets(
        self, shape: Sequence[int], generator: torch.Generator | None = None
    ) -> Tensor:
        size = (*shape, self.width)
        return torch.randn(size, generator=generator, device=device_of(generator)) * self.scale

    def error(self, target: Tensor, answer: Tensor) -> Tensor:
        """Distances in units of the scale."""
        return super().error(target, answer) / self.scale
