"""From drawn pictures to files and descriptions, in other processes while the next are drawn.

A GPU draws a picture in less time than a core needs to compress it and to find the boxes in it.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from setwise.executors import ExecutorError
from setwise.executors.local import deaf_to_interrupts
from setwise.render import files
from setwise.render.scene import Scene

Picture = tuple[int, bytes, dict[str, Any]]  # the number of a scene, its file and its description
Describe = Callable[[int, Scene], dict[str, Any]]


class Drawing(NamedTuple):
    """A scene by its number, and what was drawn of it."""

    number: int
    scene: Scene
    image: NDArray[np.uint8]


def finish(drawing: Drawing, describe: Describe) -> Picture:
    """What is written of it."""
    number, scene, image = drawing
    return number, files.encode(image), describe(number, scene)


def finished(
    drawings: Iterable[Drawing], describe: Describe, processes: int, most: int
) -> Generator[Picture, None, None]:
    """Each of the drawings, finished by so many processes, in their order.

    With one it is this one. Else drawings are taken while ``most`` of them wait, or fewer.
    """
    if processes == 1:
        yield from (finish(drawing, describe) for drawing in drawings)
        return
    waiting: deque[Future[Picture]] = deque()
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_end_with_parent)
    try:
        for drawing in drawings:
            with deaf_to_interrupts():  # for a process may be started
                waiting.append(pool.submit(finish, drawing, describe))
            while waiting and (len(waiting) > most or waiting[0].done()):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise ExecutorError(
            "a process that describes pictures was killed, perhaps for want of memory; what was "
            "finished is kept, start again to go on"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """Processes of a pool wait for more work even where whoever gives it was killed."""
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
