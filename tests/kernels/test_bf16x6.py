"""Products in full float32 precision, in Triton's interpreter; tests/gpu has them compiled."""

from __future__ import annotations

import math
import runpy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tools import kernel_studies
from torch import Tensor

import setwise as sw
from setwise.kernels import dispatch, operators
from splits import set_sm_count

pytest.importorskip("triton")

import triton
import triton.language as tl

from setwise.kernels import bernoulli, matmul_precision
from setwise.kernels.triton import engine, operands, tiles
from setwise.kernels.triton.bf16x6 import padded_features, split_bf16x3
from setwise.kernels.triton.operands import bf16x3_parts

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="there the kernels are compiled"),
    # NumPy would have warned of infinities, which are meant.
    pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning"),
]
slow = partial(pytest.param, marks=pytest.mark.slow)
LARGEST = torch.finfo(torch.float32).max
BFLOAT16 = 2e-2  # of the largest number, where what is multiplied is rounded to that


def numbers(*shape: int) -> Tensor:
    """Of nearly all sizes; below 2^-110, the last bits of a low part would be lost."""
    generator = torch.Generator().manual_seed(sum(shape))
    sizes = torch.randint(-110, 127, shape, generator=generator)
    signs = torch.randint(0, 2, shape, generator=generator) * 2 - 1
    return signs * (1 + torch.rand(shape, generator=generator)) * torch.exp2(sizes.float())


@pytest.mark.parametrize("F", [5, 16, 70, slow(1030)])
def test_parts_add_up(F: int) -> None:
    x, y = numbers(2, 3, F), numbers(2, 40, F)
    x[0, 0, :5] = torch.tensor([0.0, LARGEST, -LARGEST, 1.0, -1.0])
    for whole, parts in zip((x, y), bf16x3_parts(x, y)[:2], strict=True):
        assert parts.shape == (3, *whole.shape[:2], padded_features(F))
        assert parts[..., F:].eq(0).all()
        parts = parts[..., :F].double()
        # Each has the 8 significant bits of bfloat16, and they follow one another.
        assert torch.equal(parts, parts.bfloat16().double())
        high, middle, low = parts
        # The largest number is cut off, not rounded.
        assert (
            middle.abs() <= torch.where(whole.abs() == LARGEST, 2**-7, 2**-8) * high.abs()
        ).all()
        assert (low.abs() <= 2**-8 * middle.abs()).all()
        assert torch.equal(parts.sum(0), whole.double())


def test_what_is_not_a_number_stays_so() -> None:
    x = torch.zeros(1, 1, 16)
    # Of the two, the second is what a GPU gives; all its bits but the sign are set.
    x.view(torch.int32)[0, 0, :2] = torch.tensor([0x7FC00000, 0x7FFFFFFF], dtype=torch.int32)
    x[0, 0, 2] = math.inf
    high, _, _ = bf16x3_parts(x, x)[0]
    assert high[0, 0, :2].isnan().all()
    assert high[0, 0, 2] == math.inf


@triton.jit
def split_weights(P, PARTS, N: tl.constexpr):
    i = tl.arange(0, N)
    high, middle, low = split_bf16x3(tl.load(P + i), True)
    tl.store(PARTS + i, high)
    tl.store(PARTS + N + i, middle)
    tl.store(PARTS + 2 * N + i, low)


def test_parts_of_weights() -> None:
    """Those are split with less care. What is not a number shows in its low part."""
    p = torch.rand(128, generator=torch.Generator().manual_seed(0))
    p *= torch.exp2(torch.arange(128) - 100.0)
    p[::2] *= -1
    p[-2:] = torch.tensor([1.0, -1.0]) * (2.0**128 - 2.0**119 - 2.0**104)
    p[:4] = torch.tensor([0.0, 1.0, math.inf, -math.inf])
    p.view(torch.int32)[4:7] = torch.tensor([0x7FC00000, 0x7FFFFFFF, -1], dtype=torch.int32)
    parts = torch.empty(3, 128)
    split_weights[(1,)](p, parts, 128)
    assert parts[2, 2:7].isnan().all()
    p[2:7] = parts[:, 2:7] = 0
    assert torch.equal(parts, parts.bfloat16().float())
    assert torch.equal(parts.double().sum(0), p.double())


