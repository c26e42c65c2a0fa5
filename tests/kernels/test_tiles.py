"""Tiles of points: by differences or by products, the sums over all pairs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from setwise.kernels import tiles
from setwise.kernels.tiles import NarrowTile, Rooms, Tile, are_moderate, are_narrow

SHARPNESS = [3.0, 50.0, 800.0]
FAR = torch.tensor([5.0, -2.0, 100.0])  # from the origin


def blocks(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Two narrow blocks x [2, 30, 3], at the limit, and what is beside them [5, 2, 40]."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 2, 40, 3, generator=generator).clamp(-2, 2)
    x[:, 0], x[:, 1] = -2.0, 2.0
    units = (torch.tensor(SHARPNESS) * 3 / tiles.NARROW).rsqrt() / 2.0001
    x, y = x[:, :30] * units + FAR, 1.5 * y * units + FAR
    bias = torch.randn(1, 2, 40, generator=generator)
    bias[..., 5] = -math.inf
    return x.to(dtype), torch.cat([y.permute(2, 0, 1), torch.ones_like(bias), bias]).to(dtype)


@pytest.mark.parametrize("kind", [Tile, NarrowTile])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_and_what_weighs_on_points(kind: type[Tile], dtype: torch.dtype) -> None:
    x, others = blocks(dtype)
    c = torch.tensor(SHARPNESS, dtype=dtype)
    assert are_narrow(x.amin(dim=1), x.amax(dim=1), c, others[:-2].abs().amax(dim=(1, 2))).all()
    far, y, bias = x.double(), others[:-2].double(), others[-1].double()
    apart = far.unsqueeze(2) - y.permute(1, 2, 0).unsqueeze(1)  # [G, S, L, D]
    scores = bias.unsqueeze(1) - (apart.square() * c.double()).sum(-1)
    level = scores.logsumexp(-1)
    incoming = torch.linspace(-1, 2, 30, dtype=torch.float64).expand(2, 30)
    w = (scores - level.unsqueeze(-1)).exp() * incoming.unsqueeze(-1)
    pulls = apart * w.unsqueeze(-1)

    def close(ours: Tensor, exact: Tensor) -> None:
        tolerance = (1e-5 if dtype == torch.float32 else 1e-13) * exact.abs().max().item()
        assert_close(ours.double(), exact, rtol=0, atol=tolerance)

    tile = kind(x, others.clone(), SHARPNESS, Rooms(x))
    matter = scores > level.unsqueeze(-1) - 20
    close(tile.scores().masked_fill(~matter, 0.0), scores.masked_fill(~matter, 0.0))
    p = tile.scores(level.to(dtype)).exp_()
    assert (p[..., 5] == 0).all()
    g = incoming.to(dtype)
    of_x, of_y = tile.pulls(p.clone(), g)
    assert of_x is not None
    close(of_x, -pulls.sum(dim=2))
    close(of_y[:, :-1], pulls.sum(dim=1).mT)
    close(of_y[:, -1], w.sum(dim=1))
    alone, of_y = tile.pulls(p.clone(), g, need_x=False)
    assert alone is None
    close(of_y[:, :-1], pulls.sum(dim=1).mT)
    close(of_y[:, -1], w.sum(dim=1))
    close(tile.squares(p, g), (w.unsqueeze(-1) * apart.square()).sum(dim=(0, 1, 2)))


def test_tiles_share_memory() -> None:
    x, others = blocks(torch.float32)
    rooms = Rooms(x)
    first = Tile(x, others, SHARPNESS, rooms).scores()
    second = NarrowTile(x[:1], others[:, :1].clone(), SHARPNESS, rooms).scores()
    assert first.data_ptr() == second.data_ptr()
    several = torch.cat([x, x]), torch.cat([others, others], 1)
    larger = Tile(*several, SHARPNESS, rooms).scores()
    assert torch.equal(larger, Tile(*several, SHARPNESS, Rooms(x)).scores())


def test_what_is_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    low = torch.zeros(3, 2)
    high = torch.tensor([[1.0, 0.0], [0.0, 1.0], [9.0, 9.0]])
    sharpness, farthest = torch.tensor([1.0, 4.1 * tiles.NARROW]), torch.tensor([9.0, 9.0])
    assert are_narrow(low, high, sharpness, farthest).tolist() == [True, False, False]
    assert not are_narrow(low, high, sharpness, torch.tensor([1e25, 9.0])).any()
    least, limit = torch.tensor([-1.01, -0.99, 0.9]) * tiles.MODERATE, torch.tensor(tiles.MODERATE)
    assert are_moderate(least, 0.9 * limit).tolist() == [False, True, True]
    assert not are_moderate(least, 1.1 * limit).any()
    assert not are_moderate(torch.tensor([math.nan, -math.inf]), 0 * limit).any()
    monkeypatch.setattr(tiles, "rounds_on_cpu", lambda: True)
    assert not are_narrow(low, high, sharpness, farthest).any()
