"""Gradients of many features, compiled; tests/kernels/test_panels.py interprets them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F_

import setwise as sw

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
# By what errors may exceed those of the dense computation: weights are rounded beforehand.
KINDS = {"highest": 1e-5, "medium": 2e-3, "bfloat16": 8e-3}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium" if request.param == "medium" else "highest")
    yield request.param
    torch.set_float32_matmul_precision(before)


def draw(B: int, M: int, N: int, F: int, kind: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator("cuda").manual_seed(M + N + F)
    z = torch.randn(B, N, F, generator=generator, device="cuda")
    x = torch.rand(B, M, F, generator=generator, device="cuda")
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    return z.to(dtype), x.to(dtype)


def loss_and_gradients(loss: Any, z: Tensor, x: Tensor, **options: Any) -> list[Tensor]:
    leaves = [t.detach().clone().requires_grad_() for t in (z, x)]
    value = loss(*leaves, **options)
    return [value.detach(), *torch.autograd.grad(value, leaves)]


def dense(z: Tensor, x: Tensor) -> Tensor:
    scores = torch.einsum("bmf,bnf->bmn", x, z) - F_.softplus(z).sum(-1).unsqueeze(1)
    return -scores.logsumexp(-1).sum(-1).mean()


@pytest.mark.parametrize("shape", [(1, 3000, 2500, 300), (2, 1500, 1700, 301)], ids=str)
def test_several_panels(shape: tuple[int, int, int, int], kind: str) -> None:
    """As near to float64 as the dense loss of float32 inputs, and what the kind may add.

    In tf32 at most twice as far as the dense loss is there.
    """
    z, x = draw(*shape, kind)
    ours = loss_and_gradients(sw.set_cross_entropy, z, x, impl="triton", skip_negligible=False)
    again = loss_and_gradients(sw.set_cross_entropy, z, x, impl="triton", skip_negligible=False)
    assert all(torch.equal(a, b) for a, b in zip(ours, again, strict=True))
    usual = loss_and_gradients(dense, z.float(), x.float())
    exact = loss_and_gradients(dense, z.double(), x.double())
    for got, plain, right in zip(ours, usual, exact, strict=True):
        largest = right.abs().max()
        error, allowed = ((t.double() - right).abs().max() / largest for t in (got, plain))
        assert error <= (2 if kind == "medium" else 1) * allowed + KINDS[kind]


def test_memory(kind: str) -> None:
    """Less than a tenth of the scores of all pairs: operands, weights of a panel, and gradients."""
    N = 32768
    z, x = draw(1, N, N, 260, kind)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    loss_and_gradients(sw.set_cross_entropy, z, x, impl="triton", skip_negligible=False)
    assert torch.cuda.max_memory_allocated() - before <= 0.1 * 4 * N**2
