"""Plans in a learned model: PDDL to Fast Downward, and its steps replayed in the model."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from setwise.files import scratch_folder
from setwise.planning.actions.pddl import LAST_STEP, Domain
from setwise.planning.actions.symbols import Element, State, Symbols, UnknownSymbolError
from setwise.planning.downward import Outcome, require_limits, search
from setwise.planning.translate import TranslationError, translate

if TYPE_CHECKING:
    from setwise.planning.actions.model import ActionModel

# What to search with, by name; any other name is a heuristic for A*.
SEARCHES = {
    "ff": ["--evaluator", "h=ff()", "--search", "lazy_greedy([h],preferred=[h])"],
    # As LAMA's first round (Richter and Westphal, 2010), with landmarks but not all of its orders,
    # for which the planner of the extra never ends.
    "lama": [
        *("--evaluator", "h=ff()", "--evaluator", "l=lmcount(lm_rhw(),pref=true)"),
        *("--search", "lazy_greedy([h,l],preferred=[h,l])"),
    ],
}

MOST_FOR_INVARIANTS = 40  # actions

Given = Tensor | Iterable[Element]


@dataclass(frozen=True)
class ActionPlan:
    """How an attempt to plan ended, and the sets along the way if it was solved."""

    outcome: Outcome
    reason: str
    symbols: Symbols
    steps: tuple[str, ...] = ()  # the actions, as the PDDL names them
    codes: tuple[State, ...] = ()  # the sets from init to goal, one more than steps
    expanded: int | None = None  # states, as far as the planner said
    seconds: float = 0.0
    whole: bool = False  # whether it is of `ActionModel.whole_domain`, as are the names of steps

    @property
    def solved(self) -> bool:
        return self.outcome is Outcome.SOLVED

    @property
    def states(self) -> list[Tensor]:
        """The sets [N, F] along the way, spelled as in the tensors that were learned from."""
        return [self.symbols.tensor(state) for state in self.codes]

    @property
    def sets(self) -> list[list[Element]]:
        """The sets along the way, as lists of elements."""
        return [self.symbols.given(state) for state in self.codes]


def make_plan(
    model: ActionModel,
    init: Given,
    goal: Given,
    *,
    exact: bool,
    searcher: str,
    seconds: float,
    memory_mb: int,
    executable: str | Path | None,
) -> ActionPlan:
    """See `ActionModel.plan`."""
    require_limits(seconds, memory_mb)
    start, symbols = time.monotonic(), model.symbols
    ends = []
    for name, given in (("init", init), ("goal", goal)):
        try:
            ends.append(symbols.state(given))
        except UnknownSymbolError as error:
            unknown = Outcome.UNKNOWN_INIT if name == "init" else Outcome.UNKNOWN_GOAL
            return ActionPlan(unknown, f"{name}: {error}", symbols)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    if lacking := model.fixed - ends[0]:
        element = symbols.element(min(lacking))
        reason = f"init: lacks {element}, which every state seen has"
        return ActionPlan(Outcome.UNKNOWN_INIT, reason, symbols)
    if strange := ends[0] - model.possible:
        element = symbols.element(min(strange))
        reason = f"init: {element} was in no state seen, and no action brings it about"
        return ActionPlan(Outcome.UNKNOWN_INIT, reason, symbols)
    if exact and model.keeps_size() and len(ends[0]) != len(ends[1]):
        sizes = f"init has {len(ends[0])} elements and the goal {len(ends[1])}"
        reason = f"{sizes}, and no action changes how many there are"
        return ActionPlan(Outcome.UNSOLVABLE, reason, symbols)
    limits, whole = _Limits(start + seconds, memory_mb, executable), False
    found = _planned(model, model.domain, ends, limits, exact=exact, searcher=searcher)
    if found is None:  # what follows in every state that was seen does not where these ends lead
        whole = True
        found = _planned(model, model.whole_domain, ends, limits, exact=exact, searcher=searcher)
    if found is None:
        found = ActionPlan(Outcome.ERROR, "the planner's plan is none in the model", symbols)
    return replace(found, seconds=time.monotonic() - start, whole=whole)


@dataclass(frozen=True)
class _Limits:
    """What the programs may take, together."""

    end: float  # in monotonic time
    memory_mb: int
    executable: str | Path | None

    @property
    def seconds(self) -> float:
        """What is left, and never nothing, with which a program cannot be run."""
        return max(0.001, self.end - time.monotonic())


def _planned(
    model: ActionModel,
    domain: Domain,
    ends: Sequence[State],
    limits: _Limits,
    *,
    exact: bool,
    searcher: str,
) -> ActionPlan | None:
    """How planning ends with one domain of a model; None if with steps that the model forbids."""
    with scratch_folder() as folder:
        files = [folder / file for file in ("domain.pddl", "problem.pddl", "task.sas")]
        texts = domain.text(), domain.problem(ends[0], ends[1], exact=exact)
        if exact and domain.unwanted(ends[0], ends[1]):
            texts = domain.with_last_step(ends[0], ends[1])
        for file, text in zip(files, texts, strict=False):
            file.write_text(text)
        try:
            translate(
                *files,
                invariants=len(domain.written) <= MOST_FOR_INVARIANTS,
                seconds=limits.seconds,
                memory_mb=limits.memory_mb,
                executable=limits.executable,
            )
        except TranslationError as error:
            return ActionPlan(error.outcome, str(error), model.symbols)
        found = search(
            files[-1],
            heuristic=searcher,
            options=SEARCHES.get(searcher),
            seconds=limits.seconds,
            memory_mb=limits.memory_mb,
            executable=limits.executable,
        )
    if found.plan is None:
        return ActionPlan(found.outcome, found.reason, model.symbols, expanded=found.expanded)
    steps = tuple(step for step in found.plan if step != LAST_STEP)
    try:
        states = replay(model, ends[0], steps, domain)
    except ValueError:
        return None
    if not (states[-1] == ends[1] if exact else states[-1] >= ends[1]):
        return None
    reason = f"a plan of {len(steps)} steps"
    return ActionPlan(found.outcome, reason, model.symbols, steps, tuple(states), found.expanded)


def replay(
    model: ActionModel, init: State, steps: Iterable[str], domain: Domain | None = None
) -> list[State]:
    """The sets along a plan, each step of which is held against the model itself.

    Not against its PDDL: a step whose conditions are not all fulfilled is an error, here too where
    the PDDL leaves out what follows from others in every state that was seen. Steps are named as in
    ``domain``, by default that of the model.
    """
    states = [init]
    for number, step in enumerate(steps, start=1):
        action = (domain or model.domain).action(step)
        if not (action.schema.fits(action.binding) and action.applies(states[-1])):
            raise ValueError(f"step {number}: {step} cannot be done in the model")
        states.append(action.result(states[-1]))
    return states
