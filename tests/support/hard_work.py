"""Pieces of work that come to no good end, and some that wait for others."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from setwise.executors import StoppedError


def fails(*, tell: Callable[[Any], None], stop: Callable[[], bool]) -> None:
    raise ValueError("no such\nthing")


def dies(*, tell: Callable[[Any], None], stop: Callable[[], bool]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stops(*, tell: Callable[[Any], None], stop: Callable[[], bool]) -> None:
    raise StoppedError  # of which nobody has asked it


def waits(
    mark: Path, *, tell: Callable[[Any], None], stop: Callable[[], bool]
) -> tuple[float, float, str]:
    """Tells that it has begun, and ends once the mark is there: when, and with which GPUs."""
    began = time.monotonic()
    tell("begun")
    while not mark.exists():
        time.sleep(0.05)
    return began, time.monotonic(), os.environ["CUDA_VISIBLE_DEVICES"]
