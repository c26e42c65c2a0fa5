"""Ctrl-C that waits for a good moment, and so does the SIGTERM by which schedulers end a job."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# As shells count a process that Ctrl-C ended. It says that the same command would go on, and so
# it is the same after SIGTERM.
INTERRUPTED = 130
_SIGNALS = signal.SIGINT, signal.SIGTERM


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
    before = {number: signal.signal(number, interrupt.handle) for number in _SIGNALS}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
