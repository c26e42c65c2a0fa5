"""The fused path of plain Bernoulli sets, where its shortcuts could go wrong."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw

SIZES = [4, 70]  # one program per set, and loops over tiles


def _both_engines(z: Tensor, x: Tensor, **options: Any) -> list[tuple[Tensor, Tensor]]:
    results = []
    for impl in ("reference", "triton"):
        leaf = z.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        value = sw.set_cross_entropy(leaf, x, impl=impl, reduction="none", **options)  # type: ignore[arg-type]
        results.append((value.detach(), torch.autograd.grad(value.sum(), leaf)[0]))
    return results


@pytest.mark.parametrize("n", [SIZES[0], pytest.param(SIZES[1], marks=pytest.mark.slow)])
@pytest.mark.parametrize("odd", ["logits", "target", "weight", "mask", "expanded weight"])
def test_any_memory_layout(n: int, odd: str) -> None:
    """Kernels read plain arrays; what the caller gives need not be one."""
    generator = torch.Generator().manual_seed(n)
    z = torch.randn(3, n, 5, generator=generator)
    x = torch.randint(0, 2, (3, n, 5), generator=generator).float()
    weight, valid = torch.rand(3, n, generator=generator), torch.rand(3, n) < 0.7
    valid[:, 0] = True
    if odd == "logits":
        z = torch.randn(5, n, 3, generator=generator).permute(2, 1, 0)
    elif odd == "target":
        x = torch.randint(0, 2, (5, n, 3), generator=generator).float().permute(2, 1, 0)
    elif odd == "weight":
        weight = torch.rand(n, 3, generator=generator).t()
    elif odd == "mask":
        valid = (torch.rand(n, 3, generator=generator) < 0.7).t()
    else:
        weight = weight[:1].expand(3, n)
    reference, fused = _both_engines(z, x, weight=weight, input_valid=valid)
    torch.testing.assert_close(fused, reference, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", SIZES)
def test_second_derivatives_and_weights_of_any_layout(n: int) -> None:
    z = torch.randn(5, n, 3).permute(2, 1, 0).requires_grad_()
    x, weight = torch.randint(0, 2, (3, n, 5)).float(), torch.rand(3, n, requires_grad=True)
    results = []
    for impl in ("reference", "triton"):
        value = sw.set_cross_entropy(z, x, weight=weight, impl=impl)  # type: ignore[arg-type]
        first = torch.autograd.grad(value, (z, weight), create_graph=True)
        results.append((*first, *torch.autograd.grad(first[0].square().sum(), (z, weight))))
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", ["float16", "tf32"])
def test_right_and_confident_outputs_get_no_gradient(n: int, kind: str) -> None:
    """Rounded weights must cancel in both shares of a gradient, or noise would be left over."""
    x = torch.ones(2, n, 5)
    z = torch.full((2, n, 5), 18.0)
    half = kind == "float16"
    if half:
        x, z = x.half(), z.half()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if half else "medium")
    try:
        leaf = z.requires_grad_()
        value = sw.set_cross_entropy(leaf, x, impl="triton", reduction="sum")
        (grad,) = torch.autograd.grad(value, leaf)
    finally:
        torch.set_float32_matmul_precision(before)
    assert grad.abs().max() < 2e-6


@pytest.mark.parametrize("n", SIZES)
def test_small_weights_survive_float16(n: int) -> None:
    """The gradient of a large batch is small before a loss scale reaches it."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(2, n, 5, generator=generator).half()
    x = torch.randint(0, 2, (2, n, 5), generator=generator).half()
    weight = torch.full((2, n), 1e-6)
    scaled = []
    for impl in ("reference", "triton"):
        leaf = z.clone().float().half().requires_grad_()
        value = sw.set_cross_entropy(leaf, x, weight=weight, impl=impl) * 2.0**16  # type: ignore[arg-type]
        scaled.append(torch.autograd.grad(value, leaf)[0])
    error = (scaled[1] - scaled[0]).abs().max() / scaled[0].abs().max()
    assert error < 2e-3


@pytest.mark.parametrize("n", SIZES)
def test_the_unreduced_loss_may_be_changed_in_place(n: int) -> None:
    z = torch.randn(2, n, 5, requires_grad=True)
    x = torch.randint(0, 2, (2, n, 5)).float()
    loss = sw.set_cross_entropy(z, x, impl="triton", reduction="none")
    loss *= 2
    loss.sum().backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()


@pytest.mark.parametrize("features", [None, sw.Features(sw.Gaussian(5))])
def test_an_empty_batch(features: Any) -> None:
    nothing = torch.zeros(0, 3, 5)
    assert sw.set_cross_entropy(nothing, nothing, features, impl="triton", reduction="sum") == 0
    value = sw.set_cross_entropy(nothing, nothing, features, impl="triton")
    assert math.isnan(value)
    assert sw.set_average(nothing, nothing, features, impl="triton", reduction="none").shape == (0,)


@pytest.mark.parametrize("n", SIZES)
def test_gradients_of_a_whole_batch_at_once(n: int) -> None:
    z = torch.randn(2, n, 5, requires_grad=True)
    x = torch.randint(0, 2, (2, n, 5)).float()
    rows = []
    for impl in ("reference", "triton"):
        value = sw.set_cross_entropy(z, x, impl=impl, reduction="none")  # type: ignore[arg-type]
        rows.append(torch.autograd.grad(value, z, torch.eye(2), is_grads_batched=True)[0])
    torch.testing.assert_close(rows[1], rows[0], rtol=1e-4, atol=1e-5)
