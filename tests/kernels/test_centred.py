"""Small blocks of points: scores from products, about as precise as from differences."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from point_clouds import by_blocks, dense, largest_errors, operands, with_gradients
from setwise.kernels import centred, chunked, leaves, trees
from setwise.kernels.centred import NEAR_BITS, CentredTile
from setwise.kernels.tiles import Tile

pytestmark = pytest.mark.usefixtures("few_points_are_enough", "always_by_blocks")


@pytest.fixture
def tiles(monkeypatch: pytest.MonkeyPatch) -> list[type[Tile]]:
    """The kinds of all tiles from here on, but for those by which the reach is found."""
    found: list[type[Tile]] = []
    tile, reach = leaves.Pairs.tile, leaves.Pairs.reach

    def watched(self: leaves.Pairs, visit: leaves.Visit) -> Tile:
        made = tile(self, visit)
        found.append(type(made))
        return made

    def unwatched(self: leaves.Pairs) -> Tensor:
        before = len(found)
        result = reach(self)
        del found[before:]
        return result

    monkeypatch.setattr(leaves.Pairs, "tile", watched)
    monkeypatch.setattr(leaves.Pairs, "reach", unwatched)
    return found


def sets(kind: str, generator: torch.Generator) -> tuple[Tensor, list[float]]:
    """Points, as far apart as numbers of about 1, and Gaussians of as many bits at 1."""
    if kind == "surface":
        x = 16 * torch.nn.functional.normalize(torch.randn(2048, 3, generator=generator), dim=-1)
        return x, [0.2, 1.0]
    if kind == "lattice":
        return torch.cartesian_prod(*[torch.arange(11.0)] * 3), [1.0, 4.0, 8.5]
    if kind == "piles":
        return torch.cartesian_prod(*[torch.arange(6.0)] * 3).repeat(8, 1), [8.5, 23.0]
    return torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 8).repeat(4, 1), [2.0, 6.0, 11.0]


@pytest.mark.parametrize("spread", [0.0, 5.0])
@pytest.mark.parametrize("noise", [0.1, 1e-2, 1e-4, 0.0])
@pytest.mark.parametrize("kind", ["surface", "lattice", "piles", "codes"])
def test_about_as_precise_as_dense(
    kind: str, noise: float, spread: float, tiles: list[type[Tile]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where all neighbours are too far away to pull."""
    monkeypatch.setattr(leaves, "FEWEST", 16)
    generator = torch.Generator().manual_seed(0)
    x, every_bits = sets(kind, generator)
    y = x[torch.randperm(len(x), generator=generator)]
    y = y + noise * torch.randn(y.shape, generator=generator)
    bias = -spread * torch.rand(1, len(y), generator=generator)
    for bits in every_bits:
        tiles.clear()
        sharpness = torch.full((1, x.shape[1]), bits * math.log(2))
        given = [x.unsqueeze(0), y.unsqueeze(0), bias, sharpness]
        exact = with_gradients(dense, [t.double() for t in given])
        ours, theirs = (largest_errors(compute, exact, given) for compute in (by_blocks, dense))
        for one, other in zip(ours, theirs, strict=True):
            assert one <= other + 1e-5
        assert CentredTile in tiles


def test_for_small_blocks_nearby(tiles: list[type[Tile]]) -> None:
    """And where nothing weighs on the queries."""
    x, y, bias, sharpness = operands(300, 300.0)
    point, one = torch.zeros_like(x), torch.full_like(bias, -math.inf)
    one[0, 5] = 0.0
    near, far = (point + (share * NEAR_BITS * trees.BIT / 600.0) ** 0.5 for share in (0.98, 1.02))
    for given, kind in (
        ((x, y, bias, sharpness), CentredTile),
        ((x, y, bias, sharpness * 1e3), Tile),
        ((point, near, one, sharpness), CentredTile),
        ((point, far, one, sharpness), Tile),
    ):
        tiles.clear()
        lse, terms, orders = trees.logsumexp(*given)
        assert set(tiles) == {kind}
        for need_queries in (False, True):
            tiles.clear()
            of = torch.ones_like(lse), *given, terms, orders
            trees.logsumexp_backward(*of, need_queries, True)
            assert set(tiles) == {Tile if need_queries else kind}
        tiles.clear()
        trees.sharpness_gradient(torch.ones_like(lse), *given, terms, orders)
        assert set(tiles) == {Tile}


