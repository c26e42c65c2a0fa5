"""What an executor is: something that takes work and gives results, wherever it is done."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from setwise.registry import Registry

Told = Callable[["Work", Any], None]
Stop = Callable[[], bool]
Ended = Generator[tuple["Work", Any], None, None]


class ExecutorError(RuntimeError):
    """Work failed where it was done, was lost too often, or nobody is there to do it."""


class StoppedError(Exception):
    """Work was asked to stop. What it had reached is saved, if it has a place for that."""


@dataclass(frozen=True, eq=False)
class Work:
    """A piece of work: ``function(*arguments, tell=tell, stop=stop)``, whose value is its result.

    The function calls ``tell`` with whatever is to be known before its end. It asks ``stop`` now
    and then; if that is so, it saves what it can and raises `StoppedError`. It may be called more
    than once, and comes to the same result each time. Function, arguments, result and what is told
    may have to travel to another machine.
    """

    name: str  # in messages: "drawing 16 pictures"
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    # What it needs, where there are many to share it: cores, and GPUs or a share of one.
    cores: int = 1
    gpus: float = 0.0
    # Modules that have to be imported first, since what is travelling is found by names that they
    # register; see `setwise.executors.definitions`.
    modules: tuple[str, ...] = ()


class Executor(Protocol):
    """Does work; see `setwise.executors.local` for the simplest.

    An executor is opened by the text after ``--on``, and ``str`` of it says what it works on.
    """

    @property
    def spreads(self) -> bool:
        """Whether it does many pieces at once, which should then be small, perhaps elsewhere.

        Folders are told to them by their absolute paths, and may not be there.
        """

    @property
    def gpus(self) -> float:
        """How many there are for work that asks for them."""

    def run(self, works: Iterable[Work], *, told: Told, stop: Stop) -> Ended:
        """Each piece of work with its result, in the order in which they end.

        Work is taken from ``works`` when there is room for it. ``told`` is called here, in the
        thread of the caller, with what a piece tells; some of that may be lost with a machine, or
        come twice, while each result comes once: work that is lost is done again.

        Once ``stop`` says so, no more work is taken and what runs is asked to stop; `StoppedError`
        is raised when it has, and results that came meanwhile are given before. Work that fails is
        an error, with which all ends, as it does where the caller closes the generator.
        """

    def close(self) -> None:
        """Leave the machines to others."""


# By the name before ``://``; each is called with the whole text, as in ``ray://HOST:PORT``.
EXECUTORS: Registry[Callable[[str], Executor]] = Registry("executor")


@contextmanager
def open_executor(place: str = "local") -> Iterator[Executor]:
    """The executor of a name, perhaps with an address, closed at the end.

    >>> with open_executor("local") as executor:
    ...     print(executor)
    this machine
    >>> with open_executor("mars"):  # doctest: +ELLIPSIS
    ...     pass
    Traceback (most recent call last):
    setwise.registry.UnknownNameError: executor: unknown 'mars'; known: local, ray...
    """
    executor = EXECUTORS[place.partition("://")[0]](place)
    try:
        yield executor
    finally:
        executor.close()


def _open_local(place: str) -> Executor:
    from setwise.executors.local import LocalExecutor

    if place != "local":
        raise ValueError(f"executor: local has no address, got {place!r}")
    return LocalExecutor()


def _open_ray(place: str) -> Executor:
    from setwise.executors.ray_address import require_answer

    require_answer(place)
    from setwise.executors.ray_cluster import RayExecutor  # which needs Ray

    return RayExecutor(place)


EXECUTORS.add("local", _open_local)
EXECUTORS.add("ray", _open_ray)
