"""Why a problem has no valid plan, in one word or two, so that failures can be counted."""

from __future__ import annotations

from enum import StrEnum

from setwise.planning.downward import Outcome
from setwise.planning.latplan import PlanningResult
from setwise.planning.validate import FaultKind


class Failure(StrEnum):
    """Of several that apply, the first of this list, from the codes to the steps."""

    UNKNOWN_INIT = "unknown init"
    UNKNOWN_GOAL = "unknown goal"
    NO_PLAN = "no plan"  # the planner found none; the outcome says why
    COLLISION = "collision"  # a wrong state or step has a code that several states share
    BAD_INIT = "bad reconstruction of the init"
    BAD_GOAL = "bad reconstruction of the goal"
    BAD_STATE = "bad reconstruction of another state"
    # Between states that are all legal. The planner only takes legal steps, so if no code is
    # shared, a state on the way was decoded into another legal one.
    ILLEGAL_STEP = "illegal step"


def failure_of(result: PlanningResult) -> Failure | None:
    """The class of a failure; None if the plan is valid."""
    if result.outcome is Outcome.UNKNOWN_INIT:
        return Failure.UNKNOWN_INIT
    if result.outcome is Outcome.UNKNOWN_GOAL:
        return Failure.UNKNOWN_GOAL
    if result.report is None:
        return Failure.NO_PLAN
    report, shared = result.report, set(result.shared)
    if report.valid:
        return None
    wrong: set[int] = set()  # states
    steps: set[int] = set()
    for fault in report.faults:
        (steps if fault.kind is FaultKind.ILLEGAL_STEP else wrong).add(fault.at)
    if shared & (wrong | steps | {step - 1 for step in steps}):
        return Failure.COLLISION
    if 0 in wrong:
        return Failure.BAD_INIT
    if report.length in wrong:
        return Failure.BAD_GOAL
    return Failure.BAD_STATE if wrong else Failure.ILLEGAL_STEP
