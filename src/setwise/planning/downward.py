"""Fast Downward (Helmert, 2006) as a program of its own, with limits and named outcomes.

The planner reads a task in SAS+, searches by A* and writes a plan. It runs in a temporary
directory, so that no plan of another run can be taken for its own, and in a process group of its
own, all of which is killed at the end, whatever the end is; only a child that leaves the group
would escape, and Fast Downward starts none. The build in the ``planning`` extra is under the GPL:
it is run as a program and never imported.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from setwise.files import scratch_folder
from setwise.planning import limited

EXECUTABLE_VARIABLE = "SETWISE_FAST_DOWNWARD"
_IN_A_BUILD = Path("builds/release/bin/downward")
_TAIL = 8000  # bytes of the log that are kept; the planner's summary is at its end


class Outcome(StrEnum):
    """How an attempt to find a plan ended."""

    SOLVED = "solved"
    UNSOLVABLE = "unsolvable"  # the whole space was searched
    OUT_OF_TIME = "out of time"
    OUT_OF_MEMORY = "out of memory"
    ERROR = "error"  # anything else: a crash, a kill, an unreadable plan
    UNKNOWN_INIT = "unknown init"  # its code is none of the latent space: nothing to search from
    UNKNOWN_GOAL = "unknown goal"


@dataclass(frozen=True)
class Search:
    """One run of the planner."""

    outcome: Outcome
    reason: str  # why, in words
    plan: tuple[str, ...] | None  # the names of the operators, if solved
    cost: int | None
    expanded: int | None  # states, as far as the planner said
    seconds: float  # of wall-clock time
    peak_mb: float | None  # memory, as far as the planner said
    log: str  # its end


# Exit codes 11 and up are Fast Downward's own (driver/returncodes.py).
_EXIT_CODES = {
    11: (Outcome.UNSOLVABLE, "the planner proved that there is no plan"),
    22: (Outcome.OUT_OF_MEMORY, "the planner ran out of memory"),
    23: (Outcome.OUT_OF_TIME, "the planner ran out of time"),
    33: (Outcome.ERROR, "the planner did not accept the task or the heuristic"),
    limited.CANNOT_START: (Outcome.ERROR, "the planner could not be started"),
}
_STOPPED_WITHOUT_PLAN = 12
_WHOLE_SPACE = "Completely explored state space"
_NO_MEMORY = ("MemoryError", "bad_alloc", "Cannot allocate memory")  # of other programs
_KSTAR_GOAL_STEP = "__extra_goal_operator"  # the planner of the extra adds it to every plan


def search(
    task: Path,
    *,
    heuristic: str = "blind",
    options: Sequence[str] | None = None,
    seconds: float = 300.0,
    memory_mb: int = 6000,
    executable: str | Path | None = None,
) -> Search:
    """Look for a plan of least cost by A* with a heuristic, under limits.

    ``heuristic`` is a name, such as ``blind`` or ``lmcut``, or an evaluator of Fast Downward with
    its options, such as ``hmax(transform=no_transform())``. Plans are optimal if it is admissible.
    ``options`` are those of Fast Downward for another search than A* with that heuristic.
    ``seconds`` is wall-clock time, with reading the task; ``memory_mb`` is address space.
    """
    require_limits(seconds, memory_mb)
    if not heuristic.strip():
        raise ValueError("heuristic: expected a name such as 'blind', got nothing")
    program = find_executable(executable)
    evaluator = heuristic if "(" in heuristic else f"{heuristic}()"
    chosen = ["--search", f"astar({evaluator})"] if options is None else list(options)
    command = [str(program), *chosen, "--internal-plan-file", "plan"]
    with scratch_folder() as directory:
        (directory / "found_plans").mkdir()  # where the planner of the extra writes
        start = time.monotonic()
        code = run_limited(command, task, directory, seconds, memory_mb)
        return _judge(code, directory, time.monotonic() - start, seconds)


def require_limits(seconds: float, memory_mb: int) -> None:
    """An error unless these can be limits."""
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"seconds: expected a positive number, got {seconds!r}")
    if isinstance(memory_mb, bool) or not isinstance(memory_mb, int) or memory_mb < 1:
        raise ValueError(f"memory_mb: expected a whole number, at least 1, got {memory_mb!r}")


def find_executable(given: str | Path | None = None) -> Path:
    """The search program of Fast Downward: the one given, else that of the environment variable
    ``SETWISE_FAST_DOWNWARD``, else that of the ``planning`` extra.

    Both may name the program ``downward`` itself, or a directory that Fast Downward was built in.
    """
    source = "executable"
    if given is None and (given := os.environ.get(EXECUTABLE_VARIABLE)):
        source = EXECUTABLE_VARIABLE
    if given:
        path = Path(given).absolute()
        path = path / _IN_A_BUILD if path.is_dir() else path
        if not os.access(path, os.X_OK) or not path.is_file():
            raise FileNotFoundError(f"{source}: {path} is no program that can be run")
        return path
    package = find_spec("kstar_planner")
    if package is None or package.origin is None:
        raise ModuleNotFoundError(
            f"planning needs Fast Downward; install one with pip install 'setwise[planning]', or "
            f"name your own by the option executable or the variable {EXECUTABLE_VARIABLE}",
            name="kstar_planner",
        )
    return Path(package.origin).parent / _IN_A_BUILD


def run_limited(
    command: list[str], task: Path, directory: Path, seconds: float, memory_mb: int
) -> int | None:
    """The exit code, or None if time was up. Nothing that was started is left when it returns.

    The program reads ``task`` and runs in ``directory``, where its output becomes ``log``.
    """
    limits = [str(os.getpid()), str(memory_mb * 10**6)]
    launcher = [sys.executable, "-I", "-S", limited.__file__, *limits]
    with task.open("rb") as stdin, (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [*launcher, *command],
            stdin=stdin,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=directory,
            start_new_session=True,
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError, PermissionError):  # nothing is left of the group
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _judge(code: int | None, directory: Path, seconds: float, limit: float) -> Search:
    log = _tail(directory / "log")
    plan, cost = None, None
    if code is None:
        outcome, reason = Outcome.OUT_OF_TIME, f"stopped after {limit:g} s"
    elif code == 0:
        try:
            plan, cost = _read_plan(directory)
            outcome, reason = Outcome.SOLVED, f"a plan of {len(plan)} steps"
        except ValueError as error:
            outcome, reason = Outcome.ERROR, str(error)
    else:
        outcome, reason = _failure(code, log)
    expanded = re.search(r"Expanded (\d+) state", log)
    peak = re.search(r"Peak memory: (\d+) KB", log)
    return Search(
        outcome,
        reason,
        plan,
        cost,
        int(expanded[1]) if expanded else None,
        seconds,
        int(peak[1]) / 1000 if peak else None,
        log,
    )


def _failure(code: int, log: str) -> tuple[Outcome, str]:
    if code in _EXIT_CODES:
        return _EXIT_CODES[code]
    if code == _STOPPED_WITHOUT_PLAN and _WHOLE_SPACE in log:
        return Outcome.UNSOLVABLE, "the planner searched the whole space"
    if any(sign in log for sign in _NO_MEMORY):
        return Outcome.OUT_OF_MEMORY, "the planner could not get the memory it asked for"
    if code < 0:
        return Outcome.ERROR, f"the planner was killed by {signal.Signals(-code).name}"
    return Outcome.ERROR, f"the planner ended with exit code {code}"


def _read_plan(directory: Path) -> tuple[tuple[str, ...], int]:
    """The operators in ``(name)`` a line, and the cost in a comment at the end."""
    places = [directory / "found_plans" / "plan", directory / "plan"]
    found = [place for place in places if place.is_file()]
    if not found:
        raise ValueError("the planner reported a plan, but wrote none")
    plan, cost = [], None
    for line in found[0].read_text(encoding="utf-8", errors="replace").splitlines():
        if comment := re.fullmatch(r"; cost = (\d+) .*", line):
            cost = int(comment[1])
        elif step := re.fullmatch(r"\(([^()]*[^()\s])\s*\)", line):
            plan.append(step[1])
        else:
            raise ValueError(f"the planner's plan has a line that cannot be read: {line[:80]!r}")
    if plan and plan[-1] == _KSTAR_GOAL_STEP:
        plan.pop()
    return tuple(plan), len(plan) if cost is None else cost


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        return file.read().decode("utf-8", errors="replace")
