"""Commands in processes of their own that are killed at a moment, or find the disk full.

A moment is a number of events of the file system in the folder of the command, which the process
itself counts; whoever counts to the end knows how many there are.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limits import FORKS

# Those after which something on the disk is different, or may be.
EVENTS = {
    *("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod"),
    *("fcntl.flock", "shutil.rmtree", "os.listdir", "os.scandir"),
}


def nothing() -> None:
    """Of what is to be prepared."""


@dataclass(frozen=True)
class Command:
    """Arguments of ``setwise``, run in a folder; ``prepare`` is called before, in the process."""

    arguments: tuple[str, ...]
    prepare: Callable[[], None] = nothing


@dataclass(frozen=True)
class End:
    """How a process ended."""

    code: int  # negative: by that signal
    said: str  # on stderr
    events: int  # of one that came to its end
    seconds: float


def run(
    command: Command,
    folder: Path,
    *,
    event: int | None = None,
    seconds: float | None = None,
    largest: int | None = None,
) -> End:
    """Run it, and kill it at an event, or after some seconds; no file may grow beyond ``largest``.

    The folder has to be there. Temporary files go to ``tmp`` in it.
    """
    (folder / "tmp").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as beside:
        began = time.monotonic()
        call = (command, folder, Path(beside), event, largest)
        process = FORKS.Process(target=_run, args=call)
        process.start()
        process.join(seconds)
        if process.is_alive():
            assert seconds is not None
            process.kill()
            process.join()
        took = time.monotonic() - began
        assert process.exitcode is not None
        said = (Path(beside) / "said").read_text() if (Path(beside) / "said").exists() else ""
        counted = Path(beside) / "events"
        events = int(counted.read_text()) if counted.exists() else 0
        code = process.exitcode
        process.close()
    return End(code, said, events, took)


def kill_often(command: Command, fresh: Callable[[], Path], times: int, seed: int) -> list[Path]:
    """Kill a command at so many moments, or some more, and let it come to its end in every folder.

    In each it is killed again and again before it may. The first of the folders is that of a
    command that nobody disturbed.
    """
    rng = random.Random(seed)
    ended = [fresh()]
    whole = run(command, ended[0])
    assert whole.code in (0, 1), whole.said
    assert whole.events > 5
    kills = 0
    while kills < times:
        folder = fresh()
        for _ in range(rng.randint(4, 9)):
            end = run_to(command, folder, whole, rng)
            kills += end.code == -signal.SIGKILL
            if end.code == whole.code:
                break  # what was left had fewer moments
        last = run(command, folder)
        assert last.code == whole.code, last.said
        ended.append(folder)
    return ended


def kill_once(command: Command, fresh: Callable[[], Path], whole: End, rng: random.Random) -> Path:
    """Kill a command at one moment; the folder as it was then left."""
    while True:
        folder = fresh()
        end = run_to(command, folder, whole, rng)
        if end.code == -signal.SIGKILL:
            return folder


def run_to(command: Command, folder: Path, whole: End, rng: random.Random) -> End:
    """Run a command up to a moment: mostly an event, and else after a share of its time.

    Where less is left to do than the whole command had, it may end before.
    """
    if rng.random() < 0.75:
        end = run(command, folder, event=rng.randint(1, whole.events))
    else:
        end = run(command, folder, seconds=rng.random() * whole.seconds)
    assert end.code in (whole.code, -signal.SIGKILL), end.said
    return end


def _run(
    command: Command, folder: Path, beside: Path, event: int | None, largest: int | None
) -> None:
    import torch

    from setwise import cli

    torch.set_num_threads(1)
    os.chdir(folder)
    tempfile.tempdir = str(folder / "tmp")
    command.prepare()
    said, seen = io.StringIO(), 0

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if name not in EVENTS or not _inside(name, arguments, folder):
            return
        seen += 1
        if seen == event:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if largest is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, limits[1]))
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = cli.main(list(command.arguments))
    except BaseException:
        code = 70  # of software; no command ends so
        said.write(traceback.format_exc())
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    (beside / "events").write_text(str(seen))  # not before: nothing of ours is on a full disk
    (beside / "said").write_text(said.getvalue())
    os._exit(code)


def _inside(name: str, arguments: tuple[Any, ...], folder: Path) -> bool:
    """Whether an event is about the folder; locks are of handles, and count always."""
    if name == "fcntl.flock":
        return True
    path = arguments[0]
    if not isinstance(path, str | os.PathLike):
        return False
    return (folder / path).is_relative_to(folder)
