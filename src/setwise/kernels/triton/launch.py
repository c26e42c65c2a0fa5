"""Starting a Triton kernel with little overhead.

Triton works out anew at every call which compiled version of a kernel fits its arguments, which
takes longer than a small kernel runs. Here the compiled version is remembered under everything its
choice depends on, and started directly, by releases of Triton that are known to allow it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

# Kernels are made for the interpreter or for the device when their module is first imported.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

# The first and the last release whose compiled kernels are known to be started as below. That is no
# public interface of Triton's; other releases start kernels by themselves, which takes longer.
DIRECT_TRITON = (3, 4), (3, 9)


def starts_directly(version: str) -> bool:
    """Whether compiled kernels of that release of Triton can be started without its help."""
    major, minor, *_ = version.split(".")
    first, last = DIRECT_TRITON
    return first <= (int(major), int(minor)) <= last


DIRECT = starts_directly(triton.__version__)


class Compiled(NamedTuple):
    """A version of a kernel: what starts it, what comes before its arguments, and the last ones.

    Started by ``run(*grid, stream, *before, *addresses, *numbers, *constants)``. With bare
    addresses: for a tensor the driver would be asked about each.
    """

    run: Any
    before: tuple[Any, ...]
    constants: tuple[Any, ...]


class Launcher:
    """A kernel with its constants, number of warps and stages; see `launcher`."""

    def __init__(
        self,
        kernel: Any,
        constants: dict[str, Any],
        warps: int,
        stages: int,
        registers: int | None = None,
    ) -> None:
        self._kernel, self._constants = kernel, constants
        self._values = tuple(constants.values())
        # Newer releases of Triton may no longer fuse multiplications and additions by default.
        self._options = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}
        if registers is not None:
            self._options["maxnreg"] = registers
        self._compiled: dict[tuple[Any, ...], Compiled] = {}

    def __call__(
        self,
        grid: tuple[int, int, int],
        tensors: tuple[Tensor, ...],
        numbers: tuple[int | float, ...],
    ) -> None:
        """Run ``kernel(*tensors, *numbers, **constants)``: tensors come first, constants last."""
        device = tensors[0].get_device()
        if not INTERPRETED and device != torch._C._cuda_getDevice():
            with torch.cuda.device(device):
                self(grid, tensors, numbers)
            return
        if _listener.hear is not None:
            self._tell(_listener.hear, grid, tensors, numbers)
            return
        if INTERPRETED:
            _require_arrays(tensors)
            self._kernel[grid](*tensors, *numbers, **self._constants)
            return
        pointers = [t.data_ptr() for t in tensors]
        key = _key(device, tensors, pointers, numbers)
        compiled = self._compiled.get(key)
        if compiled is None:
            self._start_and_remember(key, grid, tensors, numbers)
            return
        run, before, constants = compiled
        stream = torch._C._cuda_getCurrentRawStream(device)
        run(*grid, stream, *before, *pointers, *numbers, *constants)

    def _tell(
        self,
        hear: Callable[[Launched], None],
        grid: tuple[int, int, int],
        tensors: tuple[Tensor, ...],
        numbers: tuple[int | float, ...],
    ) -> None:
        """Start it, and say so to who listens; what Triton does meanwhile is its own business."""
        hear(Launched(self, grid, tensors, numbers))
        _listener.hear = None
        try:
            with torch._C.DisableTorchFunction():
                self(grid, tensors, numbers)
        finally:
            _listener.hear = hear

    def compiled(
        self, tensors: tuple[Tensor, ...], numbers: tuple[int | float, ...]
    ) -> Compiled | None:
        """The version for such arguments if there is one that can be started directly."""
        pointers = [t.data_ptr() for t in tensors]
        return self._compiled.get(_key(tensors[0].get_device(), tensors, pointers, numbers))

    def _start_and_remember(
        self,
        key: tuple[Any, ...],
        grid: tuple[int, int, int],
        tensors: tuple[Tensor, ...],
        numbers: tuple[int | float, ...],
    ) -> None:
        """By Triton; what it compiled is remembered if it can be started directly."""
        _require_arrays(tensors)
        compiled = self._kernel[grid](*tensors, *numbers, **self._constants, **self._options)
        names = ("run", "function", "packed_metadata")
        if DIRECT and all(hasattr(compiled, name) for name in names):
            run, function, metadata = (getattr(compiled, name) for name in names)
            # The three None stand where a profiler of Triton's own may hook in.
            before = function, metadata, None, None, None
            self._compiled[key] = Compiled(run, before, self._values)


class Launched(NamedTuple):
    """A launch with its arguments."""

    launcher: Launcher
    grid: tuple[int, int, int]
    tensors: tuple[Tensor, ...]
    numbers: tuple[int | float, ...]


class _Listener(threading.local):
    hear: Callable[[Launched], None] | None = None


_listener = _Listener()


@contextmanager
def listening(hear: Callable[[Launched], None]) -> Iterator[None]:
    """``hear`` is told of all that this thread launches meanwhile."""
    try:
        _listener.hear = hear
        yield
    finally:
        _listener.hear = None


def _key(
    device: int,
    tensors: tuple[Tensor, ...],
    pointers: list[int],
    numbers: tuple[int | float, ...],
) -> tuple[Any, ...]:
    """What compiled code assumes: types and alignment of pointers, properties of the numbers."""
    misaligned = 0
    for pointer in pointers:
        misaligned |= pointer & 15
    return (
        device,
        _properties(*numbers),
        *[t.dtype for t in tensors],
        *([p & 15 for p in pointers] if misaligned else ()),
    )


class LaunchSequence:
    """Several launchers, each started with the same arguments."""

    def __init__(self, *launchers: Launcher) -> None:
        self.launchers = launchers

    def __call__(
        self,
        grid: tuple[int, int, int],
        tensors: tuple[Tensor, ...],
        numbers: tuple[int | float, ...],
    ) -> None:
        for start in self.launchers:
            start(grid, tensors, numbers)


def _require_arrays(tensors: tuple[Tensor, ...]) -> None:
    """Kernels count positions as in plain arrays. Looked at once: every call would cost more."""
    assert all(t.is_contiguous() for t in tensors)


_launchers: dict[tuple[Any, ...], Launcher] = {}


def launcher(
    kernel: Any,
    constants: dict[str, Any],
    warps: int,
    stages: int,
    registers: int | None = None,
) -> Launcher:
    """The one launcher of a kernel with these options; worth keeping by those who call often.

    A thread has so many ``registers`` at most, so that a multiprocessor has room for more of them.
    """
    # The name, for the hash of a kernel is that of its source.
    key = (kernel.__module__, kernel.__name__, warps, stages, registers, *constants.values())
    if key not in _launchers:
        _launchers[key] = Launcher(kernel, constants, warps, stages, registers)
    return _launchers[key]


@lru_cache(maxsize=4096, typed=True)
def _properties(*numbers: int | float) -> tuple[Any, ...]:
    """What is compiled in: of an integer these properties alone, of other numbers nothing."""
    return tuple((n == 1, n % 16 == 0, n >= 2**31) if isinstance(n, int) else None for n in numbers)
