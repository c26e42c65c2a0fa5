"""The nearest of few features, found by groups of neighbours, and what is gathered from them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from fused_cases import ELEMENTS, judge

pytest.importorskip("triton")

from setwise.kernels.triton import launch, operations

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [
    pytest.mark.skipif(
        DEVICE == "cpu" and not launch.INTERPRETED, reason="needs a GPU or Triton's interpreter"
    ),
    pytest.mark.filterwarnings("ignore:(divide by zero|invalid value) encountered:RuntimeWarning"),
]


def lattice(n: int, F: int, seed: int) -> Tensor:
    """Points of which many are equal and many others equally far: scores have no rounding."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, (2, n, F), generator=generator).float()


def nearest(queries: Tensor, keys: Tensor, bias: Tensor) -> np.ndarray:
    """By the kernels."""
    ones = torch.ones(2, queries.shape[2])
    found = operations.argmax(*(t.to(DEVICE) for t in (queries, keys, bias, ones)))
    return found.cpu().numpy()


def scores(queries: Tensor, keys: Tensor, bias: Tensor) -> np.ndarray:
    apart = (queries.unsqueeze(2) - keys.unsqueeze(1)).double().square().sum(-1)
    return (bias.double().unsqueeze(1) - apart).numpy()


@pytest.mark.parametrize("N", [1, 3, 16, 130, 259])
@pytest.mark.parametrize("F", [1, 2, 3, 4])
def test_the_first_of_equals(F: int, N: int) -> None:
    """Within a group, between groups of a tile, and between tiles."""
    queries, keys, bias = lattice(11, F, 0), lattice(N, F, 1), torch.zeros(2, N)
    expected = scores(queries, keys, bias).argmax(axis=2)
    np.testing.assert_array_equal(nearest(queries, keys, bias), expected)


def test_of_those_that_may_be_chosen() -> None:
    """And the first of all where none may."""
    queries, keys = lattice(11, 3, 0), lattice(259, 3, 1)
    bias = torch.where(torch.arange(259) % 5 == 3, 0.0, -math.inf).repeat(2, 1)
    found = nearest(queries, keys, bias)
    np.testing.assert_array_equal(found, scores(queries, keys, bias).argmax(axis=2))
    assert (found % 5 == 3).all()
    assert (nearest(queries, keys, torch.full((2, 259), -math.inf)) == 0).all()


@pytest.mark.parametrize("where", [0, 6, 127, 128, 258])
def test_not_a_number_wins(where: int) -> None:
    """Also over what is as near as can be, on either side of it."""
    queries, keys = lattice(11, 3, 0), lattice(259, 3, 1)
    keys[1, where, 2] = math.nan
    found = nearest(queries, keys, torch.zeros(2, 259))
    assert (found[1] == where).all()
    np.testing.assert_array_equal(
        found[0], scores(queries, keys, torch.zeros(2, 259)).argmax(axis=2)[0]
    )


@pytest.mark.parametrize("loss", ["A1H in both directions", "H1H"])
def test_tiles_without_hits(loss: str) -> None:
    """Of more targets and outputs than a tile has, most of which hit nothing."""
    judge(ELEMENTS["points"], loss, 70, 200, device=DEVICE)
    judge(ELEMENTS["points"], loss, 200, 40, masked=True, device=DEVICE)
