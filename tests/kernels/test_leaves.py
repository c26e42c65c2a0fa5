"""Blocks of neighbours: what matters is visited, and sums are those over all pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from point_clouds import by_blocks, dense, largest_errors, operands, with_gradients
from setwise.kernels import chunked, dispatch, leaves, operators, trees
from setwise.kernels.tiles import Tile

pytestmark = pytest.mark.usefixtures("few_points_are_enough")


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("known", [False, True], ids=["forward", "backward"])
def test_no_pair_is_left_out_that_may_not_be(known: bool, biased: bool) -> None:
    """What is missing of a sum is less than 2^-40 of it."""
    x, y, bias, sharpness = operands(500, 5e3)
    if biased:
        bias[0, ::3] = 40.0
        bias[0, ::7] = -math.inf
    scores = dispatch.scores(x, y, bias - bias.amax(), sharpness[0])[0] / trees.BIT
    orders = torch.cat([leaves.tree_order(t[0], sharpness[0].sqrt()).flatten() for t in (x, y)])
    pairs = trees._pairs(x[0], y[0], bias[0], sharpness[0], orders)
    slack = trees.BITS[torch.float32] + math.log2(500)
    top = scores.amax(-1)[pairs.x.order]
    whole = (scores * trees.BIT).logsumexp(-1) / trees.BIT
    level = whole[pairs.x.order] if known else pairs.reach()
    assert known or (level <= top + 1e-9).all()
    assert known or (level > top - slack).double().mean() > 0.9
    kept = torch.zeros_like(scores, dtype=torch.bool)
    visits = pairs.visits(level.amin(dim=1), slack, 1.0)
    assert visits is not None
    for rows, part, columns, _ in visits:
        queries = pairs.x.order[rows, part]
        order = pairs.y.order.where(pairs.y.own, 500)
        beside = torch.cat([order, torch.full_like(order[:1], 500)])[columns]
        for of_block, keys in zip(queries, beside.flatten(1), strict=True):
            there = torch.meshgrid(of_block, keys[keys < 500], indexing="ij")
            kept[there] = True
    left_out = (scores * trees.BIT).softmax(-1).masked_fill(kept, 0.0)
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
    assert (orders >= 0).all()
    assert_close(lse, exact)
    needs = True, True
    ours = trees.logsumexp_backward(grad, x, y, bias, sharpness, terms, orders, *needs)
    theirs = chunked.logsumexp_backward(grad, x, y, bias, sharpness, exact, rest, *needs)
    for found, expected in zip(ours, theirs, strict=True):
        assert_close(found, expected, rtol=1e-9, atol=1e-11 * expected.abs().max().item())
    again = trees.logsumexp_backward(grad, x, y, bias, sharpness, terms, orders, *needs)
    assert all(map(torch.equal, ours, again))


@pytest.mark.usefixtures("always_by_blocks")
@pytest.mark.parametrize("features", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sets_of_a_batch_that_differ_in_everything(
    dtype: torch.dtype, features: int, asked: list[str]
) -> None:
    """Sizes of both sides, bias, admissible keys, sharpness, and the gradients that come in."""
    generator = torch.Generator().manual_seed(features)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    B, M, N = 3, 130, 170
    x, y, incoming = random(B, M, features), random(B, N, features), random(B, M)
    bias = 5 * random(B, N)
    bias[torch.rand(B, N, generator=generator) < 0.2] = -math.inf
    y[bias == -math.inf] = 1e15
    sharpness = torch.tensor([[3.0], [30.0], [300.0]]).to(dtype) * random(B, features).exp()

    found = []
    for compute, kind in ((by_blocks, dtype), (dense, dtype), (dense, torch.float64)):
        given = [t.to(kind, copy=True).requires_grad_() for t in (x, y, bias, sharpness)]
        lse = compute(*given)
        results = [lse, *torch.autograd.grad(lse, given, incoming.to(kind))]
        found.append([t.detach().double() for t in results])
    for ours, theirs, exact in zip(*found, strict=True):
        rounding = (1e-10 if dtype == torch.float64 else 1e-5) * exact.abs().max()
        assert (ours - exact).abs().max() <= (theirs - exact).abs().max() + rounding
    assert (found[0][2][bias == -math.inf] == 0).all()
    assert asked == ["some"] * 9  # of each set, forward, for the sharpness, and backward


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sets_of_a_batch_that_need_all_pairs(
    dtype: torch.dtype, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terms of one are of powers of two, those of another of powers of e."""
    monkeypatch.setattr(trees, "FEW", 1.0)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(2, 4, 200, 3, generator=generator)
    bias = torch.randn(4, 200, generator=generator)
    bias[2] = -math.inf
    sharpness = torch.tensor([1e4, 1e-3, 1e4, 1e5]).unsqueeze(-1).expand(4, 3)
    found = []
    for compute, kind in ((by_blocks, dtype), (dense, dtype), (dense, torch.float64)):
        given = [t.to(kind, copy=True).requires_grad_() for t in (x, y, bias, sharpness)]
        lse = compute(*given)
        assert (lse[2] == -math.inf).all()
        results = lse, *torch.autograd.grad(lse[[0, 1, 3]].sum(), given)
        found.append([t.detach().double()[[0, 1, 3]] for t in results])
    assert asked[:4] == ["some", "all", "all", "some"]
    for ours, theirs, exact in zip(*found, strict=True):
        for one, other, true in zip(ours, theirs, exact, strict=True):
            rounding = (1e-12 if dtype == torch.float64 else 1e-6) * true.abs().max()
            assert (one - true).abs().max() <= (other - true).abs().max() + rounding


