"""Where a command does its work, as ``--on`` says."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from setwise.cli.errors import CommandError
from setwise.cli.options import device_named
from setwise.executors import Executor, ExecutorError, open_executor


def add_on(parser: argparse.ArgumentParser) -> None:
    """The option."""
    parser.add_argument(
        "--on",
        default="local",
        metavar="local|ray|ray://HOST:PORT",
        help="where the work is done: here, on the Ray cluster that RAY_ADDRESS names or ray start "
        "began on this machine (if there is none, on one of its own), or on another one; default: "
        "local",
    )


@contextmanager
def executor_of(options: argparse.Namespace) -> Iterator[Executor]:
    """What ``--on`` names; what goes wrong with it is told in a line."""
    with ExitStack() as stack:
        try:
            executor = stack.enter_context(open_executor(options.on))
        except (ExecutorError, ValueError) as error:
            raise CommandError(f"--on {options.on}: {error}") from error
        try:
            yield executor
        except ExecutorError as error:
            raise CommandError(str(error)) from error


def device_on(executor: Executor, name: str, gpus: float | None) -> str:
    """``cpu`` or ``cuda``; ``auto`` takes a GPU if there is one where the work is done.

    ``gpus`` is the share of one that was asked for, which is refused where it says nothing.
    """
    if gpus is not None and not executor.spreads:
        raise CommandError(
            f"--gpus: trainings share the GPUs of a cluster, but one has {executor} to itself; "
            f"take --on ray, or leave it out"
        )
    device = _device_on(executor, name)
    if gpus is not None and device == "cpu":
        raise CommandError(
            f"--gpus: the trainings take no GPU, for the device is cpu ({executor}); leave it out"
        )
    return device


def require_processes_here(executor: Executor, workers: int | None) -> None:
    """Refuse a number of processes of this machine where the work is done elsewhere."""
    if workers is not None and executor.spreads:
        raise CommandError(
            f"--workers: so many processes of this machine, but the work is done elsewhere "
            f"({executor}); leave it out, or take --on local"
        )


def _device_on(executor: Executor, name: str) -> str:
    if not executor.spreads:
        return device_named(name)
    if name == "cuda" and not executor.gpus:
        raise CommandError(f"--device: no GPU there ({executor}); take cpu or auto")
    return name if name != "auto" else "cuda" if executor.gpus else "cpu"
