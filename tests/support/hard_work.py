"""Pieces of work that come to no good end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from setwise.executors import StoppedError


def fails(*, tell: Callable[[Any], None], stop: Callable[[], bool]) -> None:
    raise ValueError("no such\nthing")


def dies(*, tell: Callable[[Any], None], stop: Callable[[], bool]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stops(*, tell: Callable[[Any], None], stop: Callable[[], bool]) -> None:
    raise StoppedError  # of which nobody has asked it