@pytest.mark.usefixtures("always_by_blocks")
def test_scores_that_overflow(asked: list[str]) -> None:
    """One target is too far away for its scores to be finite, which is nothing to the others."""
    x, y, bias, sharpness = (t.float() for t in operands(120, 300.0, features=3))
    y.requires_grad_()
    sharpness.requires_grad_()
    there = torch.arange(120) != 5
    found = []
    for engine, targets in (("trees", x.clone()), ("chunked", x[:, there])):
        if engine == "trees":
            targets[0, 5] = 1e20
        lse = operators.differentiable_logsumexp(targets, y, bias, engine, True, sharpness)
        near = lse if engine == "chunked" else lse[:, there]
        found.append((near.detach(), *torch.autograd.grad(near.sum(), (y, sharpness))))
        assert engine == "chunked" or lse[0, 5] == -math.inf
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert asked == ["some"] * 3


def test_operators_say_the_truth_about_themselves() -> None:
    x, y, bias, sharpness = operands(70, 1e4, features=3)
    arguments = (x, y, bias, "trees", True, sharpness)
    torch.library.opcheck(operators.logsumexp, arguments)
    _, terms, orders = operators.logsumexp(*arguments)
    assert (orders >= 0).all()
    grad = torch.ones_like(bias)
    torch.library.opcheck(
        operators.logsumexp_backward,
        (grad, x, y, bias, terms, orders, True, True, "trees", sharpness),
    )
    torch.library.opcheck(
        operators.sharpness_gradient, (grad, x, y, bias, sharpness, terms, orders, "trees")
    )


