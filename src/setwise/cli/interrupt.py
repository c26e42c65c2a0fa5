"""Signals that ask a process to end: Ctrl-C, the SIGTERM of schedulers, the SIGHUP of terminals.

All of them are what Ctrl-C is, so that a command ends in order: what it can save is saved, and its
temporary files are removed.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

# As shells count a process that Ctrl-C ended. It says that the same command would go on, and so
# it is the same after the other signals.
INTERRUPTED = 130


class Interrupt:
    """Whether Ctrl-C was pressed, or the process was asked to end; call it to ask."""

    def __init__(self) -> None:
        self.pressed = False

    def __call__(self) -> bool:
        return self.pressed

    def handle(self, number: int, frame: FrameType | None) -> None:
        # Of the others two may come at once: a terminal that is closed sends SIGHUP, and so does
        # its shell.
        if self.pressed and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.pressed = True


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Within, signals are only noted, until Ctrl-C after one is a ``KeyboardInterrupt`` as ever."""
    interrupt = Interrupt()
    with _handled(interrupt.handle):
        yield interrupt


@contextmanager
def all_like_ctrl_c() -> Iterator[None]:
    """Within, every signal is a ``KeyboardInterrupt``."""
    with _handled(_interrupted):
        yield


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in _signals()}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _signals() -> list[signal.Signals]:
    """Those to handle; none in a thread, which cannot.

    What is ignored stays so: SIGHUP after nohup, Ctrl-C by what a script runs in the background.
    """
    if threading.current_thread() is not threading.main_thread():
        return []
    found = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP"):
        found.append(signal.SIGHUP)
    return [number for number in found if signal.getsignal(number) != signal.SIG_IGN]
