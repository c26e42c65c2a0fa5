"""Multisets and numberings as data, judged by counting."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import comb

import pytest
import torch

from setwise.experiments.presence import split_presence
from setwise.experiments.tasks import MultisetData, NumberingData, multisets

BAGS = MultisetData(values=4, most=5, states=60, train=50)


class TestMultisets:
    def test_all_are_different(self) -> None:
        assert len(set(BAGS.bags())) == len(BAGS.bags()) == 60

    def test_there_are_no_more_than_there_are(self) -> None:
        """All of them are found: 4 + size - 1 over size of each size."""
        there = sum(comb(4 + size - 1, size) for size in range(6))
        everything = replace(BAGS, states=there, train=1)
        assert Counter(map(len, everything.bags()))[5] == comb(8, 5)
        with pytest.raises(ValueError, match=f"expected 0 < train <= states <= {there}"):
            replace(BAGS, states=there + 1)

    def test_those_that_hardly_come_are_not_waited_for(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(multisets, "_MOST_DRAWS", 0)
        every = comb(13, 4)  # one in 10,000 draws is of the same number four times
        data = MultisetData(least=4, most=4, states=every, train=1)
        with pytest.raises(ValueError, match=rf"data: \d+ different .*not {every}: .*fewer states"):
            data.bags()

    def test_sizes_and_duplicates(self) -> None:
        bags = replace(BAGS, least=2).bags()
        assert {len(bag) for bag in bags} == {2, 3, 4, 5}
        assert any(len(set(bag)) < len(bag) for bag in bags)

    def test_are_drawn_by_the_seed(self) -> None:
        assert BAGS.bags() == BAGS.bags()
        assert BAGS.bags() != replace(BAGS, seed=1).bags()

    def test_with_presence(self) -> None:
        task = BAGS.load()
        elements, real = split_presence(task.targets, 4)
        assert real is not None
        for bag, numbers, exists in zip(BAGS.bags(), elements, real, strict=True):
            assert numbers[exists > 0].argmax(-1).tolist() == list(bag)
        assert task.targets.numel() == BAGS.numbers()

    def test_with_dummies(self) -> None:
        data = replace(BAGS, least=1, absent="dummies")  # four classes tell four dummies apart
        task = data.load()
        assert not task.presence
        assert task.targets.shape == (60, 5, 4 + 1)
        real = (task.targets[..., -1] == 0).sum(-1).tolist()
        assert real == [len(bag) for bag in data.bags()]

    def test_of_one_size_lack_nothing(self) -> None:
        data = MultisetData(values=4, least=3, most=3, states=20, train=20)
        task = data.load()
        assert not task.presence
        assert task.targets.argmax(-1).tolist() == [list(bag) for bag in data.bags()]

    def test_what_cannot_be(self) -> None:
        with pytest.raises(ValueError, match=r"absent: must be one of presence, dummies, got 'x'"):
            replace(BAGS, absent="x")  # type: ignore[arg-type]
        with pytest.raises(
            ValueError, match=r"expected 0 <= least <= most, .* got least 6, most 5"
        ):
            replace(BAGS, least=6)


class TestNumbering:
    def test_counts_are_all_ways_to_add_up(self) -> None:
        counts = NumberingData(classes=3, size=5).counts()
        assert len({tuple(row) for row in counts.tolist()}) == len(counts) == comb(7, 2)
        assert counts.min() == 0
        assert (counts.sum(-1) == 5).all()

    def test_the_members_of_a_class_have_different_numbers(self) -> None:
        data = NumberingData(classes=3, size=5, states=21, train=20)
        task = data.load()
        for counts, elements in zip(task.inputs.long().tolist(), task.targets, strict=True):
            said = {(row[:3].argmax().item(), row[3:].argmax().item()) for row in elements}
            assert said == {(kind, n) for kind, count in enumerate(counts) for n in range(count)}
        assert (task.targets.sum(-1) == 2).all()
        assert len(torch.unique(task.inputs, dim=0)) == 21

    def test_what_cannot_be(self) -> None:
        with pytest.raises(ValueError, match="expected at least 2 classes and a size of at least"):
            NumberingData(classes=1)
        with pytest.raises(ValueError, match="expected 0 < train <= states <= 455"):
            NumberingData(states=456).load()
