"""Work on a Ray cluster: one task for each piece, and an actor that passes on what they tell.

Ray starts tasks where there is room. It does not start them again here: after a loss a piece of
work may go on from where it was, so that what it tells is not what it told, and how often work is
lost has a limit and a clear message.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from traceback import format_exc
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import (
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    TaskCancelledError,
    WorkerCrashedError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from setwise.executors.definitions import pack, unpack
from setwise.executors.executor import Ended, ExecutorError, Stop, StoppedError, Told, Work
from setwise.executors.ray_address import named_cluster, started_here
from setwise.outside import one_line

_POLL = 0.5  # seconds between two looks at what was told, and at whether to stop
_AGAIN = 5  # times that a piece of work may be lost
_CONNECTIONS = 3  # to be tried
_LOST = (
    *(WorkerCrashedError, NodeDiedError, LocalRayletDiedError, ObjectLostError, OutOfMemoryError),
)
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
# How a task ends, with its result, or a text that says why there is none.
_RESULT, _STOPPED, _FAILED = "result", "stopped", "failed"


class RayExecutor:
    """``ray://HOST:PORT`` connects to a cluster from outside of it, ``ray`` on one of its machines.

    The latter takes the cluster of ``RAY_ADDRESS``, or that of ``ray start`` on this machine, and
    else starts one of its own with all cores, which no other takes and which ends with it. Where
    Ray has been initialised, that stays.
    """

    spreads = True

    def __init__(self, place: str = "ray") -> None:
        self._ours = not ray.is_initialized()
        if self._ours:
            _connect(place)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        # It needs no core of its own, and is made anew where it is lost; then so is what it held.
        options: dict[str, Any] = {"num_cpus": 0, "max_restarts": -1, "scheduling_strategy": here}
        self._reports: Any = ray.remote(_reports_class()).options(**options).remote()
        self._tasks = _Tasks(ray.remote(_perform), self._reports)

    def __str__(self) -> str:
        nodes = _nodes()
        cores = sum(node.get("CPU", 0) for node in nodes)
        return f"Ray: {len(nodes)} nodes, {cores:.0f} cores, {self.gpus:.0f} GPUs"

    @property
    def gpus(self) -> float:
        return sum(node.get("GPU", 0) for node in _nodes())

    def run(self, works: Iterable[Work], *, told: Told, stop: Stop) -> Ended:
        left, tasks = iter(works), self._tasks
        stopping = False
        deque(tasks.heard(stopping), maxlen=0)  # what came too late for another run is forgotten
        try:
            while True:
                room = 0 if stopping else _room()
                while len(tasks.running) < room and (work := next(left, None)) is not None:
                    _require_room(work)
                    tasks.start(_Piece(work))
                if not tasks.running:
                    break
                done, _ = ray.wait(list(tasks.running), num_returns=1, timeout=_POLL)
                stopping = stopping or stop()
                for piece, item in tasks.heard(stopping):
                    told(piece.work, item)
                for task in done:
                    yield from tasks.ended(task, again=not stopping)
                if stopping:
                    tasks.cancel_waiting()
            if stopping:
                raise StoppedError
        except (RayError, ConnectionError) as error:
            raise ExecutorError(f"Ray: {one_line(error)}") from error
        finally:
            tasks.cancel()

    def close(self) -> None:
        with contextlib.suppress(Exception):  # of a connection that is gone
            ray.kill(self._reports)
        if self._ours:
            ray.shutdown()


@dataclass(eq=False)
class _Piece:
    """A piece of work, and what has become of it so far."""

    work: Work
    number: int = 0
    lost: int = 0
    begun: bool = False


class _Tasks:
    """Those that wait for a worker or run on one."""

    def __init__(self, task: Any, reports: Any) -> None:
        self._task, self._reports = task, reports
        self._pieces: dict[int, _Piece] = {}  # by the numbers that workers know them by
        self._started = 0
        self.running: dict[Any, _Piece] = {}

    def start(self, piece: _Piece) -> None:
        work = piece.work
        self._started += 1
        piece.number, piece.begun = self._started, False
        self._pieces[piece.number] = piece
        options: dict[str, Any] = {"num_cpus": work.cores, "num_gpus": work.gpus, "max_retries": 0}
        task = self._task.options(**options, name=work.name).remote(
            pack(work, cloudpickle.dumps), piece.number, self._reports
        )
        self.running[task] = piece

    def heard(self, stopping: bool) -> Iterator[tuple[_Piece, Any]]:
        """What was told since the last time."""
        try:
            found = ray.get(self._reports.take.remote(stopping))
        except RayActorError:
            return  # lost with its machine, and being started on another
        for number, item in found:
            piece = self._pieces.get(number)
            if piece is None:
                continue  # by a worker that was given up for lost
            if item is None:
                piece.begun = True
            else:
                yield piece, cloudpickle.loads(item)

    def ended(self, task: Any, again: bool) -> Iterator[tuple[Work, Any]]:
        piece = self.running.pop(task)
        del self._pieces[piece.number]
        work = piece.work
        try:
            how, value = ray.get(task)
        except (TaskCancelledError, *_LOST) as error:
            how, value = _STOPPED, one_line(error)
        if how == _RESULT:
            yield work, cloudpickle.loads(value)
        elif how == _FAILED:
            raise ExecutorError(f"{work.name}: {value}")
        elif again:  # it was lost, or stopped by somebody else than us
            piece.lost += 1
            if piece.lost > _AGAIN:
                raise ExecutorError(f"{work.name}: lost {piece.lost} times, last because {value}")
            self.start(piece)

    def cancel_waiting(self) -> None:
        """Those that no worker has begun with; the others know that they shall stop."""
        for task, piece in self.running.items():
            if not piece.begun:
                ray.cancel(task)

    def cancel(self) -> None:
        """All of them, at once."""
        for task in self.running:
            with contextlib.suppress(Exception):  # of a connection that is gone
                ray.cancel(task, force=True)
        self.running.clear()
        self._pieces.clear()


def _reports_class() -> type:
    """A class that travels as it is written here: its process need not import the library."""

    class Reports:
        """Holds what workers tell until it is fetched, and tells them to stop."""

        def __init__(self) -> None:
            self._told: list[tuple[int, bytes | None]] = []
            self._stopping = False

        def begin(self, number: int) -> bool:
            """A piece of work begins; whether it shall not."""
            self._told.append((number, None))
            return self._stopping

        def tell(self, number: int, item: bytes) -> None:
            self._told.append((number, item))

        def stopping(self) -> bool:
            return self._stopping

        def take(self, stopping: bool) -> list[tuple[int, bytes | None]]:
            self._stopping = stopping
            told, self._told = self._told, []
            return told

    return Reports


class _Reporter:
    """The worker's side of the reports. A loss of those is no reason to stop working.

    Another thread waits for their answers: while the thread of a task waits for something, Ray
    gives its cores to another task.
    """

    def __init__(self, reports: Any, number: int) -> None:
        self._reports, self._number = reports, number
        self._thread = ThreadPoolExecutor(1)
        self._last: Any = None
        self._asked: Future[bool] | None = None
        self._stopping = False
        self._since = time.monotonic()

    def begin(self) -> bool:
        return self._thread.submit(self._answer, "begin", self._number).result()

    def tell(self, item: Any) -> None:
        self._last = self._reports.tell.remote(self._number, cloudpickle.dumps(item))

    def stop(self) -> bool:
        """Asked after every epoch, which may be short: the answer is fetched when it is there."""
        now = time.monotonic()
        if self._asked is None and now - self._since > _POLL:
            self._asked, self._since = self._thread.submit(self._answer, "stopping"), now
        if self._asked is not None and self._asked.done():
            self._stopping, self._asked = self._asked.result(), None
        return self._stopping

    def end(self) -> None:
        """Everything was told before the result is there."""
        if self._last is not None:
            self._thread.submit(self._wait, self._last).result()

    def close(self) -> None:
        self._thread.shutdown(wait=False)

    def _answer(self, question: str, *arguments: Any) -> bool:
        try:
            return bool(ray.get(getattr(self._reports, question).remote(*arguments)))
        except RayActorError:
            return False

    def _wait(self, reference: Any) -> None:
        with contextlib.suppress(RayActorError):
            ray.get(reference)


def _perform(content: bytes, number: int, reports: Any) -> tuple[str, Any]:
    """What a worker does."""
    where = platform.node()
    reporter = _Reporter(reports, number)
    try:
        if reporter.begin():
            return _STOPPED, "it was asked to stop"
        function, arguments = unpack(content)
        result = function(*arguments, tell=reporter.tell, stop=reporter.stop)
        reporter.end()
        return _RESULT, cloudpickle.dumps(result)
    except StoppedError:
        return _STOPPED, f"it stopped on {where}"
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        return _FAILED, f"on {where}: {one_line(error)}"
    except Exception:
        return _FAILED, f"on {where}: {format_exc()}"
    finally:
        reporter.close()


def _connect(place: str) -> None:
    """To the cluster that is meant; an `ExecutorError` says what is wrong."""
    address = named_cluster(place) or started_here()
    with _own_signals(), warnings.catch_warnings(action="ignore"):
        try:
            if address is not None:
                _reach(address)
            else:
                os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
                ray.init("local", include_dashboard=False, **_QUIET)
        except (RayError, ConnectionError, RuntimeError, ValueError) as error:
            raise ExecutorError(f"no connection to a Ray cluster: {one_line(error)}") from error


def _reach(address: str) -> None:
    """A cluster that is there; what a server for those outside aborts is tried again.

    It forks a process for each of them while gRPC is at work in other threads, and every now and
    then that process dies at once (https://github.com/ray-project/ray/issues/63202).
    """
    for left in reversed(range(_CONNECTIONS)):
        try:
            ray.init(address, **_QUIET)
        except ConnectionAbortedError:
            ray.shutdown()  # what is left of the connection
            if not left:
                raise
        else:
            return


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Ray handles SIGTERM of whoever connects, which is ours: work is to be stopped in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _nodes() -> list[dict[str, float]]:
    """What each machine of the cluster has."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _room() -> int:
    """How many tasks may wait and run: enough to keep all busy, and to let a cluster grow."""
    return max(64, 2 * round(sum(node.get("CPU", 0) for node in _nodes())))


def _require_room(work: Work) -> None:
    """Refuse what no machine could ever do, for which Ray would wait."""
    nodes = _nodes()
    fits = [n for n in nodes if n.get("CPU", 0) >= work.cores and n.get("GPU", 0) >= work.gpus]
    if not fits:
        there = "; ".join(f"{n.get('CPU', 0):.0f} and {n.get('GPU', 0):.0f}" for n in nodes)
        raise ExecutorError(
            f"{work.name}: needs {work.cores} cores and {work.gpus:g} GPUs of one machine; those "
            f"of the cluster have {there}"
        )
