"""Points far from the origin on a CUDA device, through the compiled kernels."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from far_points import ASSIGNMENT, FAR, FEATURES, PAIRWISE, dense_costs, judge

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(params=["highest", "medium"])
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("far", FAR)
@pytest.mark.parametrize("kind", FEATURES)
@pytest.mark.parametrize("impl", ["reference", "chunked", "triton"])
def test_as_near_the_origin(impl: str, kind: str, far: float) -> None:
    for loss in PAIRWISE.values():
        judge(FEATURES[kind], loss, far, device="cuda", impl=impl)
        judge(FEATURES[kind], loss, far, device="cuda", impl=impl, of_targets=False)
    judge(FEATURES[kind], ASSIGNMENT, far, device="cuda")


def test_whatever_is_allowed_of_matrix_products(level: str) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(level)
    try:
        for kind in ("points", "pixels", "embedding"):
            for loss in PAIRWISE.values():
                judge(FEATURES[kind], loss, 1e4, device="cuda", impl="triton")
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("F", [2, 5, 32, 300])
@pytest.mark.parametrize("temperature", [1e-6, 1e-3, 1.0, 1e6])
def test_weights_of_a_target_add_up_to_one(F: int, temperature: float, level: str) -> None:
    """Also where the logarithm of their number is less than the rounding of a score."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(level)
    try:
        for features in (sw.Features(sw.Bernoulli(F)), sw.Features(sw.Gaussian(F))):
            for N, M in ((4, 1), (600, 70), (5000, 3)):  # loops that are whole and that are split
                z = torch.zeros(1, N, F, device="cuda", requires_grad=True)
                x = torch.ones(1, M, F, device="cuda")
                loss = sw.set_cross_entropy(z, x, features, temperature=temperature, impl="triton")
                (gradient,) = torch.autograd.grad(loss, z)
                of_one = -0.5 if features.plain_bernoulli else -1.0
                expected = torch.full_like(gradient, of_one * M / N)
                torch.testing.assert_close(gradient, expected, rtol=2e-3, atol=0)
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("F", [2, 3, 4, 7, 40, 200])
def test_many_points(F: int) -> None:
    """Several tiles, splits and blocks of features; no multiple of any of them.

    No further from float64 than dense float32, which takes differences first, and 1e-5.
    """
    features = sw.Features(sw.Gaussian(F, scale=0.3))
    generator = torch.Generator("cuda").manual_seed(F)
    x = torch.rand(3, 1111, F, generator=generator, device="cuda")
    x[:, ::2] += 1000
    z = x[:, :777] + 0.1 * torch.randn(3, 777, F, generator=generator, device="cuda")
    found = []
    for compute, kind in (
        (partial(_losses, features, "triton"), torch.float32),
        (partial(_dense_losses, features), torch.float32),
        (partial(_losses, features, "chunked"), torch.float64),
    ):
        leaves = [t.to(kind).requires_grad_() for t in (z, x)]
        loss, nearest = compute(*leaves)
        grads = torch.autograd.grad(loss.sum(), leaves)
        found.append([t.detach().double() for t in (loss, nearest, *grads)])
    for ours, dense, exact in zip(*found, strict=True):
        largest = exact.abs().max()
        error, allowed = ((t - exact).abs().max() / largest for t in (ours, dense))
        assert error <= allowed + 1e-5


def _losses(features: sw.Features, impl: Any, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    given = {"features": features, "reduction": "none", "impl": impl}
    return sw.set_cross_entropy(z, x, **given), sw.set_average(z, x, **given)


def _dense_losses(features: sw.Features, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    costs = torch.stack([dense_costs(features, *pair) for pair in zip(z, x, strict=True)])
    return -torch.logsumexp(-costs, -1).sum(-1), costs.amin(-1).mean(-1)
