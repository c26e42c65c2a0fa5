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
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Within, the first signal is only noted; the second is a ``KeyboardInterrupt`` as ever."""
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
    """Those to handle; none in a thread, which cannot."""
    if threading.current_thread() is not threading.main_thread():
        return []
    found = [signal.SIGINT, signal.SIGTERM]
    # After nohup, a command is to go on where its terminal ends.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        found.append(signal.SIGHUP)
    return found
