"""Becomes another program, under limits, that dies with the process which asked for it.

Run as ``python -I -S limited.py PARENT MEMORY PROGRAM ARGUMENT...``: PARENT is the number of the
process that waits for it, MEMORY a number of bytes of address space. Little is safe between the
fork and the exec of a process with threads, so the limits are set here, in a process of its own,
which imports nothing of the library and starts in a moment.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

CANNOT_START = 127  # the exit status of a program that could not be started, as in a shell
_WRITTEN = 2**30  # bytes in one file: a planner gone wild shall not fill the disk
_PR_SET_PDEATHSIG = 1


def main(parent: int, memory: int, command: list[str]) -> None:
    """Set the limits and become ``command``."""
    _die_with(parent)
    _limit(resource.RLIMIT_AS, memory)
    _limit(resource.RLIMIT_FSIZE, _WRITTEN)
    _limit(resource.RLIMIT_CORE, 0)
    # Python ignores these two, and a program inherits what is ignored.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execv(command[0], command)
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(CANNOT_START)


def _die_with(parent: int) -> None:
    """Be killed when the parent ends, however it ends; Linux alone can do this."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before it could be watched
        sys.exit(CANNOT_START)


def _limit(what: int, most: int) -> None:
    hard = resource.getrlimit(what)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
