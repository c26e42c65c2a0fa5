"""A place of one's own to do work in: a pool of processes.

A file that imports this one can be trained by ``setwise train FILE.py --on pool://4``.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

from setwise.executors import EXECUTORS, Ended, Stop, StoppedError, Told, Work, pack, unpack


def perform(content: bytes) -> Any:
    """In a process of the pool, which passes on nothing before the end."""
    function, arguments = unpack(content)
    return function(*arguments, tell=lambda item: None, stop=lambda: False)


class Pool:
    """Works in so many processes, ``pool://4``."""

    spreads = True  # many small pieces at once
    gpus = 0.0

    def __init__(self, place: str) -> None:
        self._size = int(place.removeprefix("pool://"))

    def __str__(self) -> str:
        return f"a pool of {self._size} processes"

    def run(self, works: Iterable[Work], *, told: Told, stop: Stop) -> Ended:
        with ProcessPoolExecutor(self._size, get_context("spawn")) as pool:
            begun = {pool.submit(perform, pack(work)): work for work in works}
            for done in as_completed(begun):
                yield begun[done], done.result()
                if stop():
                    pool.shutdown(cancel_futures=True)
                    raise StoppedError

    def close(self) -> None:
        """Each run has a pool of its own."""


EXECUTORS.add("pool", Pool)
