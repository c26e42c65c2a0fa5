"""Points by k-d trees: the same losses as from all pairs, from few of them."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from scipy.spatial import cKDTree
from torch import Tensor
from torch.autograd import forward_ad
from torch.testing import assert_close

import setwise as sw
from point_clouds import clouds, operands
from setwise.kernels import trees

pytestmark = pytest.mark.usefixtures("few_points_are_enough")

POINTS = sw.Features(sw.Gaussian(3, scale=0.01))


def densely(
    loss, y: Tensor, x: Tensor, features: sw.Features, temperature=1.0, directed=True
) -> Tensor:
    """Of one set, from the differences of all pairs."""
    (gaussian,) = features.blocks
    costs = (x[0].unsqueeze(1) - y[0]).square().sum(-1) / (2 * gaussian.scale**2)
    if loss is sw.set_cross_entropy:
        return -temperature * (-costs / temperature).logsumexp(-1).sum()
    if loss is sw.hausdorff:
        return costs.amin(-1).amax()
    there = costs.amin(-1).mean()
    return there if directed else there + costs.amin(0).mean()


@pytest.mark.parametrize("kind", ["uniform", "surface", "clusters", "line", "outlier"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("loss", "options"),
    [
        (sw.set_cross_entropy, {}),
        (sw.set_cross_entropy, {"temperature": 0.2}),
        (sw.set_average, {}),
        (sw.set_average, {"directed": False}),
        (sw.hausdorff, {}),
    ],
)
def test_same_as_all_pairs(
    loss, options, dtype: torch.dtype, kind: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "LARGEST_SHARE", 1.0)
    monkeypatch.setattr(trees, "FEW", 1.0)
    generator = torch.Generator().manual_seed(len(kind))
    y, x = clouds(kind, generator, 400, 380)
    y, x = y.to(dtype), x.to(dtype)
    found = []
    for compute, kind in ((loss, dtype), (partial(densely, loss), torch.float64)):
        leaves = y.to(kind, copy=True).requires_grad_(), x.to(kind, copy=True).requires_grad_()
        value = compute(*leaves, POINTS, **options)
        found.append([value.detach(), *torch.autograd.grad(value, leaves)])
    exact = dtype == torch.float64
    for ours, theirs in zip(*found, strict=True):
        scale = theirs.abs().max().item()
        assert_close(ours.double(), theirs, rtol=0, atol=scale * (1e-11 if exact else 1e-5))
    assert set(asked) == {"some" if loss is sw.set_cross_entropy else "nearest"}


def test_agrees_with_a_tree_of_ones_own() -> None:
    generator = torch.Generator().manual_seed(0)
    y, x = clouds("uniform", generator, 300, 200)
    distances, _ = cKDTree(y[0].numpy()).query(x[0].numpy())
    features = sw.Features(sw.Gaussian(3, scale=0.5))
    expected = (distances**2 / (2 * 0.5**2)).mean()
    assert sw.set_average(y, x, features).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("loss", [sw.set_cross_entropy, sw.set_average])
def test_masks(loss) -> None:
    """What is not valid is not there, however near it is."""
    generator = torch.Generator().manual_seed(1)
    y, x = clouds("surface", generator, 120, 110)
    y, x = y.expand(3, -1, -1).clone(), x.expand(3, -1, -1).clone()
    lengths = {
        "input_valid": torch.tensor([110, 60, 1]),
        "target_valid": torch.tensor([120, 0, 77]),
    }
    y[1, 60:] = x[1, :50]
    ours = loss(y, x, POINTS, reduction="none", **lengths)
    theirs = loss(y, x, POINTS, reduction="none", impl="chunked", **lengths)
    assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


def test_not_finite() -> None:
    """NaN is the nearest, as with all pairs."""
    x, y, bias, sharpness = operands(80, 1.0, features=3)
    y[0, 3, 1] = math.nan
    assert (trees.argmax(x, y, bias, sharpness) == 3).all()
    lse, terms, orders = trees.logsumexp(x, y, bias, sharpness)
    assert lse.isnan().all()
    d_queries, d_keys, _ = trees.logsumexp_backward(
        torch.ones_like(lse), x, y, bias, sharpness, terms, orders, True, False
    )
    assert d_queries.isnan().all()
    assert d_keys.shape == (1, 0, 3)


@pytest.mark.usefixtures("always_by_blocks")
@pytest.mark.parametrize("loss", ["masked", "with presence"])
def test_losses_by_blocks(loss: str, asked: list[str]) -> None:
    generator = torch.Generator().manual_seed(8)
    y, x = clouds("surface", generator, 120, 110)
    y, x = y.expand(3, -1, -1).clone().requires_grad_(), x.expand(3, -1, -1).clone()
    options: dict[str, Tensor] = {"input_valid": torch.tensor([110, 60, 30])}
    if loss == "with presence":
        options["presence"] = torch.randn(3, 110, generator=generator).double()
    found = []
    for impl in ("auto", "reference"):
        value = sw.set_cross_entropy(y, x, POINTS, reduction="none", impl=impl, **options)
        found.append((value.detach(), *torch.autograd.grad(value.sum(), y)))
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, rtol=1e-9, atol=1e-9 * theirs.abs().max().item())
    assert asked == ["some"] * 6


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own, of duals
@pytest.mark.parametrize("name", ["logits", "target", "temperature", "presence"])
def test_forward_derivatives_of_as_many_as_the_dense_engine_takes(name: str) -> None:
    generator = torch.Generator().manual_seed(9)
    y, x = clouds("surface", generator, 60, 60)
    given = {"logits": y, "target": x, "temperature": torch.tensor(0.8).double()}
    given["presence"] = torch.zeros(1, 60).double()
    direction = torch.randn(given[name].shape, generator=generator).double()

    def loss(changed: Tensor, impl: str = "auto") -> Tensor:
        z, target, t, exists = (given | {name: changed}).values()
        options = {"temperature": t, "presence": exists, "impl": impl}
        return sw.set_cross_entropy(z, target, POINTS, **options)

    with forward_ad.dual_level():
        slope = forward_ad.unpack_dual(loss(forward_ad.make_dual(given[name], direction))).tangent
    leaf = given[name].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf, "chunked"), leaf)
    assert slope is not None
    assert_close(slope, (gradient * direction).sum(), rtol=1e-8, atol=1e-8)


def test_a_temperature_that_is_learned(asked: list[str]) -> None:
    generator = torch.Generator().manual_seed(7)
    y, x = clouds("surface", generator, 150, 140)
    found = []
    for impl in ("auto", "chunked"):
        t = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
        loss = sw.set_cross_entropy(y, x, POINTS, temperature=t, impl=impl)
        found.append(torch.autograd.grad(loss, t)[0])
    assert_close(*found, rtol=1e-10, atol=0)
    assert set(asked) == {"some"}


@pytest.mark.parametrize("learned", [False, True], ids=["outputs", "temperature"])
@pytest.mark.parametrize(("few", "told"), [(trees.FEW, set()), (1.0, {"all"})])
def test_all_equally_far(
    few: float,
    told: set[str],
    learned: bool,
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No pair is negligible: all are computed, and nothing is sorted unless a sample misleads."""
    monkeypatch.setattr(trees, "FEW", few)
    generator = torch.Generator().manual_seed(4)
    x = torch.nn.functional.normalize(torch.randn(1, 200, 3, generator=generator), dim=-1)
    y = 1e-3 * torch.randn(1, 200, 3, generator=generator)
    features = sw.Features(sw.Gaussian(3, scale=1.0))
    found = []
    for impl in ("auto", "chunked"):
        leaf, t = y.clone().requires_grad_(), torch.tensor(0.8, requires_grad=learned)
        loss = sw.set_cross_entropy(leaf, x, features, temperature=t, impl=impl)
        found.append((loss.detach(), *torch.autograd.grad(loss, (leaf, t) if learned else leaf)))
    assert set(asked) == told
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs)


