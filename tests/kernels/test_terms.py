"""What the loops of a step hand on, in Triton's interpreter: the logsumexp, in bits or not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from splits import set_sm_count, watch_splits

pytest.importorskip("triton")

from setwise.kernels import matmul_precision
from setwise.kernels.triton import engine, plans, weights

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="there the kernels are compiled"),
    pytest.mark.filterwarnings("ignore:(divide by zero|invalid value) encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
]


slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.fixture(params=["highest", "medium"])
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(request.param)
    yield request.param
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("sm_count", "N"), [(1, 300), slow(50, 600)])
@pytest.mark.parametrize("F", [3, 16, slow(300)])
def test_targets_without_any_output_weigh_nothing(
    F: int, sm_count: int, N: int, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their logsumexp, -inf, is kept as +inf; a loop that is split and one that is not do so."""
    set_sm_count(monkeypatch, sm_count)
    splits = watch_splits(monkeypatch)
    generator = torch.Generator().manual_seed(F)
    logits = torch.randn(2, N, F, generator=generator)
    target = torch.rand(2, 8, F, generator=generator)
    valid = torch.tensor([[False], [True]]).repeat(1, N)
    precision = matmul_precision.dot_precision(torch.float32)
    forward = engine.bernoulli_forward(target, logits, valid, None, -1.0, False, True, precision)
    assert (splits[0] > 1) == (N == 600)
    sums, bias, lse, _, operands = forward
    base_2 = engine.bernoulli_base_2(precision, F)
    assert sums.sum(dim=1)[0] == math.inf
    assert lse[0].eq(math.inf).all()
    assert lse[1].isfinite().all()
    to_logits, _ = engine.gradients(
        logits, target, bias, lse, (None, 0, -1.0), rows_are_keys=True, sigmoid=True,
        precision=precision, base_2=base_2, operands=operands,
    )  # fmt: skip
    swapped = operands.swapped() if operands is not None and F > 4 else None
    to_target, _ = engine.gradients(
        target, logits, lse, bias, (None, 0, -1.0), rows_are_keys=False,
        precision=precision, base_2=base_2, operands=swapped,
    )  # fmt: skip
    for gradient in (to_logits, to_target):
        assert gradient[0].eq(0).all()
        assert gradient[1].isfinite().all()
        assert gradient[1].ne(0).any()


@pytest.mark.parametrize("F", [64, slow(256), slow(300)])
@pytest.mark.parametrize("best", [slow(-20_000.0), -60_000.0])
def test_the_only_output_that_matters_has_a_weight_of_one(best: float, F: int, level: str) -> None:
    """However unlikely it is, beyond 2^24 bits too: scores are rounded alike in both passes."""
    logits = torch.full((1, 70, F), -65_000.0)
    logits[0, 7] = best
    target = torch.ones(1, 80, F)
    leaves = [t.requires_grad_() for t in (logits, target)]
    loss = sw.set_cross_entropy(logits, target, impl="triton")
    to_logits, to_target = torch.autograd.grad(loss, leaves)
    expected = torch.zeros(1, 70, F)
    expected[0, 7] = -80.0
    torch.testing.assert_close(to_logits, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(to_target, torch.full((1, 80, F), -best), rtol=1e-6, atol=0)
    assert loss.item() == pytest.approx(-80 * F * best, rel=1e-6)


@pytest.mark.parametrize(("sm_count", "N"), [(1, 256), slow(1, 255), slow(50, 512), slow(50, 600)])
@pytest.mark.parametrize("F", [slow(3), 100])
def test_full_tiles_have_no_masks(
    F: int, sm_count: int, N: int, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one loop and split."""
    set_sm_count(monkeypatch, sm_count)
    splits = watch_splits(monkeypatch)
    generator = torch.Generator().manual_seed(F)
    target, logits = (torch.rand(1, n, F, generator=generator) for n in (128, N))

    def step(impl: str, kind: torch.dtype) -> list[Tensor]:
        z, x = (t.to(kind).requires_grad_() for t in (logits, target))
        loss = sw.set_cross_entropy(z, x, impl=impl)  # type: ignore[arg-type]
        return [loss.detach(), *torch.autograd.grad(loss, (z, x))]

    tolerance = 1e-5 if level == "highest" else 2e-3
    pairs = zip(step("triton", torch.float32), step("reference", torch.float64), strict=True)
    for ours, exact in pairs:
        error = (ours.double() - exact).abs().max() / exact.abs().max()
        assert error < tolerance
    assert (splits[0] > 1) == (sm_count == 50)


# Of 6 parts each; and how many the kernel may add up. Of more than 256 features it never does.
SUMS = [("mean", 5), ("mean", 6), ("sum", 6), ("none", 6)]
TOTALS = [((1, 96, 3), *how) for how in SUMS] + [((3, 65, 8), "mean", 6)]
TOTALS += [slow((3, 65, 8), *how) for how in SUMS if how != ("mean", 6)]
TOTALS += [slow((3, 65, 300), "mean", 6)]


@pytest.mark.parametrize(("shape", "reduction", "most"), TOTALS, ids=str)
def test_the_loss_is_the_sum_of_all_its_parts(
    shape: tuple[int, int, int],
    reduction: Any,
    most: int,
    level: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel of the gradient adds them up, a few at a time, or else PyTorch does."""
    monkeypatch.setattr(weights, "PARTS_AT_ONCE", type(weights.PARTS_AT_ONCE)(4))
    monkeypatch.setattr(engine, "MAX_PARTS", most)
    totals, plan = [], plans.gradients
    monkeypatch.setattr(plans, "gradients", lambda *args: totals.append(args[14]) or plan(*args))
    (B, _, F), generator = shape, torch.Generator().manual_seed(0)
    x, z = torch.rand(shape, generator=generator), torch.randn(B, 2, F, generator=generator)
    exact = sw.set_cross_entropy(z.double(), x.double(), reduction=reduction)
    for needs in (True, False):
        leaf = z.clone().requires_grad_(needs)
        loss = sw.set_cross_entropy(leaf, x, reduction=reduction, impl="triton")
        allowed = 1e-6 if level == "highest" else 1e-4
        torch.testing.assert_close(loss.detach().double(), exact, rtol=allowed, atol=0.0)
    assert totals == [reduction != "none" and most >= 6 and F <= 256]
