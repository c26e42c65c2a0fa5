"""Small blocks of points: by products of matrices, about as precise as by differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from point_clouds import by_blocks, dense, largest_errors, operands, with_gradients
from setwise.kernels import leaves, trees
from setwise.kernels.centred import CentredTile
from setwise.kernels.tiles import Tile

pytestmark = pytest.mark.usefixtures("few_points_are_enough", "always_by_blocks")


@pytest.fixture
def tiles(monkeypatch: pytest.MonkeyPatch) -> list[type[Tile]]:
    """The kinds of all tiles from here on, but for those by which the reach is found."""
    found: list[type[Tile]] = []
    tile, reach = leaves.Pairs.tile, leaves.Pairs.reach

    def watched(self: leaves.Pairs, visit: leaves.Visit) -> Tile:
        found.append(type(tile(self, visit)))
        return tile(self, visit)

    def unwatched(self: leaves.Pairs) -> Tensor:
        before = len(found)
        result = reach(self)
        del found[before:]
        return result

    monkeypatch.setattr(leaves.Pairs, "tile", watched)
    monkeypatch.setattr(leaves.Pairs, "reach", unwatched)
    return found


@pytest.mark.parametrize("noise", [0.1, 1e-3, 1e-5, 0.0])
@pytest.mark.parametrize("spread", [0.0, 10.0])
@pytest.mark.parametrize("kind", ["surface", "lattice"])
def test_products_are_about_as_precise(
    kind: str, spread: float, noise: float, tiles: list[type[Tile]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of Gaussians as wide as neighbours are apart, or wider, around what nearly is where it is."""
    monkeypatch.setattr(leaves, "FEWEST", 16)
    generator = torch.Generator().manual_seed(0)
    if kind == "lattice":
        x = torch.cartesian_prod(*[torch.arange(32.0) / 32] * 2, torch.zeros(1)).unsqueeze(0)
    else:
        x = torch.nn.functional.normalize(torch.randn(1, 1024, 3, generator=generator), dim=-1)
    y = x[:, torch.randperm(1024, generator=generator)]
    y = y + noise / 32 * torch.randn(y.shape, generator=generator)
    bias = spread * torch.randn(y.shape[:2], generator=generator)
    for scale in (1 / 32, 3 / 32):
        given = [x, y, bias, torch.full((1, 3), 0.5 / scale**2)]
        exact = with_gradients(dense, [t.double() for t in given])
        ours, theirs = (largest_errors(compute, exact, given) for compute in (by_blocks, dense))
        for one, other in zip(ours, theirs, strict=True):
            assert one <= other + 1e-5
    assert CentredTile in tiles


def test_products_are_for_small_blocks_nearby(tiles: list[type[Tile]]) -> None:
    """And for gradients to the keys alone."""
    x, y, bias, sharpness = operands(300, 300.0)
    far = bias.clone()
    far[0, 0] = 100.0  # so scores of others are so much lower
    y[0, 0] = 50.0
    for given, forward in (
        ((x, y, bias, sharpness), {CentredTile}),
        ((x, y, bias, sharpness * 1e3), {Tile}),
        ((x, y + 2.0, bias, sharpness), {Tile}),
        ((x, y, far, sharpness), {Tile}),
    ):
        tiles.clear()
        lse, terms, orders = trees.logsumexp(*given)
        assert set(tiles) == forward
        for need_queries in (False, True):
            tiles.clear()
            of = torch.ones_like(lse), *given, terms, orders
            trees.logsumexp_backward(*of, need_queries, True)
            assert set(tiles) == ({Tile} if need_queries else forward)
        tiles.clear()
        trees.sharpness_gradient(torch.ones_like(lse), *given, terms, orders)
        assert set(tiles) == {Tile}
