"""Tiles of points: the sums over all pairs, from differences and from products."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from setwise.kernels.centred import NEAR_BITS, CentredTile, small_blocks
from setwise.kernels.tiles import Rooms, Tile

SHARPNESS = [3.0, 50.0, 800.0]
FAR = torch.tensor([5.0, -2.0, 100.0])  # from the origin


def blocks(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Two blocks x [2, 30, 3], and what is beside them: y [3, 2, 40] and a bias [2, 40]."""
    generator = torch.Generator().manual_seed(0)
    units = torch.tensor(SHARPNESS).rsqrt()
    x, y = torch.randn(2, 2, 40, 3, generator=generator) * units + FAR
    bias = torch.randn(2, 40, generator=generator)
    bias[:, 5] = -math.inf
    return x[:, :30].to(dtype), y.permute(2, 0, 1).to(dtype), bias.to(dtype)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_and_what_weighs_on_points(dtype: torch.dtype, centred: bool) -> None:
    x, y, bias = blocks(dtype)
    apart = x.double().unsqueeze(2) - y.double().permute(1, 2, 0).unsqueeze(1)  # [G, S, L, D]
    squares = apart.square() @ torch.tensor(SHARPNESS).double()
    scores = bias.double().unsqueeze(1) - squares
    level = scores.logsumexp(-1).to(dtype)
    incoming = torch.linspace(-1, 2, 30, dtype=dtype).expand(2, 30)
    w = (scores - level.double().unsqueeze(-1)).exp() * incoming.double().unsqueeze(-1)
    pulls = apart * w.unsqueeze(-1)

    def close(ours: Tensor, exact: Tensor) -> None:
        tolerance = (1e-6 if dtype == torch.float32 else 1e-14) * exact.abs().max().item()
        assert_close(ours.double(), exact, rtol=0, atol=tolerance)

    tile = Tile(x, y, bias, SHARPNESS, Rooms(x))
    if centred:
        tile = CentredTile(x, y, bias, SHARPNESS, Rooms(x), x.mean(dim=1, keepdim=True))
    there = torch.arange(40) != 5
    ways = (
        lambda: (torch.zeros_like(level), tile.scores()),
        lambda: (level, tile.below(level)),
        lambda: tile.relative(level),
    )
    for way in ways:
        own, found = way()
        assert (found[..., 5] == -math.inf).all()
        close(found[..., there], (scores - own.double().unsqueeze(-1))[..., there])
    p = tile.below(level).exp_()
    for need_x in (True, False):
        of_x, of_y = tile.pulls(p.clone(), incoming, need_x)
        assert (of_x is not None) == need_x
        if of_x is not None:
            close(of_x, -pulls.sum(dim=2))
        close(of_y[:, :-1], pulls.sum(dim=1).mT)
        close(of_y[:, -1], w.sum(dim=1))
        assert (of_y[..., 5] == 0).all()
    close(tile.squares(p, incoming), (w.unsqueeze(-1) * apart.square()).sum(dim=(0, 1, 2)))


def test_tiles_share_memory() -> None:
    x, y, bias = blocks(torch.float32)
    rooms = Rooms(x)
    first = Tile(x, y, bias, SHARPNESS, rooms).scores()
    second = Tile(x[:1], y[:, :1], bias[:1], SHARPNESS, rooms).scores()
    assert first.data_ptr() == second.data_ptr()
    several = torch.cat([x, x]), torch.cat([y, y], 1), torch.cat([bias, bias])
    larger = Tile(*several, SHARPNESS, rooms).scores()
    assert torch.equal(larger, Tile(*several, SHARPNESS, Rooms(x)).scores())


def test_which_blocks_are_small_and_near() -> None:
    sharpness = torch.tensor([1.0, 4.0])
    x = torch.zeros(5, 2, 2)
    x[1, 0, 0] = 2 * 0.99 * math.sqrt(NEAR_BITS)  # as far from the middle as the other one
    x[2, 0, 1] = 1.01 * math.sqrt(NEAR_BITS)
    x[3] = 1e18
    x[4, 0, 0] = 3e38
    x[4, 1, 0] = 3e38  # a middle that is no number

    def small(y: Tensor) -> list[bool]:
        return small_blocks(x, x.mean(dim=1, keepdim=True), y, sharpness).tolist()

    assert small(x[:3]) == [True, True, False, False, False]
    assert not any(small(x[:4]))
    assert not any(small(torch.full((1, 2), math.nan)))
