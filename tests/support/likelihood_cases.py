"""Likelihoods that fused kernels serve, judged against float64, which takes the PyTorch code."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import setwise as sw


def step(
    features: sw.Features, M: int, N: int, dtype: torch.dtype, device: str, options: dict[str, Any]
) -> tuple[Tensor, ...]:
    """The loss of 4 sets and its gradients, to logits and presence; always the same sets.

    Masked, one of the sets has no targets, and one too few outputs.
    """
    generator = torch.Generator().manual_seed(M + N)
    z = torch.randn(4, N, features.width, generator=generator).to(device, dtype).requires_grad_()
    x = features.random_targets((4, M), generator).to(device, dtype)
    exists = torch.randn(4, N, generator=generator).to(device, dtype).requires_grad_()
    weight = torch.rand(4, M, generator=generator).to(device, dtype)
    options = dict(options)
    leaves = [z]
    if options.pop("masked", False):
        options["input_valid"] = torch.tensor([N, N - 1, N, 1], device=device)
        options["target_valid"] = torch.tensor([2, M, 0, 2], device=device)
    if options.pop("weighted", False):
        options["weight"] = weight
    if options.pop("present", False):
        leaves.append(exists)
        options |= {"presence": exists, "presence_weight": 0.7}
    value = sw.set_likelihood(z, x, features, **options)
    # Each set counts something else; what is impossible nothing, for it has no gradient.
    counts = torch.arange(1, 1 + value.numel(), device=device).to(value).view(value.shape)
    grads = torch.autograd.grad(torch.where(value.isfinite(), counts * value, 0.0).sum(), leaves)
    with torch.no_grad():
        alone = sw.set_likelihood(z, x, features, **options)
    return value.detach(), alone, *grads


def judge_likelihood(
    features: sw.Features, M: int, N: int, device: str = "cpu", tol: float = 1e-5, **options: Any
) -> None:
    """Of a call that is computed, recorded and played: the same bits, close to float64."""
    first, second, third = (step(features, M, N, torch.float32, device, options) for _ in range(3))
    right = step(features, M, N, torch.float64, device, options)
    for got, recorded, played, exact in zip(first, second, third, right, strict=True):
        assert torch.equal(got, recorded)
        assert torch.equal(got, played)
        torch.testing.assert_close(got.double(), exact, rtol=tol, atol=tol)
