"""Sets in which most pairs count for nothing, or in which all count, and losses of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import setwise as sw


def separated(B: int, M: int, N: int, F: int) -> tuple[Tensor, Tensor]:
    """Confident outputs of distant targets, in the same order; in the last set, in the reverse.

    A feature of each is wrong, or gradients would be nothing but rounding.
    """
    generator = torch.Generator().manual_seed(M + N + F)
    x = torch.randint(0, 2, (B, M, F), generator=generator).float()
    z = 12 * (2 * x[:, torch.arange(N) * M // N] - 1)
    z = z + torch.randn(z.shape, generator=generator)
    z[..., 0] *= -1
    z[-1] = z[-1].flip(0)
    return z, x


def confused(B: int, M: int, N: int, F: int) -> tuple[Tensor, Tensor]:
    """Outputs that have learned nothing yet."""
    generator = torch.Generator().manual_seed(M + N + F)
    return torch.randn(B, N, F, generator=generator), torch.rand(B, M, F, generator=generator)


def loss_and_gradients(
    z: Tensor, x: Tensor, skip: bool = True, weight: Tensor | None = None, **options: Any
) -> list[Tensor]:
    """Gradients are to logits and target."""
    leaves = [t.detach().clone().requires_grad_() for t in (z, x)]
    options = {"impl": "triton", "reduction": "none", **options}
    value = sw.set_cross_entropy(*leaves, weight=weight, skip_negligible=skip, **options)
    scale = torch.linspace(1, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
    return [value.detach(), *torch.autograd.grad(value, leaves, scale)]


def agree(z: Tensor, x: Tensor, extra: float = 1e-5, **options: Any) -> None:
    """With skipping as without to rounding, and to float64 as near as the dense float32 is."""
    on, off = (loss_and_gradients(z, x, skip, **options) for skip in (True, False))
    assert torch.equal(on[0], off[0])
    options |= {"impl": "reference"}
    usual = loss_and_gradients(z, x, **options)
    options |= {name: t.double() for name, t in options.items() if name == "weight"}
    exact = loss_and_gradients(z.double(), x.double(), **options)
    for got, all_tiles, plain, right in zip(on, off, usual, exact, strict=True):
        largest = right.abs().max()
        assert (got - all_tiles).abs().max() <= 2**-24 * largest
        error, allowed = ((t.double() - right).abs().max() / largest for t in (got, plain))
        assert error <= allowed + extra