@pytest.mark.parametrize(
    "shape", [slow((1, 70, 70, 20)), (1, 66, 140, 70), slow((1, 20, 66, 300))], ids=str
)
def test_every_product_counts(shape: tuple[int, int, int, int]) -> None:
    """Scores round as float32 does: one of the six products less, and they would not.

    The smallest of them is 2^-16 of the largest. With one admissible key, the logsumexp of a query
    is its score, and the gradients are what they are multiplied with.
    """
    B, M, N, F = shape
    generator = torch.Generator().manual_seed(F)
    queries, keys = (torch.randn(B, n, F, generator=generator) for n in (M, N))
    bias = torch.full((B, N), -math.inf)
    bias[:, N // 2] = 0
    lse, terms, peaks = operators.logsumexp(queries, keys, bias, "triton", False)
    key = keys[:, N // 2].double().unsqueeze(1)
    exact = (queries.double() * key).sum(-1)
    sizes = (queries.double() * key).abs().sum(-1)
    assert ((lse - exact).abs() <= 2**-22 * sizes).all()

    grad = torch.randn(B, M, generator=generator)
    d_queries, d_keys, d_bias = operators.logsumexp_backward(
        grad, queries, keys, bias, terms, peaks, True, True, "triton"
    )
    weighted = queries.double() * grad.double().unsqueeze(-1)
    error = (d_keys[:, N // 2] - weighted.sum(1)).abs()
    assert (error <= 2**-20 * weighted.abs().sum(1)).all()
    expected = key * grad.double().unsqueeze(-1)
    assert ((d_queries - expected).abs() <= 2**-22 * expected.abs()).all()
    assert (d_bias[:, N // 2] - grad.double().sum(1)).abs() <= 2**-20 * grad.abs().sum()


def test_which_queries_are_exact_in_bfloat16() -> None:
    """Those of 8 significant bits at most, as the targets of a Bernoulli mostly are."""
    numbers = torch.tensor([0.0, 1.0, -0.5, 255.0, 257.0, 0.1, math.nan, math.inf, 0.0, 0.0])
    # What a GPU gives where there is no number, and the same with a sign.
    numbers.view(torch.int32)[-2:] = torch.tensor([0x7FFFFFFF, -1], dtype=torch.int32)
    x = torch.zeros(2, 5, 20)
    x[..., -1] = numbers.reshape(2, 5)
    _, _, not_bf16 = bf16x3_parts(x, x)
    assert not_bf16.flatten().tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]


# Features that a tile holds, that take several, whose gradient comes in halves or by panels.
WIDTHS = [20, slow(70), slow(200), slow(300)]


def gradients_of(queries: Tensor, keys: Tensor) -> list[Tensor]:
    """The logsumexp, and its gradients to both sides."""
    bias = keys.new_zeros(keys.shape[:2])
    lse, terms, peaks = operators.logsumexp(queries, keys, bias, "triton", False)
    grad = torch.linspace(1, 2, lse.numel()).reshape(lse.shape)
    grads = operators.logsumexp_backward(
        grad, queries, keys, bias, terms, peaks, True, True, "triton"
    )
    return [lse, *grads]


@pytest.mark.parametrize("F", WIDTHS)
def test_exact_queries_take_fewer_products(F: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left out is zero: the bits are those of all six products.

    Queries that are only said to be exact count as if they had been rounded, so it is left out.
    """
    generator = torch.Generator().manual_seed(F)
    queries = torch.rand(1, 70, F, generator=generator)
    keys = torch.randn(1, 66, F, generator=generator)
    rounded = bf16x3_parts(queries, keys)[0][0, ..., :F].float().contiguous()
    exact, usual = gradients_of(rounded, keys), gradients_of(queries, keys)

    def told(length: int) -> Callable[..., Any]:
        return lambda q, k: (*bf16x3_parts(q, k)[:2], torch.full(q.shape[:2], length).char())

    monkeypatch.setattr(operands, "bf16x3_parts", told(1))
    for result, expected in (
        (gradients_of(rounded, keys), exact),
        (gradients_of(queries, keys), usual),
    ):
        assert all(torch.equal(got, right) for got, right in zip(result, expected, strict=True))
    monkeypatch.setattr(operands, "bf16x3_parts", told(0))
    for got, right, other in zip(gradients_of(queries, keys), exact, usual, strict=True):
        assert torch.equal(got, right)
        assert not torch.equal(got, other)


@pytest.mark.parametrize("sm_count", [slow(1), 8], ids=["whole", "split"])
@pytest.mark.parametrize("F", WIDTHS)
def test_inexact_queries_among_exact_ones(
    F: int, sm_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is multiplied in full, wherever it stands; every result is written, by one launch."""
    set_sm_count(monkeypatch, sm_count)
    empty = torch.empty

    def filled(*shape: Any, **options: Any) -> Tensor:
        memory = empty(*shape, **options)
        return memory.fill_(math.nan) if memory.is_floating_point() else memory

    monkeypatch.setattr(torch, "empty", filled)
    generator = torch.Generator().manual_seed(F)
    # A set of both kinds, one that is inexact as a whole, and one that is exact in bfloat16.
    queries = torch.rand(3, 140, F, generator=generator)
    is_bf16 = torch.ones(3, 140, dtype=torch.bool)
    is_bf16[0, 70] = is_bf16[1] = False
    queries = torch.where(is_bf16.unsqueeze(-1), queries.round(), queries)
    keys = torch.randn(3, 66, F, generator=generator)
    ours = gradients_of(queries, keys)

    scores = queries.double() @ keys.double().mT
    weights = torch.softmax(scores, -1)
    grad = torch.linspace(1, 2, 420, dtype=torch.double).reshape(3, 140)
    exact = [
        torch.logsumexp(scores, -1),
        torch.einsum("bij,bi,bjf->bif", weights, grad, keys.double()),
        torch.einsum("bij,bi,bif->bjf", weights, grad, queries.double()),
        torch.einsum("bij,bi->bj", weights, grad),
    ]
    # Scores of some 50 round by 2e-6, which a weighted mean of few keys, to a query, shows most. A
    # part left out would be 1e-3.
    for got, right, limit in zip(ours, exact, (1e-6, 5e-6, 2e-6, 2e-6), strict=True):
        assert (got - right).abs().max() <= limit * right.abs().max()


@pytest.mark.parametrize("impossible", [slow(-1e9), slow(-1e30), -LARGEST])
@pytest.mark.parametrize("shape", [(1, 70, 80, 20), (1, 66, 80, 70)], ids=str)
def test_numbers_of_very_different_size(
    shape: tuple[int, int, int, int], impossible: float
) -> None:
    """A logit may say that a feature cannot be there; its other features count as before."""
    B, M, N, F = shape
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(B, M, F, generator=generator).round()
    z = torch.randn(B, N, F, generator=generator)
    x[..., 3] = 0
    z[:, ::2, 3] = impossible

    def gradients(impl: Any, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        leaf = z.clone().requires_grad_()
        value = sw.set_cross_entropy(leaf, x, impl=impl)
        return value.detach(), torch.autograd.grad(value, leaf)[0]

    ours = gradients("triton", z, x)
    exact = gradients("reference", z.double(), x.double())
    for got, right in zip(ours, exact, strict=True):
        torch.testing.assert_close(got.double(), right, rtol=1e-5, atol=1e-6)


def test_what_is_left_out_is_smaller_than_rounding() -> None:
    """Just below 1 + 2^-7 a middle part would be largest, were the high one cut off."""
    near = 1 + 2**-7 - torch.rand(64, 64, generator=torch.Generator().manual_seed(0)) * 2**-12
    high, middle, low = bf16x3_parts(near[None], near[None])[0].double()
    omitted = 2 * middle * low + low * low
    assert (omitted.abs() <= 2**-24 * (high + middle + low) ** 2).all()


@pytest.mark.parametrize("seed", [0, slow(1), slow(2)])
def test_the_bias_of_many_features_rounds_to_both_sides(seed: int) -> None:
    """Confident outputs: added up in float32, the terms of a softplus would mostly round down."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 2, (1, 70, 1000), generator=generator).float()
    z = torch.randn(1, 70, 1000, generator=generator) + 10 * (2 * x - 1)
    bias, _, _ = engine._prepared(x, z, None, "float32", False)
    exact = -torch.nn.functional.softplus(z.double()).sum(-1)
    assert (bias - exact).mean().abs() <= 3e-6


def test_positions_that_32_bits_cannot_count() -> None:
    """The dispatcher, which may not import Triton, counts padded features as they are made."""
    queries = torch.empty(1, 3, 5, device="meta")
    most = 2**31 // padded_features(5)
    for elements, fits in ((most - 1, True), (most, False)):
        keys = torch.empty(1, elements, 5, device="meta")
        assert dispatch._fits_triton(queries, keys) == fits
        assert dispatch._fits_triton(keys, queries) == fits


@pytest.mark.parametrize("light", [2**33, 0], ids=["in the forward pass", "in the backward pass"])
@pytest.mark.parametrize("F", [20, slow(70)])
def test_the_precision_is_read_once(F: int, light: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirds and plain numbers must not meet, nor scores of one precision the lse of another."""
    monkeypatch.setattr(bernoulli, "LIGHT_PRODUCTS", light)
    levels = iter(["float32", "tf32", "tf32", "tf32"])
    monkeypatch.setattr(matmul_precision, "dot_precision", lambda dtype: next(levels))
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(1, 70, F, generator=generator).requires_grad_()
    x = torch.rand(1, 70, F, generator=generator)
    (grad,) = torch.autograd.grad(sw.set_cross_entropy(z, x, impl="triton"), z)
    (usual,) = torch.autograd.grad(sw.set_cross_entropy(z, x, impl="reference"), z)
    torch.testing.assert_close(grad, usual, rtol=1e-4, atol=1e-4)
    assert next(levels) == "tf32"
    assert len(list(levels)) == 2


@pytest.mark.parametrize("smem", [99 * 1024, 163 * 1024, 227 * 1024])
@pytest.mark.parametrize("F", [5, 16, 33, 64, 65, 100, 256])
def test_tiles_of_bf16x6_on_smaller_devices(F: int, smem: int) -> None:
    """Those of an RTX 4090, an A100 and an H200; and every pass sums up as many at once."""
    sizes = [1, 20, 300, 1024, 10**5]
    for M in sizes:
        for N in sizes:
            forward = tiles.forward_tiles(M, N, F, torch.float32, "float32", smem)
            backward = tiles.backward_tiles(M, N, F, torch.float32, "float32", smem)
            assert tiles.bf16x6_smem_bytes(forward, F) <= smem
            assert tiles.bf16x6_smem_bytes(backward, F) <= smem
            assert forward.f == backward.f == tiles.features_per_dot(F)


def test_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """benchmarks/precision.py without its clock, and without a compiler; the documents read it."""
    script = Path(__file__).parents[2] / "benchmarks" / "precision.py"
    records = runpy.run_path(str(script))["records"]
    for name, instead in {
        "graph_ms": lambda call, device: 2.0,
        "peak_mb": lambda call, device: 1.0,
    }.items():
        monkeypatch.setitem(records.__globals__, name, instead)
    monkeypatch.setattr(torch, "compile", lambda loss, dynamic: loss)
    before = torch.get_float32_matmul_precision()
    *_, record = records([(1, 9, 6), (1, 70, 20)], "cpu", "c0ffee")
    assert torch.get_float32_matmul_precision() == before
    assert len(record["rows"]) == 2
    for row in record["rows"]:
        for setting, ran in row["ran"].items():
            for name, result in ran.items():
                # Processors that multiply in bfloat16 do so then, if PyTorch is asked.
                usual = BFLOAT16 if setting == "medium" else 1e-5
                limit = 3e-3 if (setting, name) == ("medium", "setwise") else usual
                for errors in result["errors"].values():
                    assert all(0 <= error <= limit for error in errors.values())
    text = kernel_studies.precision(record)
    assert "commit c0ffee" in text
    assert text.count("| (1, 70, 20) | 2.00 / 2.00: 1.0x | 2.00 / 2.00: 1.0x |") == 1
    assert text.count("confident") == 4
    assert "faster nowhere" in text
    record["rows"][0]["ran"]["medium"]["compiled"]["ms"]["random"] = 1.0
    assert 'faster at "medium", (1, 9, 6).' in kernel_studies.precision(record)
