"""Fast Downward's translator as a program of its own: PDDL in, a SAS+ task out.

It comes with the search program, beside which it lies; like that, it is run and never imported.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from setwise.files import scratch_folder
from setwise.planning.downward import Outcome, find_executable, require_limits, run_limited

_TAIL = 300  # characters of what it said


# Those of its exit codes that say more than that it failed (driver/returncodes.py).
_EXIT_CODES = {20: Outcome.OUT_OF_MEMORY, 21: Outcome.OUT_OF_TIME}


class TranslationError(Exception):
    """The translator did not make a task of it; the message says why."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


def translate(
    domain: Path,
    problem: Path,
    task: Path,
    *,
    invariants: bool = True,
    seconds: float = 300.0,
    memory_mb: int = 6000,
    executable: str | Path | None = None,
) -> None:
    """Write the SAS+ ``task`` of a domain and a problem in PDDL.

    ``invariants`` make variables of many values out of facts that exclude each other, which helps
    every search; but with hundreds of actions looking for them takes minutes.
    """
    require_limits(seconds, memory_mb)
    program = find_executable(executable).parent / "translate" / "translate.py"
    if not program.is_file():
        raise FileNotFoundError(f"executable: there is no translator of PDDL at {program}")
    # -B: nothing is written beside a program that may be anybody's.
    command = [sys.executable, "-B", "-E", str(program), str(domain.absolute())]
    command += [str(problem.absolute())]
    command += [] if invariants else ["--invariant-generation-max-candidates", "0"]
    with scratch_folder() as directory:
        code = run_limited(command, domain, directory, seconds, memory_mb)
        if code is None:
            reason = f"the translator was stopped after {seconds:g} s"
            raise TranslationError(Outcome.OUT_OF_TIME, reason)
        if code != 0:
            log = (directory / "log").read_text(errors="replace").strip()[-_TAIL:]
            outcome = _EXIT_CODES.get(code, Outcome.ERROR)
            raise TranslationError(outcome, f"the translator ended with exit code {code}: {log}")
        shutil.move(directory / "output.sas", task)
