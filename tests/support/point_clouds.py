"""Clouds of points for tests of the engine of k-d trees."""

from __future__ import annotations

import torch
from torch import Tensor


def clouds(kind: str, generator: torch.Generator, M: int, N: int) -> tuple[Tensor, Tensor]:
    """Outputs [1, N, 3] and targets [1, M, 3]."""
    x = torch.rand(1, M, 3, generator=generator, dtype=torch.float64)
    if kind == "surface":
        x = torch.nn.functional.normalize(x - 0.5, dim=-1)
    elif kind == "clusters":
        x = 0.02 * x + torch.randint(3, (1, M, 1), generator=generator) * 1000.0
    elif kind == "line":
        x = x * torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    elif kind == "outlier":
        x[:, 0] += 50.0
    chosen = torch.randint(M, (N,), generator=generator)
    y = x[:, chosen] + 0.01 * torch.randn(1, N, 3, generator=generator, dtype=torch.float64)
    return y, x


def operands(n: int, sharpness: float, features: int = 2, seed: int = 2) -> list[Tensor]:
    """Queries, keys, bias and sharpness of one set in float64, uniform."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.rand(2, 1, n, features, generator=generator, dtype=torch.float64)
    return [x, y, torch.zeros(1, n).double(), torch.full((1, features), sharpness).double()]
