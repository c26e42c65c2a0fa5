"""Orders that depend on nothing but their keys: against plain integers, and against chance."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from setwise.experiments.randomness import hashed, random_order

DRAWS = 24_000
integers = st.integers(-(2**63), 2**63 - 1)


def plain_hash(*keys: int) -> int:
    """The oracle: the finaliser of SplitMix64 in Python's integers, reduced to 64 bits."""
    state, word = 0, 2**64 - 1
    for key in keys:
        state = (key + 0x9E3779B97F4A7C15 + state * 31) & word
        state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & word
        state = ((state ^ state >> 27) * 0x94D049BB133111EB) & word
        state ^= state >> 31
    return state & (2**63 - 1)


def keys_along(moving: str) -> tuple[Tensor, Tensor, Tensor]:
    """Seeds, epochs and rows of `DRAWS` orders, of which one kind of key counts up."""
    counted, constant = torch.arange(DRAWS), torch.full((DRAWS,), 3)
    seeds, epochs, rows = (
        counted if name == moving else constant for name in ("seed", "epoch", "row")
    )
    return seeds, epochs, rows


def which_permutation(orders: Tensor) -> Tensor:
    """The number [*] of each order [*, 4] among the 24, an order that is none being an error."""
    number = torch.full((256,), -1)
    for place, order in enumerate(permutations(range(4))):
        number[sum(4**i * element for i, element in enumerate(order))] = place
    found = number[(orders * torch.tensor([1, 4, 16, 64])).sum(-1)]
    assert (found >= 0).all()
    return found


def assert_uniform(cells: Tensor, count: int) -> None:
    """Chi-square: it has a mean of count - 1 and a variance of twice that; five sigma."""
    expected = len(cells) / count
    statistic = ((cells.bincount(minlength=count) - expected) ** 2 / expected).sum().item()
    freedom = count - 1
    assert statistic < freedom + 5 * math.sqrt(2 * freedom)


moving_keys = pytest.mark.parametrize("moving", ["seed", "epoch", "row"])


@given(st.lists(integers, min_size=1, max_size=4))
def test_the_hash_is_that_of_plain_integers(keys: list[int]) -> None:
    assert hashed(*(torch.tensor(key) for key in keys)).item() == plain_hash(*keys)


def test_keys_broadcast_against_each_other() -> None:
    found = hashed(7, torch.arange(5).unsqueeze(-1), torch.arange(3))
    assert found.tolist() == [[plain_hash(7, a, b) for b in range(3)] for a in range(5)]


@given(st.lists(integers, min_size=1, max_size=3), st.data())
def test_neighbouring_keys_have_nothing_in_common(keys: list[int], data: st.DataObject) -> None:
    """A key that is one larger turns about half of the 63 bits: 31.5, with a deviation of 4."""
    index = data.draw(st.integers(0, len(keys) - 1))
    tensors = [torch.tensor(key).expand(1000) for key in keys]
    tensors[index] = tensors[index] + torch.arange(1000)
    found = hashed(*tensors)
    turned = found[0::2] ^ found[1::2]
    bits = sum(((turned >> bit) & 1).double().mean().item() for bit in range(63))
    assert abs(bits - 31.5) < 5 * 4 / math.sqrt(500)


@moving_keys
def test_every_order_is_equally_likely(moving: str) -> None:
    orders = random_order(4, *keys_along(moving))
    assert_uniform(which_permutation(orders), 24)


@moving_keys
def test_an_order_says_nothing_of_the_next(moving: str) -> None:
    """All 576 pairs of successive orders are equally likely, whichever key counts up."""
    found = which_permutation(random_order(4, *keys_along(moving)))
    assert_uniform(found[0::2] * 24 + found[1::2], 576)
    assert_uniform(found[1:-1:2] * 24 + found[2::2], 576)


def test_seed_epoch_and_row_are_told_apart() -> None:
    """The same numbers as other keys give other orders: 0, 1 is not 1, 0."""
    seeds, epochs, rows = keys_along("row")
    ours = which_permutation(random_order(4, seeds, epochs, rows))
    for others in [(seeds, rows, epochs), (rows, epochs, seeds), (epochs, rows)]:
        assert_uniform(ours * 24 + which_permutation(random_order(4, *others)), 576)


@given(st.integers(1, 300), integers, integers)
def test_orders_are_permutations(length: int, seed: int, epoch: int) -> None:
    order = random_order(length, torch.tensor([seed]), torch.tensor([epoch]))
    assert order.shape == (1, length)
    assert order.sort().values.tolist() == [list(range(length))]


def test_an_order_does_not_depend_on_what_else_is_drawn() -> None:
    """Neither on other orders of the same call, nor on calls before."""
    seeds, rows = torch.arange(6).unsqueeze(-1), torch.arange(50)
    together = random_order(9, seeds, rows)
    assert together.shape == (6, 50, 9)
    assert together.equal(random_order(9, seeds, rows))
    for seed in range(6):
        for row in (0, 7, 49):
            alone = random_order(9, torch.tensor(seed), torch.tensor(row))
            assert alone.equal(together[seed, row])