def test_not_where_pytorch_rounds_what_it_multiplies(
    tiles: list[type[Tile]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(centred, "rounds_on_cpu", lambda: True)
    trees.logsumexp(*operands(300, 300.0))
    assert set(tiles) == {Tile}


def test_logsumexps_next_to_nothing_are_computed_anew(tiles: list[type[Tile]]) -> None:
    """Of others so far away that each target has its own output alone."""
    x = torch.cartesian_prod(*[torch.arange(6.0)] * 3).unsqueeze(0)
    for y, bits, kinds in (
        (x, 6.0, [CentredTile, Tile]),
        (x.repeat(1, 4, 1), 6.0, [CentredTile]),
        (x, 100.0, [Tile]),
    ):
        tiles.clear()
        given = x, y, torch.zeros(y.shape[:2]), torch.full((1, 3), bits * trees.BIT)
        lse, *_ = trees.logsumexp(*given)
        assert list(dict.fromkeys(tiles)) == kinds
        right = dense(*(t.double() for t in given))
        assert_close(lse.double(), right, rtol=0, atol=5e-6 * right.abs().max().item())


@pytest.mark.parametrize("unlike", ["no point", "a point", "a feature"])
def test_every_gradient_is_precise(unlike: str, tiles: list[type[Tile]]) -> None:
    """However small beside the largest: of outputs that are nearly where their targets are."""
    generator = torch.Generator().manual_seed(0)
    x = torch.cartesian_prod(*[torch.arange(6.0)] * 3).repeat(1, 8, 1)
    y = x + 1e-5 * torch.randn(x.shape, generator=generator)
    if unlike == "a point":
        x[0, 100] += 0.4
    elif unlike == "a feature":
        y[..., 0] += 0.01
    found = []
    for compute, kind in ((by_blocks, torch.float32), (dense, torch.float64)):
        leaf = y.to(kind).requires_grad_()
        sharpness = torch.full((1, 3), 16.0, dtype=kind)
        lse = compute(x.to(kind), leaf, torch.zeros(x.shape[:2], dtype=kind), sharpness)
        found.append(torch.autograd.grad(lse.sum(), leaf)[0].double())
    assert CentredTile in tiles
    ours, exact = found
    for of_feature, right in zip(ours.unbind(-1), exact.unbind(-1), strict=True):
        apart = (of_feature - right).abs() / right.abs()
        assert apart.median() <= 1e-5
        near = right.abs() < 100 * right.abs().median()
        assert (of_feature - right)[near].norm() <= 1e-5 * right[near].norm()


@pytest.mark.parametrize("at_once", [10, 300, 2**14])
def test_masked_keys_may_be_anywhere_and_sets_in_parts(
    at_once: int, tiles: list[type[Tile]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the same bits come out again."""
    x, y, bias, sharpness = operands(300, 300.0, features=3)
    bias[0, ::3] = -math.inf
    y[0, ::3] = 1e38
    monkeypatch.setattr(leaves, "POINTS_AT_ONCE", at_once)
    monkeypatch.setattr(leaves, "BLOCKS_AT_ONCE", at_once)
    grad = torch.linspace(0, 1, 300, dtype=torch.float64).unsqueeze(0)
    lse, terms, orders = trees.logsumexp(x, y, bias, sharpness)
    exact, rest = chunked.logsumexp(x, y, bias, sharpness)
    assert_close(lse, exact)
    tiles.clear()
    ours = trees.logsumexp_backward(grad, x, y, bias, sharpness, terms, orders, False, True)
    assert CentredTile in tiles
    near = y.masked_fill((bias == -math.inf).unsqueeze(-1), 0.0)
    theirs = chunked.logsumexp_backward(grad, x, near, bias, sharpness, exact, rest, False, True)
    for found, expected in zip(ours, theirs, strict=True):
        assert_close(found, expected, rtol=1e-9, atol=1e-11)
    again = trees.logsumexp_backward(grad, x, y, bias, sharpness, terms, orders, False, True)
    assert all(map(torch.equal, ours, again))
