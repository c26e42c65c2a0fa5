"""Multisets: bags of numbers, of different sizes and with duplicates."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import ClassVar, Literal, get_args

import torch
from torch.nn.functional import one_hot

from setwise.data.sets import mask_sets, pad_sets
from setwise.experiments.tasks.task import CPU, DATA, DataConfig, Task, require_split
from setwise.features import Bernoulli, Categorical, Features
from setwise.features.family import Scoring

Absent = Literal["presence", "dummies"]
_MOST_DRAWS = 10_000_000


@dataclass(frozen=True)
class MultisetData(DataConfig):
    """Bags of numbers, no two of them the same, read as how often each number is in the bag."""

    kind: ClassVar[str] = "multisets"
    # How many numbers there are; every draw is one of them, each as likely as the others.
    values: int = 10
    # Sizes are as likely as each other, as long as there are new bags of a size.
    least: int = 0
    most: int = 12
    states: int = 20_000
    # The first `train` bags are trained on, the others are held out.
    train: int = 18_000
    # Whether outputs say that they exist, or bags are filled up with dummies to be produced; of no
    # meaning where all bags have the same size.
    absent: Absent = "presence"
    scored_as: Scoring = "categorical"
    seed: int = 0

    def __post_init__(self) -> None:
        known = get_args(Absent)
        if self.absent not in known:
            raise ValueError(f"absent: must be one of {', '.join(known)}, got {self.absent!r}")
        if not 0 <= self.least <= self.most or self.most < 1 or self.values < 1:
            raise ValueError(
                f"data: expected 0 <= least <= most, and most and values at least 1, got least "
                f"{self.least}, most {self.most}, values {self.values}"
            )
        sizes = range(self.least, self.most + 1)
        there = sum(comb(self.values + size - 1, size) for size in sizes)
        require_split("data", self.train, self.states, there)

    def load(self, folder: Path = DATA, device: torch.device = CPU) -> Task:
        numbers = [torch.tensor(bag, dtype=torch.long) for bag in self.bags()]
        sets = [one_hot(bag, self.values).float() for bag in numbers]
        features = Features(Categorical(self.values)).scored_as(self.scored_as)
        if self.least == self.most:
            return Task.from_sets(torch.stack(sets), self.train, features)
        if self.absent == "presence":
            elements, valid = mask_sets(sets, self.most)
            return Task.from_sets(elements, self.train, features, valid=valid)
        with_flag = Features(*features.blocks, Bernoulli(1))
        return Task.from_sets(pad_sets(sets, self.most, features), self.train, with_flag)

    def numbers(self) -> int:
        return self.states * self.most * (self.values + 1)

    def bags(self) -> list[tuple[int, ...]]:
        """The bags, each in ascending order."""
        generator = torch.Generator().manual_seed(self.seed)
        found: dict[tuple[int, ...], None] = {}
        left = max(_MOST_DRAWS, 10 * self.states)
        while len(found) < self.states:
            if left <= 0:
                raise ValueError(
                    f"data: {len(found)} different bags were found, not {self.states}: the others "
                    f"are too rare to be drawn; ask for fewer states"
                )
            left -= self.states
            sizes = torch.randint(
                self.least, self.most + 1, (self.states,), generator=generator
            ).tolist()
            drawn = torch.randint(self.values, (self.states, self.most), generator=generator)
            for size, row in zip(sizes, drawn.tolist(), strict=True):
                found.setdefault(tuple(sorted(row[:size])))
        # The rare ones are found last, and are to be held out no more often than others.
        bags = list(found)[: self.states]
        order = torch.randperm(len(bags), generator=generator)
        return [bags[place] for place in order.tolist()]