def test_few_visits_are_in_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made run by run, and each run is of few blocks."""
    monkeypatch.setattr(leaves, "BLOCKS_AT_ONCE", 64)
    x, y, bias, sharpness = operands(300, 300.0)
    orders = torch.cat([leaves.tree_order(t[0], sharpness[0].sqrt()).flatten() for t in (x, y)])
    pairs = trees._pairs(x[0], y[0], bias[0], sharpness[0], orders)
    made: list[int] = []
    taken_together = leaves.Pairs._taken_together

    def watched(
        self: leaves.Pairs, rows: Tensor, matter: Tensor, by_products: bool
    ) -> Iterator[leaves.Visit]:
        made.append(matter.numel())
        yield from taken_together(self, rows, matter, by_products)

    monkeypatch.setattr(leaves.Pairs, "_taken_together", watched)
    visits = pairs.visits(pairs.reach().amin(dim=1), 40.0, 1.0)
    assert visits is not None
    assert made == []
    next(visits)
    assert made == [64]
    assert sum(1 for _ in visits) > 0
    assert max(made) == 64
    assert sum(made) == int(pairs.x.own.any(dim=1).sum()) * len(pairs.y.points)


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 1000, 20_000, 40_000])
def test_every_point_is_in_one_block(n: int) -> None:
    points = torch.randn(n, 3)
    order = leaves.tree_order(points, torch.ones(3))
    assert order.shape == leaves.blocks_shape(n)
    assert order.shape[1] <= (8 if n <= 1000 else leaves.MOST)
    assert order.flatten().sort().values.tolist() == list(range(order.numel()))
    boxes = leaves.Leaves.of(order, points, torch.zeros(n))
    held = boxes.own.any(dim=1)
    assert held.sum() >= len(order) / 2
    assert torch.equal(boxes.low[held], boxes.points.amin(dim=1)[held])
    assert torch.equal(boxes.high[held], boxes.points.amax(dim=1)[held])
    assert (boxes.low[~held] == math.inf).all()
    back = torch.full((n, 3), math.nan)
    boxes.fill(boxes.points, back)
    assert torch.equal(back, points)


def test_blocks_are_of_neighbours() -> None:
    """Of a square of 32 by 32 points, blocks of 8 are 2 by 4 of them."""
    grid = torch.cartesian_prod(torch.arange(32.0), torch.arange(32.0))
    grid = grid[torch.randperm(1024, generator=torch.Generator().manual_seed(0))]
    boxes = leaves.Leaves.of(leaves.tree_order(grid, torch.ones(2)), grid, torch.zeros(1024))
    assert ((boxes.high - boxes.low).sort(dim=1).values == torch.tensor([1.0, 3.0])).all()


@pytest.mark.usefixtures("always_by_blocks")
@pytest.mark.parametrize(("dtype", "above"), [(torch.float32, 300.0), (torch.float64, 5000.0)])
def test_the_largest_scores_may_be_far_above_those_nearby(
    dtype: torch.dtype, above: float, asked: list[str]
) -> None:
    """A power of what they are above them would be infinite."""
    x, y, bias, sharpness = (t.to(dtype) for t in operands(200, 300.0))
    bias[0, 7] = above
    grad = torch.linspace(0, 1, 200, dtype=dtype).unsqueeze(0)
    lse, terms, orders = trees.logsumexp(x, y, bias, sharpness)
    exact, rest = chunked.logsumexp(*(t.double() for t in (x, y, bias, sharpness)))
    assert_close(lse.double(), exact, rtol=1e-6, atol=1e-4)
    ours = trees.logsumexp_backward(grad, x, y, bias, sharpness, terms, orders, True, True)
    wide = [t.double() for t in (grad, x, y, bias, sharpness, exact, rest)]
    theirs = chunked.logsumexp_backward(*wide, True, True)
    for found, expected in zip(ours, theirs, strict=True):
        assert_close(found.double(), expected, rtol=0, atol=1e-5 * expected.abs().max().item())
    assert asked == ["some", "some"]


def clouds(name: str) -> list[Tensor]:
    """Two of 1000 points and more in a unit cube, but for what the name says."""
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(1, 1000, 3, generator=generator)
    y = torch.rand(1, 1030, 3, generator=generator)  # a dozen blocks are of no points
    bias, sharpness = torch.zeros(1, 1030), torch.full((1, 3), 2e3)
    if name == "all points are far from each other":
        x[..., 0] += 3.0
    elif name == "beyond all digits":
        x[..., 0] += 3.0
        sharpness = torch.full((1, 3), 2e9)
    elif name == "some points are far":
        x[:, :200] = 0.1 * x[:, :200] + 10.0
    elif name == "clusters":
        centres = 3 * torch.randn(8, 3, generator=generator)
        sharpness = torch.full((1, 3), 1.3)
        x, y = (0.05 * t + centres[torch.arange(t.shape[1]) % 8] for t in (x, y))
    elif name == "one output counts":
        x *= 0.3
        bias[:, 1:] = -math.inf
    elif name == "others lie anywhere":
        bias[:, ::2] = -math.inf
        y[:, ::2] = 1e18
    elif name == "large biases":
        bias = 1e4 + torch.randn(bias.shape, generator=generator)
    elif name == "biases that outweigh the distance":
        y[:, ::2, 0] += 2.0
        bias[:, ::2] = 8e3
    elif name == "nearly where they belong":
        y[:, :1000] = x + 1e-5 * torch.randn(x.shape, generator=generator)
        sharpness = torch.full((1, 3), 1e4)
    elif name == "in a lattice":  # what pulls one way pulls the other: little is left
        side = torch.arange(16.0) / 16
        y = torch.cartesian_prod(side, side, side).unsqueeze(0)
        x = y[((y > 0.3) & (y < 0.7)).all(dim=-1)].unsqueeze(0)
        x = x + 1e-3 * torch.randn(x.shape, generator=generator)
        bias, sharpness = torch.zeros(y.shape[:2]), torch.full((1, 3), 80.0)
    return [x, y, bias, sharpness]


@pytest.mark.usefixtures("always_by_blocks")
@pytest.mark.parametrize(
    "name",
    [
        "as they are",
        "clusters",
        "others lie anywhere",
        "some points are far",
        "all points are far from each other",
        "beyond all digits",
        "one output counts",
        "large biases",
        "biases that outweigh the distance",
        "nearly where they belong",
        "in a lattice",
    ],
)
def test_as_precise_as_dense(name: str, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaves, "FEWEST", 16)
    given = clouds(name)
    exact = with_gradients(dense, [t.double() for t in given])
    ours, theirs = (largest_errors(compute, exact, given) for compute in (by_blocks, dense))
    assert set(asked) == {"some"}
    for one, other in zip(ours, theirs, strict=True):
        assert one <= other + 1e-6


@pytest.mark.usefixtures("always_by_blocks")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_blocks_of_no_points_are_near_to_none(dtype: torch.dtype) -> None:
    """The last point fills up blocks; that these are near does not say how large a sum is."""
    generator = torch.Generator().manual_seed(0)
    for M, N in ((270, 519), (1030, 270), (1777, 1030)):
        x, y = (torch.rand(1, n, 3, generator=generator).to(dtype) for n in (M, N))
        boxes = leaves.Leaves.of(leaves.tree_order(y[0], torch.ones(3)), y[0], y[0, :, 0] * 0)
        assert (~boxes.own.any(dim=1)).sum() >= 2
        given = x, y, torch.zeros(1, N, dtype=dtype), torch.full((1, 3), 5e3, dtype=dtype)
        exact = dispatch.scores(*(t.double() for t in given[:3]), given[3][0].double())
        tolerance = 1e-9 if dtype == torch.float64 else 1e-5
        found = trees.logsumexp(*given)[0].double()
        assert_close(found, exact.logsumexp(-1), rtol=tolerance, atol=10 * tolerance)


def test_blocks_of_no_points_visit_none() -> None:
    """Their middle is no number, so nothing is known of what may be near to it."""
    x, y = torch.rand(2, 1030, 3, generator=torch.Generator().manual_seed(0))
    sharpness = torch.full((3,), 5e3)
    orders = torch.cat([leaves.tree_order(t, sharpness.sqrt()).flatten() for t in (x, y)])
    pairs = trees._pairs(x, y, y.new_zeros(1030), sharpness, orders)
    reach = pairs.reach().amin(dim=1)
    for least in (reach, torch.full_like(reach, -math.inf)):
        visits = pairs.visits(least, 40.0, 1.0, pairs.near(least))
        assert visits is not None
        visited = torch.cat([visit.rows for visit in visits]).unique()
        assert torch.equal(visited, pairs.x.own.any(dim=1).nonzero().flatten())


@pytest.mark.usefixtures("always_by_blocks")
def test_as_few_matter_far_from_the_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is nearby is told by differences, so as much is found to matter."""
    x, y, bias, sharpness = (t.float() for t in operands(2000, 2e5, features=3))
    looked_at: list[int] = []
    tile = leaves.Pairs.tile

    def watched(self: leaves.Pairs, visit: leaves.Visit) -> Tile:
        looked_at[-1] += visit.columns.numel()
        return tile(self, visit)

    monkeypatch.setattr(leaves.Pairs, "tile", watched)
    for offset in (0.0, 1000.0):
        looked_at.append(0)
        trees.logsumexp(x + offset, y + offset, bias, sharpness)
    assert looked_at[1] <= 1.2 * looked_at[0]


