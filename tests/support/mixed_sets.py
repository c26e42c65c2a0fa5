"""Three sets whose elements have features of three kinds."""

from __future__ import annotations

import torch
from torch import Tensor

import setwise as sw

FEATURES = sw.Features(
    sw.Bernoulli(2), sw.Categorical(3, scored_as="bernoulli"), sw.Gaussian(2, scale=0.5)
)


def mixed_sets() -> tuple[Tensor, Tensor, Tensor]:
    """Logits [3, 4, F], targets [3, 4, F] and lengths [3]."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(3, 4, FEATURES.width, generator=generator)
    x = FEATURES.random_targets((3, 4), generator)
    return z, x, torch.tensor([4, 2, 3])
