"""A task: sets to produce, and the config that makes them.

Legend: S examples, N elements, F features, U distinct elements.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from setwise.experiments.measures import Measure, SetSuccess
from setwise.experiments.presence import split_presence
from setwise.experiments.randomness import Chances
from setwise.features import Features
from setwise.models import find_prototypes
from setwise.registry import Registry
from setwise.worlds import World

# The folder of data sets that are files, unless told otherwise.
DATA = Path("runs")
CPU = torch.device("cpu")
# In data, at most, that a file from outside asks for: half a GiB.
MOST_NUMBERS = 2**27
# Inputs [K, b, ...] and targets [K, b, N, F] of a step of training -> others of the same shapes.
Variation = Callable[[Tensor, Tensor, Chances], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Task:
    """Sets to produce. The first ``train`` examples are trained on, the others held out."""

    # [S, ...], what a network reads: anything, counts, or the targets themselves, which then are
    # the sets to reconstruct; see `setwise.experiments.presentation`.
    inputs: Tensor
    # [S, N, F]; with presence [S, N, F + 1], see `setwise.experiments.presence`.
    targets: Tensor
    train: int
    features: Features
    # If the inputs are counts [S, U] of known elements, those elements [U, F]: a network that adds
    # up its elements needs each of them once, and the targets are the sets that were counted.
    elements: Tensor | None = None
    # How outputs are judged.
    measure: Measure = SetSuccess()  # noqa: RUF009  it has no state
    # How examples differ each time that they are trained on; evaluated they are as they are. All
    # that is random comes from the chances, so that a member sees the same alone and among others,
    # and nothing waits for the device, so that a CUDA graph can hold it.
    vary: Variation | None = None

    @property
    def presence(self) -> bool:
        """Whether outputs have to say that they exist."""
        return self.targets.shape[-1] > self.features.width

    def outputs(self, surplus: int = 0) -> int:
        """How many outputs a network has, some of them beyond the largest set."""
        if surplus < 0 or (surplus and not self.presence):
            raise ValueError(
                f"surplus: expected 0, or more where outputs say whether they exist, got {surplus}"
            )
        return self.targets.shape[1] + surplus

    @property
    def reads_sets(self) -> bool:
        """Whether the inputs are the sets to produce, element by element."""
        return self.inputs is self.targets

    @property
    def reconstructs(self) -> bool:
        """Whether a network reads the sets that it shall produce, or counts of their elements."""
        return self.elements is not None or self.reads_sets

    @cached_property
    def prototypes(self) -> Tensor:
        """Typical elements [N, F] of the sets trained on; the same for all networks."""
        sets, valid = self.trained_on()
        return find_prototypes(sets, self.features, valid=valid)

    def trained_on(self) -> tuple[Tensor, Tensor | None]:
        """The sets [train, N, F], and which of their elements there are, if not all."""
        sets, exists = split_presence(self.targets[: self.train], self.features.width)
        return sets, None if exists is None else exists > 0

    def to(self, device: torch.device) -> Task:
        elements = None if self.elements is None else self.elements.to(device)
        targets = self.targets.to(device)
        return replace(
            self,
            inputs=targets if self.reads_sets else self.inputs.to(device),
            targets=targets,
            elements=elements,
            measure=self.measure.to(device),
        )

    @staticmethod
    def from_sets(
        sets: Tensor,
        train: int,
        features: Features,
        measure: Measure | None = None,
        valid: Tensor | None = None,
    ) -> Task:
        """To reconstruct sets [S, N, F] that few distinct elements make up, read as counts.

        With ``valid`` [S, N] the others are filling, and outputs have to say whether they exist.
        """
        elements, which = sets.flatten(0, 1).unique(dim=0, return_inverse=True)
        which = which.unflatten(0, sets.shape[:2])
        counts = torch.zeros(len(sets), len(elements))
        counts.scatter_add_(1, which, torch.ones(which.shape) if valid is None else valid.float())
        if valid is not None:
            sets = torch.cat([sets, valid.unsqueeze(-1).to(sets)], dim=-1)
        return Task(counts, sets, train, features, elements, measure or SetSuccess())


TASKS: Registry[type[DataConfig]] = Registry("data")


@dataclass(frozen=True)
class DataConfig(ABC):
    """Settings of a data set, which load it; a subclass with a ``kind`` is found by that name.

    A subclass is a frozen dataclass whose fields JSON can hold: numbers, texts, booleans, tuples.
    """

    kind: ClassVar[str]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in vars(cls):
            TASKS.add(cls.kind, cls)

    @abstractmethod
    def load(self, folder: Path = DATA, device: torch.device = CPU) -> Task:
        """The examples, the same for every run with this config; on the CPU.

        Data that are files lie in the folder; what must be learned about them is learned on the
        device.
        """

    # Data that are files, and may have to be made. Of most data there is nothing to do.

    def preparation(self, folder: Path = DATA) -> str | None:
        """What has to be done before these data can be loaded, in words; None if nothing."""
        return None

    def prepare(self, folder: Path, progress: Callable[[int, int], None]) -> None:
        """Do it, and call ``progress`` with how much of how much is there."""
        raise NotImplementedError(f"{type(self).__name__}: define prepare, for preparation says so")

    def bound(self, folder: Path = DATA) -> DataConfig:
        """The same data, bound to the files that are there now: others are refused from then on."""
        return self

    def unbound(self) -> DataConfig:
        """The same data, whichever files they were bound to."""
        return self

    def numbers(self) -> int | None:
        """How many have to be held at least, told without loading; None where only that can tell.

        A file that says which data a network learned from may be anybody's, and is refused if they
        have more than `MOST_NUMBERS`.
        """
        return None

    def moved_to(self, file: Path) -> DataConfig:
        """The same data, whose file lies elsewhere now."""
        raise ValueError(f"was not trained on a file of facts, which {file} is")

    @property
    def world_kind(self) -> str | None:
        """The kind of world whose states these are, told without loading; None if of none."""
        return None

    def world(self, task: Task, folder: Path = DATA) -> World:
        """The world whose states these are, to plan in; ``task`` is what `load` gave."""
        raise ValueError(f"was trained on {self.kind} data, which have no actions")

    def require_learned(self, folder: Path, learned: str | None) -> None:
        """Refuse to load unless what was learned of the data is what a network learned with.

        ``learned`` is `Measure.learned` at that time. Nothing is learned of most data.
        """
        if learned is not None:
            raise ValueError(
                f"data: nothing is learned of {self.kind} data, but the network says that "
                f"something with the SHA-256 {learned} was"
            )


def require_split(data: str, train: int, states: int, most: int | None = None) -> None:
    """Refuse numbers of examples, to train on and in all, that cannot be."""
    if 0 < train <= states and (most is None or states <= most):
        return
    bound = "" if most is None else f" <= {most}"
    raise ValueError(
        f"{data}: expected 0 < train <= states{bound}, got train {train}, states {states}"
    )
