"""What the walks of a step hand on, in Triton's interpreter: the logsumexp, in bits or not."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import setwise as sw
from walks import set_processors

pytest.importorskip("triton")

from setwise.kernels.triton import engine

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="there the kernels are compiled"),
    pytest.mark.filterwarnings("ignore:(divide by zero|invalid value) encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
]


@pytest.fixture(params=["highest", "medium"])
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(request.param)
    yield request.param
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("processors", [1, 50])
@pytest.mark.parametrize("F", [3, 16, 300])
def test_targets_without_any_output_weigh_nothing(
    F: int, processors: int, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their logsumexp, -inf, is kept as +inf; a walk in one piece and in several does so."""
    set_processors(monkeypatch, processors)
    generator = torch.Generator().manual_seed(F)
    logits = torch.randn(2, 520, F, generator=generator)
    target = torch.rand(2, 8, F, generator=generator)
    valid = torch.tensor([[False], [True]]).repeat(1, 520)
    forward = engine.bernoulli_forward(target, logits, valid, None, -1.0, False, True)
    sums, bias, lse, _, precision, base_2, forms = forward
    assert sums.sum(dim=1)[0] == math.inf
    assert lse[0].eq(math.inf).all()
    assert lse[1].isfinite().all()
    to_logits, _ = engine.gradients(
        logits, target, bias, lse, (None, 0, -1.0), owns_keys=True, sigmoid=True,
        level=precision, base_2=base_2, forms=forms,
    )  # fmt: skip
    swapped = forms.swapped() if forms is not None and F > 4 else None
    to_target, _ = engine.gradients(
        target, logits, lse, bias, (None, 0, -1.0), owns_keys=False,
        level=precision, base_2=base_2, forms=swapped,
    )  # fmt: skip
    for gradient in (to_logits, to_target):
        assert gradient[0].eq(0).all()
        assert gradient[1].isfinite().all()
        assert gradient[1].ne(0).any()


def test_the_only_output_that_matters_has_a_weight_of_one(level: str) -> None:
    """However unlikely it is: scores are rounded alike in both passes."""
    logits = torch.full((1, 70, 256), -60_000.0)
    logits[0, 7] = -20_003.0
    logits.requires_grad_()
    loss = sw.set_cross_entropy(logits, torch.ones(1, 80, 256), impl="triton")
    (gradient,) = torch.autograd.grad(loss, logits)
    expected = torch.zeros(1, 70, 256)
    expected[0, 7] = -80.0
    torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=0)
    given = 20_003.0 if level == "highest" else 20_000.0  # the next number of float16
    assert loss.item() == pytest.approx(80 * 256 * given, rel=1e-6)


@pytest.mark.parametrize("processors", [1, 50])
@pytest.mark.parametrize("F", [3, 16, 100])
@pytest.mark.parametrize("sizes", [(64, 512), (63, 511)], ids=str)
def test_full_tiles_have_no_masks(
    sizes: tuple[int, int], F: int, processors: int, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one piece and in several."""
    set_processors(monkeypatch, processors)
    generator = torch.Generator().manual_seed(F)
    target, logits = (torch.rand(1, n, F, generator=generator) for n in sizes)

    def step(impl: str, kind: torch.dtype) -> list[Tensor]:
        z, x = (t.to(kind).requires_grad_() for t in (logits, target))
        loss = sw.set_cross_entropy(z, x, impl=impl)  # type: ignore[arg-type]
        return [loss.detach(), *torch.autograd.grad(loss, (z, x))]

    tolerance = 1e-5 if level == "highest" else 2e-3
    pairs = zip(step("triton", torch.float32), step("reference", torch.float64), strict=True)
    for ours, exact in pairs:
        error = (ours.double() - exact).abs().max() / exact.abs().max()
        assert error < tolerance