@pytest.mark.usefixtures("always_by_blocks")
def test_whatever_the_default_device_is() -> None:
    given = [t.float() for t in operands(200, 300.0)]
    lse, terms, orders = trees.logsumexp(*given)
    with torch.device("meta"):
        again = trees.logsumexp(*given)
        ours = trees.logsumexp_backward(lse, *given, terms, orders, True, True)
    assert torch.equal(again[0], lse)
    assert all(t.device.type == "cpu" for t in ours)


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("always_by_blocks")
def test_inadmissible_keys_may_be_anywhere(asked: list[str]) -> None:
    x, y, bias, sharpness = (t.float() for t in operands(200, 300.0))
    there = torch.arange(200) % 5 != 0
    bias[:, ~there], y[:, ~there] = -math.inf, torch.tensor([3e38, -3e38])
    found = []
    for chosen in (slice(None), there):
        given = [t.clone().requires_grad_() for t in (x, y[:, chosen], bias[:, chosen], sharpness)]
        compute = by_blocks if chosen == slice(None) else dense
        lse = compute(*given)
        _, of_y, of_bias, of_sharpness = torch.autograd.grad(lse.sum(), given)
        found.append((lse.detach(), of_y, of_bias, of_sharpness))
    (ours, *gradients), (theirs, *expected) = found
    assert_close(ours, theirs)
    for one, other in zip(gradients, expected, strict=True):
        if one.shape[1] == 200:
            assert (one[:, ~there] == 0).all()
            one = one[:, there]
        assert_close(one, other, rtol=1e-5, atol=1e-5 * other.abs().max().item())
    assert set(asked) == {"some"}


@pytest.mark.usefixtures("always_by_blocks")
def test_outputs_without_a_limit(asked: list[str]) -> None:
    """One is so far away that squares and products overflow; it has no weight and no gradient."""
    x, y, bias, sharpness = (t.float() for t in operands(200, 300.0))
    y[0, 3] = 1e30
    lse, terms, orders = trees.logsumexp(x, y, bias, sharpness)
    there = torch.arange(200) != 3
    exact, _ = chunked.logsumexp(*(t.double() for t in (x, y[:, there], bias[:, there], sharpness)))
    assert_close(lse.double(), exact, rtol=1e-5, atol=1e-6)
    grad = torch.ones_like(lse)
    for result in trees.logsumexp_backward(grad, x, y, bias, sharpness, terms, orders, True, True):
        assert result.isfinite().all()
        assert result.shape[1] == 200
    assert trees.sharpness_gradient(grad, x, y, bias, sharpness, terms, orders).isfinite().all()
    assert asked == ["some"] * 3
