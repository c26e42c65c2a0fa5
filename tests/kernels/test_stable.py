"""Stable matchings, beside pairs that are taken one after the other by their costs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from setwise.kernels.stable import stable_matching


def pair_after_pair(costs: Tensor, rows: Tensor, columns: Tensor) -> list[int]:
    """Of one set; of equal costs the first."""
    M, N = costs.shape
    places = ((costs[i, j].item(), i, j) for i in range(M) for j in range(N))
    matching = [-1] * M
    for cost, i, j in sorted(places):
        if matching[i] < 0 and j not in matching and rows[i] and columns[j]:
            assert cost == cost
            matching[i] = j
    return matching


@pytest.mark.parametrize("kind", ["different", "equal", "forbidden", "in a row"])
@pytest.mark.parametrize(("M", "N"), [(1, 1), (4, 7), (7, 4), (12, 12)])
def test_it_is_what_taking_the_cheapest_ends_in(kind: str, M: int, N: int) -> None:
    generator = torch.Generator().manual_seed(0)
    costs = torch.randn(40, M, N, generator=generator)
    if kind == "equal":
        costs = costs.round()
    if kind == "forbidden":
        costs[torch.rand(costs.shape, generator=generator) < 0.4] = math.inf
    if kind == "in a row":  # each target waits for the one before it
        costs = (torch.arange(M).unsqueeze(1) - torch.arange(N) + 0.4).square().expand(40, M, N)
        costs = costs + 10 * torch.arange(M).unsqueeze(1)
    rows = torch.rand(40, M, generator=generator) < 0.8
    columns = torch.rand(40, N, generator=generator) < 0.8
    found = stable_matching(costs, rows, columns)
    for k in range(40):
        assert found[k].tolist() == pair_after_pair(costs[k], rows[k], columns[k])
