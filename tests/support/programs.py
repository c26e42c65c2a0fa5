"""Programs: those that tests need and pip does not have, and those that tests write themselves."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NoReturn

import psutil
import pytest


def is_missing(reason: str) -> NoReturn:
    """Skip, which is seen in the summary; with SETWISE_TEST_EVERYTHING set, as in CI, fail."""
    if os.environ.get("SETWISE_TEST_EVERYTHING"):
        pytest.fail(reason)
    pytest.skip(reason)


def program(path: Path, text: str) -> Path:
    """A file that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def assert_gone(pids: list[int]) -> None:
    """Killed processes need a moment; those that nobody waits for stay on as zombies."""
    deadline = time.monotonic() + 5
    while alive := [pid for pid in pids if _is_running(pid)]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.01)


def _is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
