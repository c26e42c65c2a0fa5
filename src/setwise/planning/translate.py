"""Fast Downward's translator as a program of its own: PDDL in, a SAS+ task out.

It comes with the search program, beside which it lies; like that, it is run and never imported.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from setwise.files import scratch_folder
from setwise.planning.downward import find_executable, run_limited

_TAIL = 300  # characters of what it said


class TranslationError(Exception):
    """The translator did not make a task of it; the message says why."""


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
            raise TranslationError(f"the translator was stopped after {seconds:g} s")
        if code != 0:
            log = (directory / "log").read_text(errors="replace").strip()[-_TAIL:]
            raise TranslationError(f"the translator ended with exit code {code}: {log}")
        shutil.move(directory / "output.sas", task)
