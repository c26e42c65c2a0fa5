"""The judge of plans: every decoded state, every step, both ends and the length.

Legend: P states of a plan, N objects, F features, C numbers of a configuration.

A plan of n steps has the states 0 to n, and step k leads from state k - 1 to state k. Nothing here
knows of codes or networks: a plan is what was decoded, and is held against the world alone.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

from torch import Tensor

from setwise.planning.exact import shortest_length
from setwise.worlds import World


class FaultKind(StrEnum):
    """What can be wrong with a plan."""

    ILLEGAL_STATE = "illegal state"
    ILLEGAL_STEP = "illegal step"
    WRONG_INIT = "wrong init"
    WRONG_GOAL = "wrong goal"


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, and where."""

    kind: FaultKind
    at: int  # the number of the state, or of the step
    reason: str
    nearest: list[int] | None = None  # the legal state nearest to an illegal one
    distance: float | None = None  # between the two

    def __str__(self) -> str:
        place = "step" if self.kind is FaultKind.ILLEGAL_STEP else "state"
        text = f"{place} {self.at}: {self.kind}: {self.reason}"
        if self.nearest is not None:
            text += f"; the nearest legal state is {self.nearest}, at distance {self.distance:g}"
        return text


@dataclass(frozen=True)
class Report:
    """The verdict on a plan. ``str(report)`` is the text, ``as_dict()`` the data."""

    states: list[list[int] | None]  # the configuration of each state, None where it is illegal
    faults: list[Fault]  # in the order of the plan; illegal states first
    length: int  # steps
    optimum: int | None  # steps of a shortest plan; None if there is no plan at all

    @property
    def valid(self) -> bool:
        return not self.faults

    @property
    def optimal(self) -> bool:
        return self.valid and self.length == self.optimum

    def as_dict(self) -> dict[str, Any]:
        """All of it, in values that JSON has: None for an infinite distance."""
        data = asdict(self) | {"valid": self.valid, "optimal": self.optimal}
        for fault in data["faults"]:
            if fault["distance"] is not None and not math.isfinite(fault["distance"]):
                fault["distance"] = None
        return data

    def __str__(self) -> str:
        best = "there is none" if self.optimum is None else f"a shortest has {self.optimum}"
        verdict = "optimal" if self.optimal else "valid" if self.valid else "invalid"
        head = f"{verdict} plan of {self.length} steps ({best})"
        return "\n".join([head, *(f"  {fault}" for fault in self.faults)])


def validate(world: World, states: Tensor, init: Tensor, goal: Tensor) -> Report:
    """Judge the decoded states [P, N, F] of a plan from ``init`` to ``goal``, [N, F] each.

    All are sets of objects, in any order. Steps from or to an illegal state are not judged: the
    plan is invalid already.

    >>> import torch
    >>> from setwise.worlds import PuzzleWorld
    >>> puzzle = PuzzleWorld(2, 2)
    >>> plan = torch.tensor([[0, 1, 2, 3], [1, 0, 2, 3], [3, 1, 2, 0]])
    >>> objects = puzzle.objects(plan)
    >>> print(validate(puzzle, objects[:2], objects[0], objects[1]))
    optimal plan of 1 steps (a shortest has 1)
    >>> [str(fault)[:35] for fault in validate(puzzle, objects, objects[0], objects[1]).faults]
    ['step 2: illegal step: the blank fro', 'state 2: wrong goal: expected [1, 0']
    """
    if states.dim() != 3 or len(states) == 0:
        raise ValueError(
            f"states: expected shape [states, objects, features], at least one state, "
            f"got {tuple(states.shape)}"
        )
    start, end = legal_state(world, "init", init), legal_state(world, "goal", goal)
    read, faults = _read_all(world, states)
    for step, (before, after) in enumerate(pairwise(read), start=1):
        if before is None or after is None or bool(world.is_legal_move(before, after)):
            continue
        reason = world.explain(before, after)
        faults.append(Fault(FaultKind.ILLEGAL_STEP, step, reason))
    last = len(read) - 1
    for kind, at, wanted in ((FaultKind.WRONG_INIT, 0, start), (FaultKind.WRONG_GOAL, last, end)):
        found = read[at]
        if found is not None and not found.equal(wanted):
            reason = f"expected {wanted.tolist()}, got {found.tolist()}"
            faults.append(Fault(kind, at, reason))
    configurations = [None if one is None else one.tolist() for one in read]
    return Report(configurations, faults, last, shortest_length(world, start, end))


def legal_state(world: World, name: str, objects: Tensor) -> Tensor:
    """The configuration [C] of objects [N, F] that a user gave under a name; an error if none."""
    try:
        return world.configuration_of(objects)
    except ValueError as error:
        raise ValueError(f"{name}: no legal state of {world.name}: {error}") from error


def _read_all(world: World, states: Tensor) -> tuple[list[Tensor | None], list[Fault]]:
    """The configuration of each state, and a fault for each that has none."""
    read: list[Tensor | None] = []
    faults = []
    for number, objects in enumerate(states):
        try:
            read.append(world.configuration_of(objects))
        except ValueError as error:
            read.append(None)
            nearest, distance = world.nearest(objects)
            faults.append(
                Fault(
                    FaultKind.ILLEGAL_STATE, number, str(error), nearest.tolist(), float(distance)
                )
            )
    return read, faults
