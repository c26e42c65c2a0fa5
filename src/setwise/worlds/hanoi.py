"""The Towers of Hanoi: disks move from peg to peg, and never lie on a smaller one.

Legend: D disks, P pegs; ``*`` any leading dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from setwise.data.checks import require_int
from setwise.features import Categorical, Features
from setwise.worlds.world import World


@dataclass(frozen=True)
class Hanoi(World):
    """A configuration [D] is the peg of each disk, the smallest first.

    >>> Hanoi(3).describe(torch.tensor([1, 0, 0]))
    '3 2 | 1 | -'
    """

    kind: ClassVar[str] = "hanoi"
    feature_names: ClassVar[tuple[str, ...] | None] = ("disk", "peg")
    disks: int = 4
    pegs: int = 3

    def __post_init__(self) -> None:
        require_int("disks", self.disks, 1, 10)
        require_int("pegs", self.pegs, 2, 4)

    @property
    def name(self) -> str:
        return f"hanoi-{self.disks}x{self.pegs}"

    @property
    def features(self) -> Features:
        """An object is a disk and its peg."""
        return Features(Categorical(self.disks), Categorical(self.pegs))

    def states(self) -> Tensor:
        places = self.pegs ** torch.arange(self.disks)
        return torch.arange(self.pegs**self.disks).unsqueeze(-1) // places % self.pegs

    def successors(self, configurations: Tensor) -> tuple[Tensor, Tensor]:
        """Each disk to each peg; legal for a disk that lies on top, to where no smaller one is."""
        disk = torch.arange(self.disks).repeat_interleave(self.pegs)  # [D * P]
        to = torch.arange(self.pegs).repeat(self.disks)
        before = configurations.unsqueeze(-2)  # [*, 1, D]
        origin = configurations[..., disk].unsqueeze(-1)  # [*, D * P, 1]
        smaller = torch.arange(self.disks) < disk.unsqueeze(-1)  # [D * P, D]
        in_the_way = smaller & ((before == origin) | (before == to.unsqueeze(-1)))
        moved = torch.arange(self.disks) == disk.unsqueeze(-1)
        after = torch.where(moved, to.unsqueeze(-1), before)
        return after, ~in_the_way.any(-1) & (origin.squeeze(-1) != to)

    def objects(self, configurations: Tensor) -> Tensor:
        disks = torch.eye(self.disks).expand(*configurations.shape, self.disks)
        return torch.cat([disks, torch.eye(self.pegs)[configurations]], dim=-1)

    def start(self) -> Tensor:
        """Problems lead to all disks on the last peg."""
        return torch.full((self.disks,), self.pegs - 1)

    def describe(self, configuration: Tensor) -> str:
        """The disks of each peg from below, 1 the smallest."""
        where = configuration.tolist()
        pegs = [
            " ".join(str(disk + 1) for disk in reversed(range(self.disks)) if where[disk] == peg)
            for peg in range(self.pegs)
        ]
        return " | ".join(peg or "-" for peg in pegs)
