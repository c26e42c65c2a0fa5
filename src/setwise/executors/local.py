"""Work on this machine: in this process, one piece after the other, or in several processes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from traceback import format_exc
from typing import Any

import torch

from setwise.executors.executor import Ended, ExecutorError, Stop, StoppedError, Told, Work
from setwise.outside import one_line

_POLL = 0.5  # seconds until the next look whether to stop

# What a process says; the second part is what was told, the result, or the text of an error.
_TOLD, _RESULT, _FAILED = "told", "result", "failed"


class LocalExecutor:
    """Works in this process, or with ``processes`` above 1 in so many others.

    With others, a script needs ``if __name__ == "__main__":``, because they start by importing it.
    Where one of them is killed, that is an error.
    """

    spreads = False

    def __init__(self, processes: int = 1) -> None:
        self._processes = processes

    def __str__(self) -> str:
        return "this machine"

    @property
    def gpus(self) -> float:
        return torch.cuda.device_count()

    def run(self, works: Iterable[Work], *, told: Told, stop: Stop) -> Ended:
        if self._processes > 1:
            yield from _beside(works, self._processes, told, stop)
            return
        for work in works:
            if stop():
                raise StoppedError
            yield work, work.function(*work.arguments, tell=partial(told, work), stop=stop)

    def close(self) -> None:
        """Nothing is held."""


def _beside(works: Iterable[Work], processes: int, told: Told, stop: Stop) -> Ended:
    """One process for each piece of work, and so many at a time."""
    left = iter(works)
    running: dict[Connection, tuple[Work, BaseProcess]] = {}
    try:
        while True:
            while len(running) < processes and (work := next(left, None)) is not None:
                connection, process = _started(work)
                running[connection] = work, process
            if not running:
                return
            for ready in wait(list(running), _POLL):
                assert isinstance(ready, Connection)
                work, process = running[ready]
                what, value = _heard(ready, work)
                if what == _TOLD:
                    told(work, value)
                    continue
                del running[ready]
                process.join()
                if what == _FAILED:
                    raise ExecutorError(f"{work.name} failed: {value}")
                yield work, value
            if stop():
                raise StoppedError
    finally:
        for _, process in running.values():
            process.terminate()
            process.join()


def _started(work: Work) -> tuple[Connection, BaseProcess]:
    context = get_context("spawn")  # a fork would copy the locks of other threads
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_perform, args=(theirs, work.function, work.arguments))
    with deaf_to_interrupts():
        process.start()
    theirs.close()
    return ours, process


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Processes started within ignore Ctrl-C, which a terminal sends to all of a command's.

    The main process hears it and ends them; they would only complain.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # where the handling of signals cannot be changed
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _heard(connection: Connection, work: Work) -> tuple[str, Any]:
    try:
        message: tuple[str, Any] = connection.recv()
    except EOFError:
        raise ExecutorError(
            f"{work.name} was killed, perhaps for want of memory; what was finished is kept, start "
            f"again to go on"
        ) from None
    return message


def _perform(reports: Connection, function: Any, arguments: tuple[Any, ...]) -> None:
    """What a process does; it is never asked to stop, but ended."""

    def tell(item: Any) -> None:
        reports.send((_TOLD, item))

    try:
        reports.send((_RESULT, function(*arguments, tell=tell, stop=lambda: False)))
    except BrokenPipeError:
        return  # nobody is there to ask for more: the main process was killed
    except (OSError, RuntimeError, ValueError) as error:
        reports.send((_FAILED, one_line(error)))
    except Exception:
        reports.send((_FAILED, format_exc()))
