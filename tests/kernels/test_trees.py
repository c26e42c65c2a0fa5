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
from setwise.kernels import chunked, dispatch, leaves, operators, trees

POINTS = sw.Features(sw.Gaussian(3, scale=0.01))


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "FEWEST_POINTS", 50)
    monkeypatch.setattr(leaves, "FEWEST", 8)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What trees were asked for, and whether blocks were left out."""
    found: list[str] = []
    nearest, visits = trees.argmax, leaves.Pairs.visits

    def argmax(*args: Tensor) -> Tensor:
        found.append("nearest")
        return nearest(*args)

    def watched(*args) -> list[leaves.Visit] | None:
        result = visits(*args)
        found.append("all" if result is None else "some")
        return result

    monkeypatch.setattr(trees, "argmax", argmax)
    monkeypatch.setattr(leaves.Pairs, "visits", watched)
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


def operands(n: int, sharpness: float, features: int = 2, seed: int = 2) -> list[Tensor]:
    """Queries, keys, bias and sharpness of one set in float64, uniform."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.rand(2, 1, n, features, generator=generator, dtype=torch.float64)
    return [x, y, torch.zeros(1, n).double(), torch.full((1, features), sharpness).double()]


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("known", [False, True], ids=["forward", "backward"])
def test_no_pair_is_left_out_that_may_not_be(known: bool, biased: bool) -> None:
    """What is missing of a sum is less than 2^-40 of it."""
    x, y, bias, sharpness = operands(500, 5e3)
    if biased:
        bias[0, ::3] = 40.0
        bias[0, ::7] = -math.inf
    scores = dispatch.scores(x, y, bias, sharpness[0])[0]
    orders = torch.cat([leaves.order(t[0], sharpness[0].sqrt()).flatten() for t in (x, y)])
    pairs = trees._pairs(x[0], y[0], bias[0], sharpness[0], orders)
    least = None
    if known:
        least = leaves.placed_in(pairs.x.order, scores.logsumexp(-1)).amin(dim=1)
    slack = trees.BITS[torch.float32] * math.log(2) + math.log(500)
    kept = torch.zeros_like(scores, dtype=torch.bool)
    visits = pairs.visits(least, slack, 1.0)
    assert visits is not None
    for rows, part, columns in visits:
        queries = pairs.x.order[rows, part]
        beside = torch.cat([pairs.y.order, torch.full_like(pairs.y.order[:1], 500)])[columns]
        for of_block, keys in zip(queries, beside.flatten(1), strict=True):
            there = torch.meshgrid(of_block[of_block < 500], keys[keys < 500], indexing="ij")
            kept[there] = True
    left_out = scores.softmax(-1).masked_fill(kept, 0.0)
    assert 0 < left_out.max() < 2.0**-40 / 500
    assert kept.sum() < 0.4 * scores.numel()


@pytest.mark.parametrize("at_once", [10, 300, 2**14])
def test_however_many_pairs_are_computed_at_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block that much is beside is taken in parts, and blocks that are alike together."""
    x, y, bias, sharpness = operands(300, 300.0, features=3)
    y[0, :2] += 30.0  # near to nothing, and nothing is near to them
    x[0, 7] -= 30.0
    monkeypatch.setattr(leaves, "POINTS_AT_ONCE", at_once)
    monkeypatch.setattr(leaves, "BLOCKS_AT_ONCE", at_once)
    grad = torch.linspace(-1, 1, 300, dtype=torch.float64).unsqueeze(0)
    lse, terms, orders = trees.logsumexp(x, y, bias, sharpness)
    exact, rest = chunked.logsumexp(x, y, bias, sharpness)
    assert orders.shape[1] > 0
    assert_close(lse, exact)
    needs = True, True
    ours = trees.logsumexp_backward(grad, x, y, bias, sharpness, terms, orders, *needs)
    theirs = chunked.logsumexp_backward(grad, x, y, bias, sharpness, exact, rest, *needs)
    for found, expected in zip(ours, theirs, strict=True):
        assert_close(found, expected, rtol=1e-9, atol=1e-11 * expected.abs().max().item())
    again = trees.logsumexp_backward(grad, x, y, bias, sharpness, terms, orders, *needs)
    assert all(map(torch.equal, ours, again))


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


def test_any_bias(asked: list[str]) -> None:
    """Which may make a key the best that is far away; and one of -inf is none."""
    x, y, bias, sharpness = operands(80, 1e3, features=3)
    bias[0, 7], bias[0, 9] = 1e4, -math.inf
    y[0, 9] = 1e30
    assert (trees.argmax(x, y, bias, sharpness) == 7).all()
    found = []
    for engine in ("trees", "chunked"):
        leaf = y.clone().requires_grad_()
        lse = operators.differentiable_logsumexp(x, leaf, bias, engine, True, sharpness)
        found.append((lse.detach(), *torch.autograd.grad(lse.sum(), leaf)))
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    assert (found[0][1][0, 9] == 0).all()
    assert "some" in asked


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


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 1000, 20_000, 40_000])
def test_every_point_is_in_one_block(n: int) -> None:
    points = torch.randn(n, 3)
    order = leaves.order(points, torch.ones(3))
    assert order.shape == leaves.shape(n)
    assert order.shape[1] <= (8 if n <= 1000 else leaves.MOST)
    assert order.flatten().sort().values.tolist() == list(range(order.numel()))
    boxes = leaves.leaves(order, points, torch.zeros(n))
    assert (boxes.low <= boxes.points.amin(dim=1)).all()
    assert (boxes.high >= boxes.points.amax(dim=1)).all()
    back = torch.full((n, 3), math.nan)
    boxes.fill(boxes.points, back)
    assert torch.equal(back, points)


def test_blocks_are_of_neighbours() -> None:
    """Of a square of 32 by 32 points, blocks of 8 are 2 by 4 of them."""
    grid = torch.cartesian_prod(torch.arange(32.0), torch.arange(32.0))
    grid = grid[torch.randperm(1024, generator=torch.Generator().manual_seed(0))]
    boxes = leaves.leaves(leaves.order(grid, torch.ones(2)), grid, torch.zeros(1024))
    assert ((boxes.high - boxes.low).sort(dim=1).values == torch.tensor([1.0, 3.0])).all()
