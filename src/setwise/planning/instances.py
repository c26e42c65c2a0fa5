"""Problems to plan for: drawn by a seed, or given by a user as JSON.

Legend: N objects, F features, C numbers of a configuration, A actions.

The JSON of a file of problems::

    {"domain": "puzzle-3x3",
     "problems": [{"name": "mine", "init": [1, 0, 2, 3, 4, 5, 6, 7, 8], "goal": [[...], ...]}]}

A state is its configuration, C whole numbers, or its set of objects, N lists of F numbers in any
order; in the Blocksworld also ``{"stacks": [[0, 1], [], [2, 3]], "materials": ["metal", ...]}``.
``domain`` and ``name`` may be left out, and a list of problems, or one problem, may stand for the
whole. Files are called by the names, so that each occurs once and none leads to another folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from setwise.files import require_name
from setwise.planning.validate import legal_state
from setwise.worlds import World
from setwise.worlds.rows import row_keys

# At each problem, before it is said that there are too few: attempts, and steps in all of them.
_ATTEMPTS, _EFFORT = 1000, 20_000
_MOST_STEPS = 10_000


@dataclass(frozen=True)
class Problem:
    """From one set of objects [N, F] to another."""

    name: str
    init: Tensor
    goal: Tensor


def random_problems(
    world: World,
    steps: int,
    count: int,
    seed: int,
    *,
    start: Tensor | None = None,
    start_is: Literal["init", "goal"] = "goal",
) -> list[Problem]:
    """Distinct problems by random walks of so many steps that visit no state twice.

    Each walk begins at ``start`` [C], or at a state drawn for it, and the problem leads from its
    end back to its beginning, or the other way if the start is the ``init``. The shortest plan may
    be shorter than the walk. The objects come in random order.

    >>> from setwise.worlds import PuzzleWorld
    >>> puzzle = PuzzleWorld()
    >>> [problem] = random_problems(puzzle, steps=7, count=1, seed=0, start=puzzle.goal())
    >>> problem.name, puzzle.configuration_of(problem.init).tolist()
    ('puzzle-3x3-7-00', [4, 3, 1, 0, 5, 2, 6, 7, 8])
    """
    if start_is not in ("init", "goal"):
        raise ValueError(f"start_is: expected 'init' or 'goal', got {start_is!r}")
    for name, number in (("steps", steps), ("count", count), ("seed", seed)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ValueError(f"{name}: expected a whole number, at least 0, got {number!r}")
    if steps > _MOST_STEPS:
        raise ValueError(f"steps: expected at most {_MOST_STEPS}, got {steps}")
    bits = np.random.PCG64([seed, steps, *b"problems"])
    starts = world.sample(count, seed) if start is None else start.expand(count, -1)
    problems: list[Problem] = []
    known: set[tuple[bytes, bytes]] = set()
    for number, first in enumerate(starts):
        for _ in range(min(_ATTEMPTS, max(1, _EFFORT // max(1, steps)))):
            last = _walk(world, first, steps, bits)
            if last is None or (key := (_key(first), _key(last))) in known:
                continue
            known.add(key)
            init, goal = (last, first) if start_is == "goal" else (first, last)
            sets = [_in_random_order(world.objects(state), bits) for state in (init, goal)]
            problems.append(Problem(f"{world.name}-{steps}-{number:02d}", *sets))
            break
        else:
            raise ValueError(
                f"count: found no more than {number} distinct problems of {steps} steps in "
                f"{world.name}; ask for fewer"
            )
    return problems


def problems_for(world: World, steps: int, count: int, seed: int) -> list[Problem]:
    """The problems of a world by random walks: back to its start, or from any state onwards."""
    start = world.start()
    start_is: Literal["init", "goal"] = "init" if start is None else "goal"
    return random_problems(world, steps, count, seed, start=start, start_is=start_is)


def read_problems(text: str, world: World, source: str = "the problems") -> list[Problem]:
    """The problems in JSON; what is wrong with them is said with the place where it is."""
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{source}: not JSON: {error}") from error
    if isinstance(data, dict) and "problems" in data:
        if unknown := set(data) - {"domain", "problems"}:
            raise ValueError(f"{source}: expected domain and problems, got also {sorted(unknown)}")
        if (given := data.get("domain", world.name)) != world.name:
            raise ValueError(f"{source}: domain: expected {world.name!r}, got {given!r}")
        data = data["problems"]
    items = [data] if isinstance(data, dict) else data
    if not isinstance(items, list) or not items:
        raise ValueError(
            f'{source}: expected {{"problems": [{{"init": ..., "goal": ...}}, ...]}}, '
            f"with at least one problem"
        )
    problems: dict[str, Problem] = {}
    for number, item in enumerate(items):
        problem = _problem(item, world, f"{source}: problem {number}", number)
        if problem.name in problems:
            raise ValueError(
                f"{source}: problem {number}: name: {problem.name!r:.60} is that of problem "
                f"{list(problems).index(problem.name)}; every problem needs one of its own"
            )
        problems[problem.name] = problem
    return list(problems.values())


def write_problems(problems: Iterable[Problem], world: World) -> str:
    """JSON that `read_problems` takes, one problem a line; states as configurations."""
    lines = [
        json.dumps(
            {
                "name": problem.name,
                "init": world.configuration_of(problem.init).tolist(),
                "goal": world.configuration_of(problem.goal).tolist(),
            }
        )
        for problem in problems
    ]
    body = ",\n  ".join(lines)
    return f'{{"domain": {json.dumps(world.name)}, "problems": [\n  {body}\n]}}\n'


def _problem(item: Any, world: World, place: str, number: int) -> Problem:
    if not isinstance(item, dict):
        raise ValueError(f'{place}: expected {{"init": ..., "goal": ...}}, got {item!r:.60}')
    if unknown := set(item) - {"name", "init", "goal"}:
        raise ValueError(f"{place}: expected name, init and goal, got also {sorted(unknown)}")
    name = item.get("name", f"{world.name}-{number:02d}")
    if not isinstance(name, str):
        raise ValueError(f"{place}: name: expected a text, got {name!r:.60}")
    require_name(f"{place}: name", name)
    ends = []
    for end in ("init", "goal"):
        if end not in item:
            raise ValueError(f"{place}: {end} is missing")
        ends.append(_state(item[end], world, f"{place}: {end}"))
    return Problem(name, *ends)


def _state(given: Any, world: World, place: str) -> Tensor:
    """The objects [N, F] of a state in either form."""
    if isinstance(given, dict):
        try:
            return world.objects(world.from_words(given))
        except ValueError as error:
            raise ValueError(f"{place}: no legal state of {world.name}: {error}") from error
    rows = given if isinstance(given, list) else []
    if rows and all(type(number) is int for number in rows):
        try:
            configuration = torch.tensor(rows)
            world.index(configuration)  # an error if it is none
            return world.objects(configuration)
        except ValueError as error:
            raise ValueError(f"{place}: no legal state of {world.name}: {error}") from error
    if not rows or not all(isinstance(row, list) and len(row) == len(rows[0]) for row in rows):
        raise ValueError(
            f"{place}: expected a list of whole numbers, a configuration, or a list of objects, "
            f"equally long lists of numbers; got {given!r:.60}"
        )
    for row in rows:
        for number in row:
            if type(number) not in (int, float):
                raise ValueError(f"{place}: objects: expected numbers, got {number!r:.60}")
    objects = torch.tensor(rows, dtype=torch.float32)
    legal_state(world, place, objects)
    return objects


def _walk(world: World, start: Tensor, steps: int, bits: np.random.PCG64) -> Tensor | None:
    """Where a walk ends that never comes back; None if it had to stop before."""
    here, seen = start, {_key(start)}
    for _ in range(steps):
        after, legal = world.successors(here)
        options = [state for state in after[legal] if _key(state) not in seen]
        if not options:
            return None
        here = options[int(bits.random_raw()) % len(options)]
        seen.add(_key(here))
    return here


def _in_random_order(objects: Tensor, bits: np.random.PCG64) -> Tensor:
    return objects[torch.from_numpy(bits.random_raw(len(objects)).argsort(kind="stable"))]


def _key(configuration: Tensor) -> bytes:
    [key] = row_keys(configuration)
    return key
