"""What is told of a loss in which rows of the costs of pairs are reduced.

Legend: B sets, M targets, N outputs, F features.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from torch import Tensor

# The name, width and number of each block: see `setwise.features.family.Family.kernel`.
Blocks = tuple[tuple[str, int, float], ...]
# What becomes of the costs of pairs; see `triton.small_losses.small_loss`.
Mode = Literal["soft", "mean", "worst"]


class Call(NamedTuple):
    """One loss of all sets; the formulas are those of `small_losses.small_loss`."""

    blocks: Blocks
    mode: Mode
    both: bool  # directions
    reduction: str
    temperature: float | Tensor
    skip_negligible: bool
    output_valid: Tensor | None  # [B, N]: which may be chosen; some in every set
    target_valid: Tensor | None  # [B, M]
    weight: Tensor | None  # [B, M]: what targets count
    share: Tensor | None  # [B, N]: what outputs count, in the other direction

    def factor(self, sets: int) -> float:
        """What the loss of a set is multiplied by."""
        return 1.0 / sets if self.reduction == "mean" else 1.0


class Existence(NamedTuple):
    """That outputs may not exist, and what is to be paid for it; see `setwise.losses.presence`."""

    logits: Tensor  # [B, N]
    weight: float
    choice: Tensor  # [B, N]: what it costs to choose an output
    valid: Tensor  # [B, N]: of which outputs there may be
    number: Tensor  # [B]: how many there are to be
