"""Sets of different sizes and in random order: nothing is lost, invented or favoured."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import setwise as sw
from setwise import Angle, Bernoulli, Categorical, Features, Gaussian, Poisson

MIXED = Features(Categorical(3), Bernoulli(2), Gaussian(1), Categorical(2))
LOSSES: list[Callable[..., Tensor]] = [
    sw.ordered_cross_entropy,
    sw.set_cross_entropy,
    sw.set_average,
    sw.hausdorff,
    sw.assignment_cross_entropy,
]
sizes_of_sets = st.lists(st.integers(0, 6), min_size=1, max_size=5)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_sets(sizes: list[int], features: Features, seed: int = 0) -> list[Tensor]:
    generator = seeded(seed)
    return [features.random_targets((size,), generator) for size in sizes]


def rows(elements: Tensor) -> list[tuple[float, ...]]:
    return sorted(tuple(row) for row in elements.tolist())


@pytest.mark.parametrize("features", [None, MIXED], ids=["binary", "mixed"])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(sizes=sizes_of_sets, room=st.integers(0, 3), seed=st.integers(0, 1000))
def test_unpad_inverts_pad(
    features: Features | None, sizes: list[int], room: int, seed: int
) -> None:
    sets = random_sets(sizes, features or Features(Bernoulli(4)), seed)
    size = max(sizes) + room
    padded = sw.pad_sets(sets, size, features)
    assert padded.shape == (len(sets), size, sets[0].shape[1] + 1)
    back = sw.unpad_sets(padded)
    assert all(one.equal(two) for one, two in zip(sets, back, strict=True))
    shuffled = sw.unpad_sets(sw.shuffle_sets(padded, seeded(seed)))
    assert all(rows(one) == rows(two) for one, two in zip(sets, shuffled, strict=True))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(sizes=sizes_of_sets, features=st.sampled_from([Features(Bernoulli(3)), MIXED]))
def test_dummies_are_distinct_and_flagged(sizes: list[int], features: Features) -> None:
    """A set holds no element twice, so the dummies of one set must differ among themselves."""
    for size, padded in zip(
        sizes, sw.pad_sets(random_sets(sizes, features), 7, features), strict=True
    ):
        assert padded[:, -1].tolist() == [0.0] * size + [1.0] * (7 - size)
        assert len(set(rows(padded[size:]))) == 7 - size


def test_dummies_of_the_paper() -> None:
    """With 5 features they count in binary: 00000, 00001, 00010, 00011, ..., the flag last."""
    padded = sw.pad_sets([torch.ones(2, 5)], size=2 + 32)[0]
    assert padded[:2].tolist() == [[1, 1, 1, 1, 1, 0]] * 2
    assert padded[2:6].tolist() == [
        [0, 0, 0, 0, 0, 1],
        [0, 0, 0, 0, 1, 1],
        [0, 0, 0, 1, 0, 1],
        [0, 0, 0, 1, 1, 1],
    ]
    spelled = ["".join(str(int(bit)) for bit in row[:-1]) for row in padded[2:].tolist()]
    assert spelled == [f"{k:05b}" for k in range(32)]


def test_dummies_of_categorical_blocks_are_proper_elements() -> None:
    features = Features(Categorical(3), Categorical(2), Bernoulli(1))
    dummies = sw.pad_sets([torch.zeros(0, 6)], 12, features)[0]
    first, second, flag = features.split(dummies[:, :-1])
    assert first.sum(-1).eq(1).all()
    assert second.sum(-1).eq(1).all()
    digits = torch.stack([first.argmax(-1), second.argmax(-1), flag[:, 0].long()], -1)
    assert digits.tolist() == [[i, j, k] for i in range(3) for j in range(2) for k in range(2)]


def test_counts_spell_in_decimals_and_angles_in_quarters() -> None:
    features = Features(Angle(1), Gaussian(1), Poisson(2))
    dummies = sw.pad_sets([torch.zeros(0, 4)], 400, features)[0, :, :-1]
    assert dummies[123, 1:].tolist() == [0.0, 2.0, 3.0]
    assert dummies[[0, 100, 200, 300], 0].tolist() == pytest.approx(
        [0.0, math.pi / 2, -math.pi, -math.pi / 2]
    )


@pytest.mark.parametrize(
    ("features", "most"),
    [
        (Features(Bernoulli(3)), 8),
        (Features(Categorical(3), Bernoulli(1)), 6),
        (Features(Gaussian(2)), 1),
        (Features(Poisson(1)), 10),
        (Features(Angle(2)), 16),
        (Features(Angle(1), Gaussian(1), Poisson(1)), 40),
    ],
    ids=str,
)
def test_more_dummies_than_there_are_elements(features: Features, most: int) -> None:
    sets = random_sets([2, 1], features)
    assert sw.pad_sets(sets, 1 + most, features).shape[1] == 1 + most
    with pytest.raises(ValueError, match=f"size: {most + 1} dummies"):
        sw.pad_sets(sets, 2 + most, features)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64])
def test_filling_keeps_the_type(dtype: torch.dtype) -> None:
    sets = [torch.ones(1, 3, dtype=dtype), torch.ones(2, 3, dtype=dtype)]
    assert sw.pad_sets(sets).dtype == dtype
    assert sw.mask_sets(sets)[0].dtype == dtype


@settings(max_examples=60, deadline=None, derandomize=True)
@given(sizes=sizes_of_sets, room=st.integers(0, 3))
def test_mask_sets_fills_with_zeros_that_the_mask_hides(sizes: list[int], room: int) -> None:
    sets = random_sets(sizes, MIXED)
    elements, valid = sw.mask_sets(sets, max(sizes) + room)
    assert elements.shape == (len(sets), max(sizes) + room, MIXED.width)
    assert valid.sum(-1).tolist() == sizes
    assert not elements[~valid].any()
    back = [one[mask] for one, mask in zip(elements, valid, strict=True)]
    assert all(one.equal(two) for one, two in zip(sets, back, strict=True))


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=5),
    features=st.sampled_from([Features(Bernoulli(3)), Features(Gaussian(2)), MIXED]),
    seed=st.integers(0, 1000),
)
def test_masked_sets_cost_what_the_sets_cost(
    loss: Callable[..., Tensor], sizes: list[tuple[int, int]], features: Features, seed: int
) -> None:
    """Also for empty sets, whose cost is 0, or infinite where only the outputs are missing."""
    ordered = loss is sw.ordered_cross_entropy
    targets = random_sets([m for m, _ in sizes], features, seed)
    generator = seeded(seed)
    outputs = [
        torch.randn(m if ordered else n, features.width, generator=generator) for m, n in sizes
    ]
    target, target_valid = sw.mask_sets(targets, 6)
    output, output_valid = sw.mask_sets(outputs, 6)
    masks = {"input_valid": output_valid, "target_valid": target_valid}
    together = loss(output, target, features, **masks, reduction="none")
    apart = [loss(y, x, features) for y, x in zip(outputs, targets, strict=True)]
    torch.testing.assert_close(together, torch.stack(apart), rtol=1e-5, atol=1e-5)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    lead=st.sampled_from([(), (3,), (2, 3), (1, 2, 2), (0,)]),
    M=st.integers(0, 6),
    seed=st.integers(0, 1000),
)
def test_shuffling_keeps_the_elements_whole(lead: tuple[int, ...], M: int, seed: int) -> None:
    sets = torch.randn(*lead, M, 2, generator=seeded(seed))
    shuffled = sw.shuffle_sets(sets, seeded(seed))
    assert shuffled.shape == sets.shape
    flat = (math.prod(lead), M, 2)
    pairs = zip(sets.reshape(flat), shuffled.reshape(flat), strict=True)
    assert all(rows(one) == rows(two) for one, two in pairs)
    assert shuffled.equal(sw.shuffle_sets(sets, seeded(seed)))


def test_the_generator_decides_the_order() -> None:
    sets = torch.randn(4, 20, 2, generator=seeded(0))
    generator = seeded(1)
    first, second = sw.shuffle_sets(sets, generator), sw.shuffle_sets(sets, generator)
    assert not first.equal(second)
    assert first.equal(sw.shuffle_sets(sets, seeded(1)))
    torch.manual_seed(3)
    without = sw.shuffle_sets(sets)
    torch.manual_seed(3)
    assert without.equal(sw.shuffle_sets(sets))


def test_every_set_gets_an_order_of_its_own() -> None:
    sets = torch.arange(10.0).reshape(10, 1).expand(4, 5, 10, 1)
    orders = sw.shuffle_sets(sets, seeded(0)).flatten(0, 1)
    assert len({tuple(order.flatten().tolist()) for order in orders}) == 20


def test_every_order_is_equally_likely() -> None:
    """Chi-square over the 6 orders of 3 elements; 20.5 is passed once in a thousand seeds."""
    count = 6000
    sets = torch.arange(3.0).reshape(3, 1).expand(count, 3, 1)
    orders = Counter(map(tuple, sw.shuffle_sets(sets, seeded(0)).squeeze(-1).tolist()))
    expected = count / 6
    seen = [orders[order] for order in permutations((0.0, 1.0, 2.0))]
    assert sum(seen) == count
    assert sum((n - expected) ** 2 / expected for n in seen) < 20.5


@pytest.mark.parametrize("lead", [(), (5,), (2, 3)])
def test_the_mask_travels_with_the_elements(lead: tuple[int, ...]) -> None:
    sets = torch.arange(20.0).unsqueeze(-1).expand(*lead, 20, 1)
    valid = sets[..., 0] < 8  # an element tells whether it is valid
    shuffled, mask = sw.shuffle_sets(sets, seeded(0), valid=valid)
    assert mask.equal(shuffled[..., 0] < 8)
    assert not mask.equal(valid)
    assert mask.sum(-1).equal(valid.sum(-1))


def test_shuffling_lets_gradients_through() -> None:
    sets = torch.randn(2, 4, 3, generator=seeded(0)).requires_grad_()
    weight = torch.randn(2, 4, 3, generator=seeded(1))
    (gradient,) = torch.autograd.grad((sw.shuffle_sets(sets, seeded(2)) * weight).sum(), sets)
    order = sw.shuffle_sets(torch.arange(4.0).reshape(4, 1).expand(2, 4, 1), seeded(2)).long()
    assert gradient.gather(1, order.expand_as(gradient)).equal(weight)
