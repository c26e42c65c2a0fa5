"""Pieces of work that come to no good end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any


def fails(*, tell: Callable[[Any], None], stop: Callable[[], bool]) -> None:
    raise ValueError("no such\nthing")


def dies(*, tell: Callable[[Any], None], stop: Callable[[], bool]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
