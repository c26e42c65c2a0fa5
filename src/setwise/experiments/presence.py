"""Sets of different sizes without dummies: what is said of an element's existence, beside it.

Legend: N outputs, M targets, F features; ``*`` any leading dimensions.

Targets [*, M, F + 1] end in 1 for an element and 0 for filling, outputs [*, N, F + 1] in the logit
that they exist. Beside the elements these go wherever the elements go: into another order, through
a network, to a loss and to a measure.
"""

from __future__ import annotations

from typing import TypedDict

from torch import Tensor


class PresenceOptions(TypedDict, total=False):
    """Arguments of losses and metrics."""

    presence: Tensor  # [*, N]
    target_valid: Tensor  # [*, M]


def split_presence(sets: Tensor, width: int) -> tuple[Tensor, Tensor | None]:
    """The elements [*, N, F] and what is said of their existence [*, N]: None if nothing is."""
    return sets[..., :width], sets[..., width] if sets.shape[-1] > width else None


def comparable(
    outputs: Tensor, targets: Tensor, width: int
) -> tuple[Tensor, Tensor, PresenceOptions]:
    """Outputs and targets of F features, and the options by which a loss or a metric compares them.

    There are none where nothing is said of existence.
    """
    logits, exist = split_presence(outputs, width)
    elements, real = split_presence(targets, width)
    if exist is None or real is None:
        return logits, elements, {}
    return logits, elements, {"presence": exist, "target_valid": real > 0}
