"""What an output is worth: the numbers that tables show, example by example.

Legend: K members, s examples, N elements, F features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from setwise.experiments.presence import comparable
from setwise.features import Features
from setwise.metrics import multiset_equality, set_success


class Measure(Protocol):
    """Judges outputs. ``metric`` names the first of its numbers, which is the one of the table."""

    @property
    def metric(self) -> str: ...

    @property
    def curve_examples(self) -> int | None:
        """About how many examples a learning curve is measured on; None is all of them."""

    @property
    def learned(self) -> str | None:
        """Tells apart what was learned before the networks and decides their data, if anything."""

    def __call__(
        self, logits: Tensor, finite: Tensor, targets: Tensor, features: Features
    ) -> dict[str, Tensor]:
        """Values [K, s] by name of logits [K, s, N, F] for targets [s, N, F].

        With presence both have one more number; see `setwise.experiments.presence`.
        Where ``finite`` [K, s] is False the output was no number at all.
        """

    def total(self, values: Tensor) -> Tensor:
        """The number of each member [K] from the values [K, s] of its examples."""

    def to(self, device: torch.device) -> Measure: ...


@dataclass(frozen=True)
class SetSuccess:
    """The share of sets that are produced: ``success`` as the paper counts, and ``exact``.

    A success has every target among the outputs; if it is exact, it has nothing else. Continuous
    features may be ``tolerance`` apart.
    """

    metric: str = "success"
    curve_examples: int | None = None
    learned: str | None = None
    tolerance: float = 0.0

    def __call__(
        self, logits: Tensor, finite: Tensor, targets: Tensor, features: Features
    ) -> dict[str, Tensor]:
        targets = targets.expand(len(logits), *targets.shape)
        z, x, options = comparable(logits, targets, features.width)
        near = self.tolerance
        found = {
            "success": set_success(z, x, features, tolerance=near, reduction="none", **options),
            "exact": multiset_equality(z, x, features, tolerance=near, reduction="none", **options),
        }
        return {name: value.masked_fill(~finite, 0.0) for name, value in found.items()}

    def total(self, values: Tensor) -> Tensor:
        return values.mean(dim=-1)

    def to(self, device: torch.device) -> SetSuccess:
        return self
