"""Points far from the origin, with every engine; kernels run in Triton's interpreter."""

from __future__ import annotations

from functools import partial
from importlib import import_module

import pytest
import torch

import setwise as sw
from far_points import ASSIGNMENT, FAR, FEATURES, PAIRWISE, judge
from splits import set_sm_count, watch_splits

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="there the kernels are compiled"),
    pytest.mark.filterwarnings("ignore:(divide by zero|invalid value) encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
]

slow = partial(pytest.param, marks=pytest.mark.slow)
# In the interpreter, a second each; one of a kind tells in the first tier.
FIRST = {("points", "set"), ("mixed", "set, cold"), ("points and bits", "average")}
CASES = [(kind, loss, "reference") for kind in FEATURES for loss in PAIRWISE]
CASES += [(kind, loss, "chunked") for kind in FEATURES for loss in PAIRWISE]
CASES += [
    ((kind, loss, "triton") if (kind, loss) in FIRST else slow(kind, loss, "triton"))
    for kind in FEATURES
    for loss in PAIRWISE
]


@pytest.mark.parametrize("far", FAR)
@pytest.mark.parametrize(("kind", "loss", "impl"), CASES)
def test_as_near_the_origin(kind: str, loss: str, impl: str, far: float) -> None:
    if impl == "triton":
        pytest.importorskip("triton")
        judge(FEATURES[kind], PAIRWISE[loss], far, impl=impl, of_targets=False)
    judge(FEATURES[kind], PAIRWISE[loss], far, impl=impl)


@pytest.mark.parametrize("far", FAR)
@pytest.mark.parametrize("kind", FEATURES)
def test_matched(kind: str, far: float) -> None:
    judge(FEATURES[kind], ASSIGNMENT, far)


