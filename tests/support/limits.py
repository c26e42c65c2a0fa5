"""Many hostile cases, each within limits of time and memory, in child processes.

One child handles case after case and reports each; where a case kills it, or takes too long, the
next child goes on with the case after. Children are forked from a server that has imported the
library and runs no threads, so that a new one costs a moment.
"""

from __future__ import annotations

import resource
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, TypeVar

Case = TypeVar("Case")
Value = TypeVar("Value")

FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        *("torch", "setwise.cli", "setwise.cli.watch", "setwise.experiments.run"),
        *("setwise.planning.show", "setwise.demo.page", "setwise.report.page.report"),
        *("torch._dynamo", "sklearn.datasets", "safetensors.torch", "pytest"),
    ]
)
_START = 60.0  # seconds for a child to be there


@dataclass(frozen=True)
class Outcome(Generic[Case, Value]):
    """What became of a case: the value that was returned, or how it failed."""

    case: Case
    value: Value | None = None
    failure: str | None = None


def within_limits(
    act: Callable[[Case], Value],
    cases: Sequence[Case],
    *,
    seconds: float = 10.0,
    megabytes: int = 1000,
) -> list[Outcome[Case, Value]]:
    """Call ``act`` with each case, which has ``seconds``, and ``megabytes`` besides those in use.

    A failure is a traceback (of any exception: what is expected ``act`` catches itself), the end of
    the process, or too long a time. ``act`` is a function of a module, and cases and values can be
    pickled. Nothing that a case leaves behind in the process is cleaned up.
    """
    found: list[Outcome[Case, Value]] = []
    while len(found) < len(cases):
        found += _in_one_child(act, cases[len(found) :], seconds, megabytes)
    return found


def failures(outcomes: Sequence[Outcome[Any, Any]], shown: int = 5) -> str:
    """The cases that failed, for an assertion that none did; empty then."""
    bad = [outcome for outcome in outcomes if outcome.failure is not None]
    texts = [f"{outcome.case!r}: {outcome.failure}" for outcome in bad[:shown]]
    return "\n".join([f"{len(bad)} of {len(outcomes)} cases failed", *texts]) if bad else ""


def _in_one_child(
    act: Callable[[Case], Value], cases: Sequence[Case], seconds: float, megabytes: int
) -> list[Outcome[Case, Value]]:
    """The outcomes of the first cases, up to one that ends the child."""
    ours, theirs = FORKS.Pipe(duplex=False)
    child = FORKS.Process(target=_serve, args=(theirs, act, cases, megabytes))
    child.start()
    theirs.close()
    found: list[Outcome[Case, Value]] = []
    try:
        if not ours.poll(_START) or ours.recv() != "ready":
            raise RuntimeError("the child of a test did not start")
        for case in cases:
            if not ours.poll(seconds):
                return [*found, Outcome(case, failure=f"took more than {seconds} s")]
            try:
                value, failure = ours.recv()
            except EOFError:
                child.join()
                how = f"ended its process, exit code {child.exitcode}"
                return [*found, Outcome(case, failure=how)]
            found.append(Outcome(case, value, failure))
        return found
    finally:
        child.kill()
        child.join()


def _serve(
    reports: Connection, act: Callable[[Case], Value], cases: Sequence[Case], megabytes: int
) -> None:
    import torch

    torch.set_num_threads(1)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    reports.send("ready")
    for case in cases:
        try:
            reports.send((act(case), None))
        except BaseException:
            reports.send((None, traceback.format_exc()))
