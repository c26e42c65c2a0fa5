"""Planning over codes: encode, search, replay, decode, judge.

Legend: S states, K distinct codes, L bits, P states of a plan, N objects, F features.

This is Latplan's AMA1 (Asai and Fukunaga, 2018) on sets of objects: all states and transitions are
encoded once; a classical planner finds a shortest way between two codes; the codes along it are
decoded into objects, and these are held against the world.

Nothing else encodes, examines, searches and decodes: `LatentPlanner` is the one place.
"""

from __future__ import annotations

import tempfile
import time
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from setwise.files import scratch_folder
from setwise.planning import sas
from setwise.planning.downward import Outcome, Search, search
from setwise.planning.graph import LatentGraph, latent_graph
from setwise.planning.latent import (
    Coder,
    LatentHealth,
    decode_codes,
    device_of,
    encode_states,
    latent_health,
)
from setwise.planning.validate import Report, legal_state, validate
from setwise.worlds import World


@dataclass(frozen=True)
class PlanningResult:
    """One problem: what was found and whether it is right."""

    outcome: Outcome
    reason: str
    codes: Tensor | None  # bool [P, L], init and goal included; None without a plan, as those below
    objects: Tensor | None  # [P, N, F], what the codes mean
    report: Report | None
    shared: list[int]  # states of the plan whose code is that of several states
    search: Search | None  # None if there was nothing to search from or for
    seconds: dict[str, float]  # of each part of the work
    # By how many bits the codes of init and goal differ from the known ones that were taken.
    bits_off: tuple[int, ...] = (0, 0)

    @property
    def valid(self) -> bool:
        """Whether a plan was found, and the judge accepts it."""
        return self.report is not None and self.report.valid

    def as_dict(self) -> dict[str, Any]:
        """What a record keeps of it, in values that JSON has."""
        return {
            "outcome": str(self.outcome),
            "reason": self.reason,
            "valid": self.valid,
            "report": None if self.report is None else self.report.as_dict(),
            "shared": self.shared,
            "expanded": None if self.search is None else self.search.expanded,
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        if self.report is None:
            return f"{self.outcome}: {self.reason}"
        lines = [str(self.report)]
        if self.shared:
            lines.append(f"  states {self.shared} have codes that other states have too")
        return "\n".join(lines)


class LatentPlanner:
    """A model and a world, made ready for any number of problems.

    All states are encoded and the operators written once, in a temporary directory under
    ``directory``, which needs room for the text twice; close the planner, or use it in a ``with``,
    to remove it. What is left of one that was killed, the next one there removes. ``codes`` [S, L]
    are those of all states, ``graph`` what the planner searches.
    """

    def __init__(
        self,
        model: Coder,
        world: World,
        *,
        encoding: sas.Encoding = "index",
        directory: Path | None = None,
    ) -> None:
        self.model = model
        self.world = world
        clock = _Clock()
        self.codes: Tensor = encode_states(model, world, world.states())
        clock.lap("encode")
        self.graph: LatentGraph = latent_graph(self.codes.numpy(), world.transitions().numpy())
        self._states_per_node = self.graph.states_per_node()
        clock.lap("graph")
        self._variables = sas.variables_of(self.graph, encoding)
        temporary = ExitStack()
        self._directory = temporary.enter_context(scratch_folder(directory))
        # Called by `close`, or once nobody has the planner any more.
        self._remove = weakref.finalize(self, temporary.close)
        self._operators = self._directory / "operators"
        with self._operators.open("wb") as file:
            sas.write_operators(file, self._variables, self.graph.edges)
        clock.lap("write")
        self.seconds: dict[str, float] = clock.seconds

    def close(self) -> None:
        self._remove()

    def __enter__(self) -> LatentPlanner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def health(self) -> LatentHealth:
        """What the codes are worth; see `latent_health`."""
        return latent_health(self.model, self.world, codes=self.codes)

    def solve(
        self,
        init: Tensor,
        goal: Tensor,
        *,
        heuristic: str = "blind",
        seconds: float = 300.0,
        memory_mb: int = 6000,
        executable: str | Path | None = None,
        nearest: bool = False,
    ) -> PlanningResult:
        """From one set of objects [N, F] to another, in any order. See `search` for the options.

        Both must have codes of known states. With ``nearest``, as for objects that were read from
        pictures, the nearest known codes are taken; the judge still asks for the objects given.
        """
        init, goal = init.cpu(), goal.cpu()
        for name, objects in (("init", init), ("goal", goal)):
            legal_state(self.world, name, objects)
        clock = _Clock()
        codes = self.model.encode(torch.stack([init, goal]).to(device_of(self.model))).cpu()
        clock.lap("encode")
        nodes, bits_off = [], []
        for outcome, code in zip((Outcome.UNKNOWN_INIT, Outcome.UNKNOWN_GOAL), codes, strict=True):
            node, distance = self.graph.nearest(code.numpy())
            if distance > 0 and not nearest:
                reason = f"no known state has its code; the nearest one differs in {distance} bits"
                return _without_plan(outcome, reason, None, clock)
            nodes.append(node)
            bits_off.append(distance)
        with tempfile.TemporaryDirectory(dir=self._directory) as place:
            task = Path(place) / "task.sas"
            sas.write_task(task, self._variables, self._operators, len(self.graph.edges), *nodes)
            clock.lap("write")
            found = search(
                task,
                heuristic=heuristic,
                seconds=seconds,
                memory_mb=memory_mb,
                executable=executable,
            )
        clock.lap("search")
        if found.plan is None:
            return _without_plan(found.outcome, found.reason, found, clock)
        try:
            path = replay(self.graph, found.plan, *nodes)
        except ValueError as error:
            return _without_plan(Outcome.ERROR, str(error), found, clock)
        codes = torch.from_numpy(self.graph.codes[path])
        states = torch.cat([self.world.read(out) for out in decode_codes(self.model, codes)])
        clock.lap("decode")
        report = validate(self.world, states, init, goal)
        clock.lap("validate")
        shared = [at for at, node in enumerate(path) if self._states_per_node[node] > 1]
        return PlanningResult(
            found.outcome,
            found.reason,
            codes,
            states,
            report,
            shared,
            found,
            clock.seconds,
            tuple(bits_off),
        )


def replay(graph: LatentGraph, plan: Sequence[str], init: int, goal: int) -> list[int]:
    """The nodes that a plan passes; a ValueError if it does not lead from ``init`` to ``goal``."""
    path = [init]
    for number, operator in enumerate(plan, start=1):
        step = sas.step_of(operator)
        if step >= len(graph.edges):
            raise ValueError(f"step {number} of the plan: there is no operator {operator}")
        before, after = graph.edges[step].tolist()
        if before != path[-1]:
            raise ValueError(f"step {number} of the plan: {operator} does not apply there")
        path.append(after)
    if path[-1] != goal:
        raise ValueError(f"the plan's {len(plan)} steps do not lead to the goal")
    return path


def _without_plan(
    outcome: Outcome, reason: str, found: Search | None, clock: _Clock
) -> PlanningResult:
    return PlanningResult(outcome, reason, None, None, None, [], found, clock.seconds)


class _Clock:
    """Seconds between laps."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.seconds[name] = now - self._last
        self._last = now
