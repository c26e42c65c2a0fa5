"""Class-specific numbering: the members of every class are told apart by numbers.

The task is that of Zhang et al., "Multiset-Equivariant Set Prediction with Approximate Implicit
Differentiation" (ICLR 2022), there as a test of networks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import ClassVar

import torch
from torch.nn.functional import one_hot

from setwise.experiments.tasks.task import CPU, DATA, DataConfig, Task, require_split
from setwise.features import Categorical, Features
from setwise.features.family import Scoring


@dataclass(frozen=True)
class NumberingData(DataConfig):
    """From how many there are of each class to the set of all, each with its class and a number.

    Of three a and one b come a0, a1, a2 and b0. Outputs that ask for the same class have to agree
    on who gets which number.
    """

    kind: ClassVar[str] = "numbering"
    classes: int = 4
    size: int = 12
    # The first `train` examples are trained on, the others are held out.
    states: int = 455
    train: int = 400
    scored_as: Scoring = "categorical"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.classes < 2 or self.size < 1:
            raise ValueError(
                f"data: expected at least 2 classes and a size of at least 1, got {self.classes} "
                f"and {self.size}"
            )

    def load(self, folder: Path = DATA, device: torch.device = CPU) -> Task:
        counts = self.counts()
        require_split("data", self.train, self.states, len(counts))
        generator = torch.Generator().manual_seed(self.seed)
        counts = counts[torch.randperm(len(counts), generator=generator)[: self.states]]
        members = torch.stack([torch.arange(self.classes).repeat_interleave(n) for n in counts])
        first = counts.cumsum(-1) - counts
        numbers = torch.arange(self.size) - first.gather(1, members)
        sets = torch.cat([one_hot(members, self.classes), one_hot(numbers, self.size)], dim=-1)
        features = Features(Categorical(self.classes), Categorical(self.size))
        return Task(counts.float(), sets.float(), self.train, features.scored_as(self.scored_as))

    def counts(self) -> torch.Tensor:
        """How many of each class there may be, in every way that adds up: [ways, classes]."""
        slots = self.size + self.classes - 1
        bars = torch.tensor(list(combinations(range(slots), self.classes - 1)))
        ends = torch.cat([bars, torch.full((len(bars), 1), slots)], dim=-1)
        return ends.diff(prepend=torch.full((len(bars), 1), -1), dim=-1) - 1