def test_an_empty_batch() -> None:
    nothing = torch.zeros(0, 60, 3, requires_grad=True)
    for loss in (sw.set_cross_entropy, sw.set_average):
        value = loss(nothing, torch.zeros(0, 60, 3), POINTS, reduction="sum")
        assert value == 0
        value.backward()


@pytest.mark.usefixtures("always_by_blocks")
def test_second_derivatives(asked: list[str]) -> None:
    generator = torch.Generator().manual_seed(5)
    y, x = clouds("line", generator, 60, 60)
    features = sw.Features(sw.Gaussian(3, scale=0.01))
    found = []
    for impl in ("auto", "chunked"):
        z = y.clone().requires_grad_()
        (slope,) = torch.autograd.grad(
            sw.set_cross_entropy(z, x, features, impl=impl), z, create_graph=True
        )
        found.append(torch.autograd.grad(slope.square().sum(), z)[0])
    assert_close(*found, rtol=1e-8, atol=1e-8 * found[1].abs().max().item())
    assert asked == ["some", "some"]


@pytest.mark.parametrize(
    ("features", "called"),
    [
        (sw.Features(sw.Gaussian(2), sw.Bernoulli(1)), False),
        (sw.Features(sw.Gaussian(9)), False),
        (sw.Features(sw.Gaussian(2), sw.Gaussian(1, scale=3.0, weight=2.0)), True),
        (sw.Features(sw.Angle(2)), True),
    ],
)
def test_of_points_alone(features: sw.Features, called: bool, asked: list[str]) -> None:
    generator = torch.Generator().manual_seed(6)
    x = features.random_targets((1, 70), generator).double()
    y = torch.randn(1, 60, features.width, generator=generator, dtype=torch.float64)
    ours = sw.set_average(y, x, features)
    assert bool(asked) is called
    assert_close(ours, sw.set_average(y, x, features, impl="reference"), rtol=1e-10, atol=1e-12)