@pytest.mark.parametrize("level", ["high", "medium"])
def test_whatever_is_allowed_of_matrix_products(level: str) -> None:
    """Differences are no products: tf32 and bfloat16 have no part in them."""
    pytest.importorskip("triton")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(level)
    try:
        for impl in ("reference", "chunked", "triton"):
            judge(FEATURES["points"], PAIRWISE["set"], 1e4, impl=impl)
            judge(FEATURES["mixed"], PAIRWISE["average"], 1e4, impl=impl)
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("loss", ["set_average", "hausdorff", "set_cross_entropy"])
@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_two_clusters_a_thousand_apart(loss: str, impl: str) -> None:
    """Of metres or pixels, in float32 as in float64."""
    features = sw.Features(sw.Gaussian(3, scale=0.1))
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(1, 256, 3, generator=generator)
    x[:, 128:] += 1000
    y = x + 0.05 * torch.randn(x.shape, generator=generator)
    single, exact = (
        getattr(sw, loss)(y.to(kind), x.to(kind), features, impl=impl).item()
        for kind in (torch.float32, torch.float64)
    )
    assert single == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("impl", ["reference", "chunked"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_much_further_away_than_a_scale(dtype: torch.dtype, impl: str) -> None:
    """A million scales from the origin, one coordinate of some: beyond products of float64."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(1, 64, 3, generator=generator)
    x[:, ::2, 0] += 1e4
    x[:, 1::4] -= 5e3
    y = x + 0.003 * torch.randn(x.shape, generator=generator)
    found = sw.set_cross_entropy(
        y.to(dtype), x.to(dtype), sw.Features(sw.Gaussian(3, scale=0.01)), impl=impl
    )
    apart = (x.double().unsqueeze(2) - y.double().unsqueeze(1)) / 0.01
    exact = -torch.logsumexp(-apart.square().sum(-1) / 2, -1).sum()
    assert found.item() == pytest.approx(exact.item(), rel=1e-6)


@pytest.mark.parametrize("impl", ["reference", "chunked", slow("triton")])
def test_sharp_angles(impl: str) -> None:
    """A chord is as short as two directions are close: nothing of the order of 1 cancels."""
    features = sw.Features(sw.Angle(2, concentration=1e6))
    generator = torch.Generator().manual_seed(0)
    x = features.random_targets((2, 30), generator)
    y = x + 1e-3 * torch.randn(x.shape, generator=generator)
    single = sw.set_cross_entropy(y, x, features, impl=impl)
    half = (x.double().unsqueeze(2) - y.double().unsqueeze(1)) / 2
    costs = 2e6 * half.sin().square().sum(-1)
    exact = -torch.logsumexp(-costs, -1).sum(-1).mean()
    assert single.item() == pytest.approx(exact.item(), rel=1e-3)


@pytest.mark.parametrize("impl", ["reference", "chunked", "triton"])
@pytest.mark.parametrize("F", [2, 5, 32])
@pytest.mark.parametrize("temperature", [1e-6, 1e-3, 1.0, 1e6])
def test_weights_of_a_target_add_up_to_one(F: int, temperature: float, impl: str) -> None:
    """Also where the logarithm of their number is less than the rounding of a score."""
    if impl == "triton":
        pytest.importorskip("triton")
    for features in (sw.Features(sw.Bernoulli(F)), sw.Features(sw.Gaussian(F))):
        z = torch.zeros(1, 4, F, requires_grad=True)
        with_gradient = {"temperature": temperature, "impl": impl}
        loss = sw.set_cross_entropy(z, torch.ones(1, 1, F), features, **with_gradient)
        (gradient,) = torch.autograd.grad(loss, z)
        of_one = -0.5 if features.plain_bernoulli else -1.0
        torch.testing.assert_close(
            gradient, torch.full_like(gradient, of_one / 4), rtol=1e-5, atol=0
        )


@pytest.mark.parametrize("impl", ["reference", "chunked"])
@pytest.mark.parametrize("F", [5, 200])
def test_they_do_so_where_outputs_are_sure_and_wrong(F: int, impl: str) -> None:
    """Sums of these logits are exact: whoever multiplies, equal outputs have equal scores."""
    z = torch.full((1, 3, F), -9876.5, requires_grad=True)
    loss = sw.set_cross_entropy(z, torch.ones(1, 1, F), impl=impl)
    (gradient,) = torch.autograd.grad(loss, z)
    torch.testing.assert_close(gradient, torch.full_like(gradient, -1 / 3), rtol=1e-6, atol=0)


@pytest.mark.parametrize("F", [3, slow(6)])
def test_they_do_so_where_loops_are_split(F: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    set_sm_count(monkeypatch, 50)
    splits = watch_splits(monkeypatch)
    z = torch.zeros(1, 700, F, requires_grad=True)
    z.data[:, 350:] = -1.0
    loss = sw.set_cross_entropy(z, torch.ones(1, 2, F), temperature=1e-6, impl="triton")
    (gradient,) = torch.autograd.grad(loss, z)
    assert splits[0] > 1
    expected = torch.zeros_like(gradient)
    expected[:, :350] = -1 / 350
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("impl", ["reference", "chunked", "triton"])
def test_a_learned_temperature(impl: str) -> None:
    """Its gradient comes through every difference."""
    if impl == "triton":
        pytest.importorskip("triton")
    features = sw.Features(sw.Gaussian(2), sw.Bernoulli(1))
    generator = torch.Generator().manual_seed(0)
    x, z = features.random_targets((2, 5), generator), torch.randn(2, 4, 3, generator=generator)
    temperature = torch.tensor(0.7, requires_grad=True)
    loss = sw.set_cross_entropy(z, x, features, temperature=temperature, impl=impl)
    (slope,) = torch.autograd.grad(loss, temperature)
    step = 1e-5
    above, below = (
        sw.set_cross_entropy(z.double(), x.double(), features, temperature=0.7 + h)
        for h in (step, -step)
    )
    assert slope.item() == pytest.approx(((above - below) / 2 / step).item(), rel=1e-4)


def test_a_score_of_many_features_is_rounded_as_a_dense_sum() -> None:
    """Of one key, the logsumexp is its score; one by one, a thousand shares would lose more."""
    pytest.importorskip("triton")
    compared = import_module("setwise.kernels.triton.compared")
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(1, n, 1000, generator=generator) for n in (16, 1))
    found, _ = compared.logsumexp(x, y, torch.zeros(1, 1), torch.full((1, 1000), 0.7))
    dense = -(torch.tensor(0.7) * (x - y).square()).sum(-1)
    exact = -(torch.tensor(0.7).double() * (x.double() - y.double()).square()).sum(-1)
    error, allowed = ((t.double() - exact).abs().max() for t in (found, dense))
    assert error <= allowed + 2**-23 * exact.abs().max()
