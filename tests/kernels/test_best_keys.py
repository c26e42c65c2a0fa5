"""The nearest of few features, found by groups of neighbours, and what is gathered from them.

The same by the kernels for points and by those for clouds that are not worth searching.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import clouds as given
from fused_cases import ELEMENTS, judge
from setwise.kernels import reference

pytest.importorskip("triton")

import triton.language as tl

from setwise.kernels.triton import clouds, launch, operations, pruned, tiles

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [
    pytest.mark.skipif(
        DEVICE == "cpu" and not launch.INTERPRETED, reason="needs a GPU or Triton's interpreter"
    ),
    pytest.mark.filterwarnings("ignore:(divide by zero|invalid value) encountered:RuntimeWarning"),
]
TILE = tiles.argmax_tiles(4096, 4096, 3, torch.float32, "float32", tiles.H200_SHARED_MEMORY).c
SIZES = [1, 3, 16, TILE - 1, TILE + 1, 2 * TILE + 88]
Search = Callable[..., Tensor]


def by_points(*operands: Tensor) -> Tensor:
    return operations.argmax(*(t.to(DEVICE) for t in operands)).cpu()


def by_clouds(*operands: Tensor) -> Tensor:
    return clouds.argmax(*(t.to(DEVICE) for t in operands)).cpu()


EACH = pytest.mark.parametrize("search", [by_points, by_clouds])


@pytest.fixture(autouse=True)
def _nothing_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clouds are not worth searching; compiled kernels must not see what they know change."""
    if DEVICE == "cpu":
        monkeypatch.setattr(pruned, "ONE_IN", tl.constexpr(10**9))


def grid(n: int, F: int, seed: int) -> Tensor:
    """Points of which many are equal and many others equally far: scores have no rounding."""
    return given.points("grid", (2, n, F), torch.Generator().manual_seed(seed))


def expected(queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor | None) -> np.ndarray:
    """The first of the best in float64; a bias that all keys have makes no difference."""
    found = reference.scores(
        *(None if t is None else t.double() for t in (queries, keys, bias, sharpness))
    )
    return found.numpy().argmax(axis=2)  # NumPy promises the first


def judge_ties(search: Search, F: int, N: int) -> None:
    """Where all that differs is which features do, scores are equal to the bit at any bias."""
    ones, none = torch.ones(2, F), torch.zeros(2, N)
    for most, bias in ((4, 0.0), (2, 0.3), (2, -6.0)):
        queries, keys = grid(11, F, 0) % most, grid(N, F, 1) % most
        found = search(queries, keys, torch.full((2, N), bias), ones)
        assert np.array_equal(found, expected(queries, keys, none, ones))


@pytest.mark.parametrize("N", SIZES)
@pytest.mark.parametrize("F", [1, 3, 4])
def test_the_first_of_equals(F: int, N: int) -> None:
    """Within a group, between groups of a tile, and between tiles."""
    judge_ties(by_points, F, N)


@pytest.mark.parametrize("N", SIZES[-2:])
def test_the_first_of_equals_in_a_cloud(N: int) -> None:
    judge_ties(by_clouds, 3, N)


def test_the_first_of_equal_products() -> None:
    """Of features that are multiplied."""
    N = SIZES[-1]
    queries, keys, none = grid(11, 3, 0) % 2, grid(N, 3, 1) % 2, torch.zeros(2, N)
    for bias in (0.0, 0.3, -6.0):
        found = by_points(queries, keys, torch.full((2, N), bias))
        assert np.array_equal(found, expected(queries, keys, none, None))


@EACH
def test_of_those_that_may_be_chosen(search: Search) -> None:
    """And the first of all where none may."""
    N = SIZES[-1]
    queries, keys, ones = grid(11, 3, 0), grid(N, 3, 1), torch.ones(2, 3)
    bias = torch.where(torch.arange(N) % 5 == 3, 0.0, -math.inf).repeat(2, 1)
    found = search(queries, keys, bias, ones)
    assert np.array_equal(found, expected(queries, keys, bias, ones))
    assert (found % 5 == 3).all()
    assert (search(queries, keys, torch.full((2, N), -math.inf), ones) == 0).all()


def judge_not_a_number(search: Search, where: int) -> None:
    N = SIZES[-1]
    queries, keys, ones = grid(11, 3, 0), grid(N, 3, 1), torch.ones(2, 3)
    keys[1, where, 2] = math.nan
    found = search(queries, keys, torch.zeros(2, N), ones)
    assert (found[1] == where).all()
    assert np.array_equal(found[:1], expected(queries, keys, torch.zeros(2, N), ones)[:1])


@pytest.mark.parametrize("where", [0, 6, TILE - 1, TILE, 2 * TILE, SIZES[-1] - 1])
def test_not_a_number_wins(where: int) -> None:
    """Also over what is as near as can be, on either side of it."""
    judge_not_a_number(by_points, where)


def test_not_a_number_wins_in_a_cloud() -> None:
    judge_not_a_number(by_clouds, TILE + 1)


@pytest.mark.parametrize("N", [3, 17])
@pytest.mark.parametrize("infinite", [math.inf, -math.inf])
def test_there_is_such_a_key(N: int, infinite: float) -> None:
    """Also of a query whose products with what fills up a tile are no numbers."""
    queries, bias = torch.full((1, 8, 1), infinite), torch.zeros(1, N)
    keys = torch.arange(1.0, N + 1).view(1, N, 1) * -math.copysign(1.0, infinite)
    found = by_points(queries, keys, bias)
    assert ((found >= 0) & (found < N)).all()


@pytest.mark.parametrize("loss", ["A1H in both directions", "H1H"])
def test_gradients_of_many_tiles(loss: str) -> None:
    """In most of which no target is nearest to a block of outputs: nothing else is passed over."""
    judge(ELEMENTS["points"], loss, 70, 200, device=DEVICE)
    judge(ELEMENTS["points"], loss, 200, 40, masked=True, device=DEVICE)
