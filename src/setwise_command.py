"""The command ``setwise``, which can be stopped while the library is still being imported.

That takes a few seconds, for PyTorch comes along. This module lies beside the package, since any
module within would import it first.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

_STOPPED = 130  # as shells count a process that Ctrl-C ended


def main() -> int:
    """Import the library and run the command; Ctrl-C before it has begun costs nothing."""
    before = signal.getsignal(signal.SIGINT)
    if before != signal.SIG_IGN:  # as scripts have it for what runs in the background
        signal.signal(signal.SIGINT, _stop)
    from setwise.cli import main as command

    signal.signal(signal.SIGINT, before)
    return command()


def _stop(number: int, frame: FrameType | None) -> None:
    """At once: an exception might be caught by a package that tries whether another is there."""
    print("stopped", file=sys.stderr, flush=True)
    os._exit(_STOPPED)


if __name__ == "__main__":
    sys.exit(main())
