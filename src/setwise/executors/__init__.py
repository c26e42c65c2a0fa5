"""Where long work is done: in this process, in several, on a cluster.

``setwise train``, ``reproduce`` and ``data`` hand their work to an `Executor`, which ``--on``
names. Another one, for a queue of one's own, is a class with the methods of `Executor` and a line:

    EXECUTORS.add("queue", QueueExecutor)
"""

from setwise.executors.definitions import pack, unpack
from setwise.executors.executor import (
    EXECUTORS,
    Ended,
    Executor,
    ExecutorError,
    Stop,
    StoppedError,
    Told,
    Work,
    open_executor,
)
from setwise.executors.local import LocalExecutor

__all__ = [
    "EXECUTORS",
    "Ended",
    "Executor",
    "ExecutorError",
    "LocalExecutor",
    "Stop",
    "StoppedError",
    "Told",
    "Work",
    "open_executor",
    "pack",
    "unpack",
]
