"""Clouds of points for tests of the engine of k-d trees, and what that is held against."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from setwise.kernels import operators


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


def largest_errors(
    compute: Callable[..., Tensor], exact: list[Tensor], operands: list[Tensor]
) -> list[float]:
    """Of the logsumexp and gradients, relative to the largest of each."""
    return [
        ((one.double() - true).abs().max() / true.abs().max()).item()
        for one, true in zip(with_gradients(compute, operands), exact, strict=True)
    ]


def with_gradients(compute: Callable[..., Tensor], operands: list[Tensor]) -> list[Tensor]:
    """A logsumexp and its gradients, to y and the bias, and again with that to x."""
    x, y, bias, sharpness = operands
    grad = torch.linspace(0.5, 1, x.shape[1], dtype=x.dtype).unsqueeze(0)
    found = []
    for asked in ([y, bias], [x, y, bias]):
        given = [t.clone().requires_grad_(any(t is one for one in asked)) for t in (x, y, bias)]
        lse = compute(*given, sharpness)
        wanted = [t for t in given if t.requires_grad]
        found += [lse.detach(), *torch.autograd.grad(lse, wanted, grad)]
    return found


def dense(x: Tensor, y: Tensor, bias: Tensor, sharpness: Tensor) -> Tensor:
    apart = x.unsqueeze(2) - y.unsqueeze(1)
    squares = (sharpness[:, None, None] * apart.square()).sum(-1)
    return (bias.unsqueeze(1) - squares).logsumexp(-1)


def by_blocks(x: Tensor, y: Tensor, bias: Tensor, sharpness: Tensor) -> Tensor:
    return operators.differentiable_logsumexp(x, y, bias, "trees", True, sharpness)
