"""Float32 products in full precision, compiled; tests/kernels/test_bf16x6.py interprets them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F_

import setwise as sw
from setwise.kernels import operators

pytest.importorskip("triton")

from setwise.kernels.triton import operands

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
# Features that a tile holds, that take several, and whose gradient does.
WIDTHS = [5, 20, 64, 70, 256, 300]


@pytest.fixture(autouse=True)
def highest() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator("cuda").manual_seed(sum(shape) + seed)
    return torch.randn(shape, generator=generator, device="cuda")


@pytest.mark.parametrize("F", WIDTHS)
@pytest.mark.parametrize(("M", "N"), [(130, 100), (20, 100), (100, 20), (1100, 1300)])
def test_a_score_has_the_same_bits_in_every_pass(F: int, M: int, N: int) -> None:
    """With one admissible key, its weight is exp(score - lse): 1, but only if both are the same.

    Of few or many elements, tiles of the passes have other sizes.
    """
    queries, keys = 3 * normal(2, M, F), 3 * normal(2, N, F)
    bias = torch.full((2, N), -math.inf, device="cuda")
    bias[:, 7] = 0.3
    lse, terms, peaks = operators.logsumexp(queries, keys, bias, "triton", False)
    d_queries, d_keys, d_bias = operators.logsumexp_backward(
        torch.ones_like(lse), queries, keys, bias, terms, peaks, True, True, "triton"
    )
    assert (d_bias[:, 7] == M).all()
    assert torch.equal(d_queries, keys[:, 7:8].expand_as(queries))
    total = queries.double().sum(1)
    assert ((d_keys[:, 7] - total).abs() <= 2**-20 * queries.double().abs().sum(1)).all()


@pytest.mark.parametrize("F", WIDTHS)
def test_scores_round_as_float32_does(F: int) -> None:
    """One of the six products less, and they would not: the smallest is 2^-16 of the largest."""
    queries, keys = normal(1, 300, F), normal(1, 70, F)
    sizes, exact = queries.double().abs(), queries.double() @ keys[0, 5].double()
    bias = torch.full((1, 70), -math.inf, device="cuda")
    bias[:, 5] = 0
    lse, *_ = operators.logsumexp(queries, keys, bias, "triton", False)
    assert ((lse - exact).abs() <= 2**-22 * (sizes @ keys[0, 5].double().abs())).all()


@pytest.mark.parametrize("F", WIDTHS)
def test_exact_queries_have_the_bits_of_all_products(
    F: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left out is zero, also to tensor cores; and it is left out."""
    queries, keys = normal(2, 130, F), normal(2, 300, F)
    rounded = operands.bf16x3_parts(queries, keys)[0][0, ..., :F].float().contiguous()
    exact, usual = _gradients(rounded, keys), _gradients(queries, keys)
    honest = operands.bf16x3_parts
    for length, expected in ((1, exact), (0, usual)):
        monkeypatch.setattr(
            operands, "bf16x3_parts", lambda q, k, n=length: (*honest(q, k)[:2], _filled(q, n))
        )
        found = _gradients(rounded if length else queries, keys)
        same = [torch.equal(got, right) for got, right in zip(found, expected, strict=True)]
        assert all(same) if length else not any(same)


@pytest.mark.parametrize("F", WIDTHS)
def test_inexact_queries_among_exact_ones(F: int) -> None:
    """A set of both kinds, an inexact and an exact one: each program is run, by one launch."""
    queries, keys = normal(3, 900, F), normal(3, 700, F)
    is_bf16 = torch.ones(3, 900, 1, dtype=torch.bool, device="cuda")
    is_bf16[0, 70] = is_bf16[1] = False
    queries = torch.where(is_bf16, queries.round(), queries)
    found, again = _gradients(queries, keys), _gradients(queries, keys)
    assert all(torch.equal(one, two) for one, two in zip(found, again, strict=True))
    leaves = [t.double().requires_grad_() for t in (queries, keys)]
    lse = torch.logsumexp(leaves[0] @ leaves[1].mT, -1)
    exact = [lse.detach(), *torch.autograd.grad(lse.sum(), leaves)]
    for got, right in zip(found, exact, strict=False):
        assert (got - right).abs().max() <= 1e-5 * right.abs().max()


