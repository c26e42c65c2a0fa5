"""The matrix: every loss, family and shape, ours beside its rivals, in each mode it can be run in.

A row has ``loss``, ``family``, ``shape``, ``impl``, ``mode`` and then ``total_ms`` and ``peak_mb``
of a step forward and backward, or ``error``. Modes are ``eager``; ``compiled``, within the
``torch.compile`` of whoever calls it; ``graph``, replayed from a CUDA graph; and of the dense
lines ``compiled graph``, both.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from setwise.bench.cells import LOSSES, Cell
from setwise.bench.losses import PRECISION, peak_mb, products_of
from setwise.bench.rivals import COMPILED, COMPILED_GRAPH, EAGER, GRAPH, Rival, rivals
from setwise.environment import describe

OURS = "setwise"
Key = tuple[str, str, str, str, str]
# Short steps take turns, for a host that others share is now fast, now slow; so many calls a turn.
TURNS, CALLS = 3, 12
SHORT_SECONDS = 0.02
# A longer step has one turn, of no more than a second; then its memory is free for others.
LONG_CALLS, LONG_SECONDS = 5, 1.0
REPLAYS = 10  # of a graph, between two looks at the clock


def header(device: str, commit: str | None) -> dict[str, Any]:
    """What was measured on what."""
    return describe(torch.device(device), commit) | {
        "precision": PRECISION[torch.device(device).type]
    }


def key(row: dict[str, Any]) -> Key:
    """What a row is about."""
    return row["loss"], row["family"], row["shape"], row["impl"], row["mode"]


def measure(
    device: str,
    chosen: Sequence[Cell],
    modes: Collection[str] = (),
    done: Collection[Key] = (),
    budget: float | None = None,
) -> Iterator[list[dict[str, Any]]]:
    """The rows of one cell after the other, but those that are done.

    No cell is begun after a budget of seconds.
    """
    began = time.monotonic()
    with products_of(device):
        for cell in chosen:
            trials = [
                trial
                for trial in _trials(cell, device)
                if trial.key not in done and (not modes or trial.mode in modes)
            ]
            if not trials:
                continue
            if budget is not None and time.monotonic() - began > budget:
                return
            yield _measure_cell(trials)


def _trials(cell: Cell, device: str) -> list[_Trial]:
    graph = (GRAPH,) if LOSSES[cell.loss].capturable else ()
    contenders = [Rival(OURS, cell.ours(), (EAGER, COMPILED, *graph)), *rivals(cell, device)]
    return [
        _Trial(cell, contender, mode, device)
        for contender in contenders
        for mode in contender.modes
        if device == "cuda" or mode in (EAGER, COMPILED)
    ]


def _measure_cell(trials: list[_Trial]) -> list[dict[str, Any]]:
    torch.compiler.reset()  # nothing compiled for another cell may serve this one
    for trial in trials:
        trial.begin()
    for _ in range(TURNS):
        for trial in trials:
            trial.take_turn()
    rows = [trial.row() for trial in trials]
    trials.clear()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return rows


class _Trial:
    """One contender in one mode on one cell. Whatever it raises is what is recorded of it."""

    def __init__(self, cell: Cell, contender: Rival, mode: str, device: str) -> None:
        self.cell, self.contender, self.mode, self.device = cell, contender, mode, device
        self.seconds: list[float] = []
        self.peak_mb: float | None = None
        self.error: str | None = None
        self.call: Callable[[], object] | None = None
        self.calls_in_one = 1

    @property
    def key(self) -> Key:
        cell = self.cell
        return cell.loss, cell.family, cell.shape, self.contender.name, self.mode

    def begin(self) -> None:
        """Have it compiled and recorded; a long step is over then."""
        with self._recorded_errors():
            self.call = self._prepared()
            self.seconds.append(self._time())
            if self.seconds[0] > SHORT_SECONDS:
                calls = min(LONG_CALLS, int(LONG_SECONDS / self.seconds[0]))
                self.seconds += [self._time() for _ in range(calls)]
                self._forget()

    def take_turn(self) -> None:
        """Time some calls, unless it is over."""
        if self.call is not None:
            with self._recorded_errors():
                self.seconds += [self._time() for _ in range(CALLS)]

    @contextmanager
    def _recorded_errors(self) -> Iterator[None]:
        try:
            yield
        except torch.cuda.OutOfMemoryError:
            self.error = "out of memory"
        except Exception as error:  # of a library of others, of a compiler: not the end of the run
            self.error = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        if self.error is not None:
            self._forget()

    def _forget(self) -> None:
        self.call = None
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def _prepared(self) -> Callable[[], object]:
        logits, target = self.cell.leaves(self.device)
        logits = logits.detach().to(self.contender.dtype).requires_grad_()
        target = target.to(self.contender.dtype)
        step = self.contender.step
        if self.mode in (COMPILED, COMPILED_GRAPH):
            step = torch.compile(step, dynamic=False)

        def call() -> tuple[Tensor, ...]:
            return torch.autograd.grad(step(logits, target), [logits])

        call()
        self.peak_mb = peak_mb(call, self.device)
        if self.mode not in (GRAPH, COMPILED_GRAPH):
            return call
        self.calls_in_one = REPLAYS
        return _replayed(call)

    def _time(self) -> float:
        """Seconds of one call: until the device has done it, or that one processor was busy."""
        assert self.call is not None
        if self.device == "cuda":
            torch.cuda.synchronize()
        # Of one thread, not by the clock, which others that share the machine hold up.
        alone = self.device == "cpu" and torch.get_num_threads() == 1
        clock = time.process_time if alone else time.perf_counter
        start = clock()
        self.call()
        if self.device == "cuda":
            torch.cuda.synchronize()
        return (clock() - start) / self.calls_in_one

    def row(self) -> dict[str, Any]:
        names = ("loss", "family", "shape", "impl", "mode")
        found: dict[str, Any] = dict(zip(names, self.key, strict=True))
        found["sizes"] = list(self.cell.sizes)
        if self.error is not None:
            return found | {"error": self.error}
        total_ms = 1e3 * statistics.median(self.seconds)
        return found | {"total_ms": total_ms, "peak_mb": self.peak_mb, "calls": len(self.seconds)}


def _replayed(call: Callable[[], object]) -> Callable[[], object]:
    """The same work from a CUDA graph, a few times."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = call()

    def replay() -> object:
        for _ in range(REPLAYS):
            graph.replay()
        # Also what the call was given, which the graph reads from where it was.
        return call, kept

    return replay
