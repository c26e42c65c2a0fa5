"""How far a training is, besides its tensors: what a checkpoint tells, held against the training.

Legend: K members.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class State:
    """What, besides tensors, a resumed run goes on from."""

    epoch: int = 0
    seconds: float = 0.0
    # For each evaluation its epoch, and under every other name a number for each member.
    history: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_state(
    facts: dict[str, Any], epochs: int, evaluations: Sequence[int], columns: set[str], members: int
) -> State:
    """The state in the facts of a checkpoint; a ValueError for one that no such training reaches.

    It is evaluated at the epochs ``evaluations``, which gives it ``columns`` of K numbers.
    """
    epoch: Any = facts.get("epoch")
    seconds: Any = facts.get("seconds")
    history: Any = facts.get("history")
    if type(epoch) is not int or not 0 < epoch <= epochs:
        raise ValueError(f"epoch: expected one from 1 to {epochs}, got {str(epoch)[:40]}")
    if not _is_number(seconds) or not 0 <= seconds < math.inf:
        raise ValueError(f"seconds: expected a number, got {str(seconds)[:40]}")
    reached = [one for one in evaluations if one <= epoch]
    if not isinstance(history, list) or len(history) != len(reached):
        raise ValueError(f"history: expected a list of {len(reached)} evaluations")
    for expected, point in zip(reached, history, strict=True):
        if not isinstance(point, dict) or point.keys() != columns | {"epoch"}:
            named = ", ".join(sorted(columns))
            raise ValueError(f"history: expected epoch, {named} at epoch {expected}")
        if point["epoch"] != expected:
            raise ValueError(f"history: expected epoch {expected}, got {str(point['epoch'])[:40]}")
        for name in columns:
            values = point[name]
            if not isinstance(values, list) or len(values) != members:
                raise ValueError(f"history: expected {members} numbers as {name}")
            if not all(_is_number(value) for value in values):
                raise ValueError(f"history: expected numbers as {name}, got {str(values)[:40]}")
    return State(epoch, float(seconds), history)


def _is_number(value: Any) -> bool:
    """NaN is one: it is the loss of a member that has diverged."""
    return isinstance(value, int | float) and not isinstance(value, bool)
