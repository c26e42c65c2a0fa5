"""Points by k-d trees: the same losses as from all pairs, from few of them."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from scipy.spatial import cKDTree
from torch import Tensor
from torch.testing import assert_close

import setwise as sw
from setwise.kernels import dispatch, trees

POINTS = sw.Features(sw.Gaussian(3, scale=0.01))


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "FEWEST_POINTS", 50)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What trees were asked for, and whether they could tell."""
    found: list[str] = []
    for name in ("argmax", "logsumexp"):
        original = getattr(trees, name)

        def watched(*args: Tensor, name: str = name, original=original) -> Tensor | None:
            result = original(*args)
            found.append(name if result is not None else f"no {name}")
            return result

        monkeypatch.setattr(trees, name, watched)
    return found


def clouds(kind: str, generator: torch.Generator, M: int, N: int) -> tuple[Tensor, Tensor]:
    """Outputs [1, N, 3] and targets [1, M, 3]."""
    x = torch.rand(1, M, 3, generator=generator, dtype=torch.float64)
    if kind == "surface":
        x = torch.nn.functional.normalize(x - 0.5, dim=-1)
    elif kind == "clusters":
        x = 0.02 * x + torch.randint(3, (1, M, 1), generator=generator) * 1000.0
    elif kind == "line":
        x = x * torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    elif kind == "outlier":
        x[:, 0] += 50.0
    chosen = torch.randint(M, (N,), generator=generator)
    y = x[:, chosen] + 0.01 * torch.randn(1, N, 3, generator=generator, dtype=torch.float64)
    return y, x


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
    expected = "logsumexp" if loss is sw.set_cross_entropy else "argmax"
    assert set(asked) == {expected}


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


def test_no_pair_is_left_out_that_may_not_be() -> None:
    """What is missing of a sum is less than 2^-40 of it, and nothing if all pairs are asked for."""
    generator = torch.Generator().manual_seed(2)
    x = torch.rand(1, 500, 2, generator=generator, dtype=torch.float64)
    y = torch.rand(1, 500, 2, generator=generator, dtype=torch.float64)
    bias, sharpness = torch.zeros(1, 500).double(), torch.full((1, 2), 5e3).double()
    within = trees.BITS[torch.float32] * math.log(2) + math.log(500)
    points, tree, _ = next(trees._sets(x, y, bias, sharpness))
    pairs = trees._pairs(points, tree, within, trees.MOST_PAIRS)
    assert pairs is not None
    scores = dispatch.scores(x, y, bias, sharpness[0])[0]
    kept = torch.zeros_like(scores, dtype=torch.bool)
    kept[pairs] = True
    left_out = scores.softmax(-1).masked_fill(kept, 0.0)
    assert 0 < left_out.max() < 2.0**-40 / 500
    assert len(pairs[0]) < 0.2 * scores.numel()


def test_not_finite() -> None:
    """NaN is the nearest, as with all pairs; a bias that says more is for them too."""
    generator = torch.Generator().manual_seed(3)
    y, x = clouds("surface", generator, 80, 80)
    bias, sharpness = torch.zeros(1, 80).double(), torch.ones(1, 3).double()
    biased = torch.where(torch.arange(80) == 7, 9.0, bias)
    y[0, 3, 1] = math.nan
    assert (trees.argmax(x, y, bias, sharpness) == 3).all()
    assert trees.logsumexp(x, y, bias, sharpness) is None
    y[0, 3, 1] = 0.0
    assert (trees.argmax(x, y, biased, sharpness) == 7).all()
    assert trees.logsumexp(x, y, biased, sharpness) is None


def test_all_equally_far(asked: list[str]) -> None:
    """No pair is negligible: all of them are computed."""
    generator = torch.Generator().manual_seed(4)
    x = torch.nn.functional.normalize(torch.randn(1, 200, 3, generator=generator), dim=-1)
    y = torch.zeros(1, 200, 3) + 1e-3 * torch.randn(1, 200, 3, generator=generator)
    features = sw.Features(sw.Gaussian(3, scale=1.0))
    ours = sw.set_cross_entropy(y, x, features)
    assert asked == ["no logsumexp"]
    assert_close(ours, sw.set_cross_entropy(y, x, features, impl="chunked"))


def test_an_empty_batch() -> None:
    nothing = torch.zeros(0, 60, 3, requires_grad=True)
    for loss in (sw.set_cross_entropy, sw.set_average):
        value = loss(nothing, torch.zeros(0, 60, 3), POINTS, reduction="sum")
        assert value == 0
        value.backward()


@pytest.mark.parametrize(("most", "told"), [(2, "logsumexp"), (1, "no logsumexp")])
def test_the_bound_of_memory_is_of_a_call(
    most: int, told: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sets with one pair for every point."""
    monkeypatch.setattr(trees, "MOST_PAIRS", most * 100)
    x = (100.0 * torch.arange(100)).reshape(1, 100, 1).expand(2, -1, -1)
    sw.set_cross_entropy(x + 0.01, x, sw.Features(sw.Gaussian(1)))
    assert asked == [told]


def test_pairs_are_counted_where_the_sample_misses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far from each other but for some, none of which is in the sample."""
    monkeypatch.setattr(trees, "SAMPLE", 2)
    monkeypatch.setattr(trees, "LARGEST_SHARE", 1.0)
    x = (1000.0 * torch.arange(100).double()).reshape(1, 100, 1)
    x[:, 10:40] = 10_500.0
    bias, sharpness = torch.zeros(1, 100).double(), torch.ones(1, 1).double()
    assert trees.logsumexp(x, x, bias, sharpness) is not None
    monkeypatch.setattr(trees, "MOST_PAIRS", 500)  # of 970
    assert trees.logsumexp(x, x, bias, sharpness) is None


def test_second_derivatives() -> None:
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
