"""Points in Triton's interpreter: sums relative to the best of a few keys, where that will do."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import Tensor

from pairwise import agree
from setwise.kernels import dispatch

pytest.importorskip("triton")

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="there the kernels are compiled"),
    pytest.mark.filterwarnings("ignore:(divide by zero|invalid value) encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
]

slow = partial(pytest.param, marks=pytest.mark.slow)

# Of so many keys every third is looked at first.
N = 200
SEEN, UNSEEN = 0, 1


def operands() -> list[Tensor]:
    """Queries, keys and bias, whose scores are all close to 0."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 20, 3), (2, N, 3), (2, N)]
    return [torch.rand(shape, generator=generator) for shape in shapes]


@pytest.mark.parametrize("best", [slow(SEEN), UNSEEN])
@pytest.mark.parametrize("ahead", [slow(50.0), 100.0, slow(300.0)])
def test_a_key_far_ahead(best: int, ahead: float) -> None:
    """By more than e^88, if it is not looked at, its exponential is beyond float32."""
    leaves = operands()
    leaves[2][1, best] += ahead
    value = agree(leaves)
    assert (value[1] > ahead).all()
    assert (value[0] < 10).all()


@pytest.mark.parametrize("below", [slow(50.0), slow(100.0), 300.0])
def test_keys_far_below_zero(below: float) -> None:
    leaves = operands()
    leaves[2] -= below
    assert (agree(leaves) < 20 - below).all()


@pytest.mark.parametrize("score", [slow(0.0), -300.0])
def test_what_is_looked_at_is_masked(score: float) -> None:
    leaves = operands()
    leaves[2][0] = -math.inf
    leaves[2][0, UNSEEN] = score
    agree(leaves)


def test_not_a_number_is_seen() -> None:
    leaves = operands()
    leaves[1][0, UNSEEN, 0] = math.nan
    value = dispatch.logsumexp(*leaves, "triton", skip_negligible=True)
    assert value[0].isnan().all()
    assert value[1].isfinite().all()


def test_a_query_does_not_depend_on_those_beside_it() -> None:
    """Not in a single bit, whether or not one of them has to look again."""
    leaves = operands()
    leaves[0][0, 3] = 200.0
    leaves[1][0, UNSEEN] = 1.0
    leaves[1][0, UNSEEN + 1 :] *= 0.5
    value = agree(leaves)
    alone = dispatch.logsumexp(leaves[0][:, :3], *leaves[1:], "triton", skip_negligible=True)
    assert torch.equal(value[:, :3], alone)
    assert value[0, 3] > 500