@pytest.mark.parametrize("F", WIDTHS)
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_is_not_a_number_is_seen(number: float, F: int) -> None:
    """Its bfloat16 parts are NaN in part, and a query that has it is not exact."""
    queries, keys = normal(1, 130, F).gt(0).float(), -normal(1, 140, F).abs()
    queries[:, 7, 3] = number
    lse, d_queries, d_keys, _ = _gradients(queries, keys)
    assert lse[:, 7].isnan().all()
    assert d_queries[:, 7].isnan().all()
    assert d_keys.isnan().all()
    rest = torch.arange(130, device="cuda") != 7
    assert lse[:, rest].isfinite().all()
    assert d_queries[:, rest].isfinite().all()


def test_tensor_cores_do_not_add_up_products() -> None:
    """They cut off: of many features with positive products, each would make the sum too small."""
    queries, keys = (normal(1, 300, 4096, seed=seed).abs() + 1 for seed in (0, 1))
    bias = torch.full((1, 300), -math.inf, device="cuda")
    bias[:, 5] = 0
    lse, *_ = operators.logsumexp(queries, keys, bias, "triton", False)
    exact = queries.double() @ keys[0, 5].double()
    # 256 times half of 2^-23 is 2^-16; added up by rounding, the errors are of either sign.
    assert ((lse - exact) / exact).mean().abs() <= 2**-23


@pytest.mark.parametrize("impossible", [-1e9, -1e30, -torch.finfo(torch.float32).max])
@pytest.mark.parametrize("F", [20, 70])
def test_numbers_of_very_different_size(F: int, impossible: float) -> None:
    """A logit may say that a feature cannot be there; its other features count as before."""
    x, z = normal(2, 70, F).gt(0).float(), normal(2, 80, F)
    x[..., 3] = 0
    z[:, ::2, 3] = impossible
    ours = _value_and_gradient(sw.set_cross_entropy, z, x, impl="triton")
    exact = _value_and_gradient(sw.set_cross_entropy, z.double(), x.double(), impl="reference")
    for got, right in zip(ours, exact, strict=True):
        torch.testing.assert_close(got.double(), right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("F", [64, 100, 256])
def test_confident_outputs(F: int) -> None:
    """Their scores are small differences of terms of several hundred."""
    x = normal(1, 600, F).gt(0).float()
    z = normal(1, 600, F, seed=1) + 10 * (2 * x - 1)
    z[..., 0] *= -1
    exact = _value_and_gradient(_dense, z.double(), x.double())
    usual = _value_and_gradient(_dense, z, x)
    ours = _value_and_gradient(sw.set_cross_entropy, z, x, impl="triton")
    for got, plain, right in zip(ours, usual, exact, strict=True):
        largest = right.abs().max()
        error, allowed = ((t.double() - right).abs().max() / largest for t in (got, plain))
        assert error <= allowed + 1e-5


def _filled(queries: Tensor, value: int) -> Tensor:
    return torch.full(queries.shape[:2], value, device="cuda", dtype=torch.int8)


def _gradients(queries: Tensor, keys: Tensor) -> list[Tensor]:
    bias = keys.new_zeros(keys.shape[:2])
    lse, terms, peaks = operators.logsumexp(queries, keys, bias, "triton", False)
    grads = operators.logsumexp_backward(
        torch.ones_like(lse), queries, keys, bias, terms, peaks, True, True, "triton"
    )
    return [lse, *grads]


def _dense(z: Tensor, x: Tensor) -> Tensor:
    scores = torch.einsum("bmf,bnf->bmn", x, z) - F_.softplus(z).sum(-1).unsqueeze(1)
    return -scores.logsumexp(-1).sum(-1).mean()


def _value_and_gradient(loss: Any, z: Tensor, *rest: Any, **options: Any) -> tuple[Tensor, Tensor]:
    leaf = z.clone().requires_grad_()
    value = loss(leaf, *rest, **options)
    return value.detach(), torch.autograd.grad(value, leaf)[0]
