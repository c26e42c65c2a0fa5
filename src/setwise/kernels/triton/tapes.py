"""Calls of one kind, one after the other: their launches are recorded once, then played.

For sets that are not large a call takes the host longer than the device: shapes are looked at,
memory is asked for a dozen times, the arguments of each launch are put in order. Of the next call
with the same shapes and options all of that would come out the same, but for where its arrays are.
So a tape holds the launches, and which arrays they take: some are given, some are results, and all
others are pieces of one allocation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from setwise.kernels.triton import launch
from setwise.kernels.triton.launch import Compiled, Launched
from setwise.kernels.triton.memory import floats

# Tapes, and kinds of calls that might get one, at most.
MOST_TAPES = 512
# Bytes that a call allocates at most: where there are more, the device takes longer than the host.
MOST_BYTES = 2**28
# Where pieces begin: at multiples of so many bytes, as what PyTorch allocates.
ALIGNMENT = 512

Results = tuple[Tensor | None, ...]

# What may be asked of an array, or made of it, while the device has nothing to do.
_IDLE = {"__get__", "data_ptr", "detach", "dim", "get_device", "is_contiguous", "numel", "squeeze"}
_IDLE |= {"view", "__len__"}


class _Piece(NamedTuple):
    """Of the memory that is neither given nor returned."""

    begin: int
    end: int
    dtype: torch.dtype
    shape: torch.Size


class _Step(NamedTuple):
    """A launch; ``chosen`` picks its arrays out of all of them."""

    launched: Launched  # without its tensors
    compiled: Compiled | None  # not in Triton's interpreter
    chosen: Callable[[list[Any]], tuple[Any, ...]]


class _Tape(NamedTuple):
    """Launches, whose arrays are those given, then the results, then the pieces."""

    shapes: tuple[torch.Size | None, ...]  # of the results, of float32
    size: int  # of all pieces, in bytes
    pieces: tuple[_Piece, ...]
    begins: tuple[int, ...]  # of the pieces
    steps: tuple[_Step, ...]


# What is known of a kind of calls: its tape, that there was one, or that it cannot be recorded.
_ONCE, _NEVER = "once", "never"
_tapes: dict[tuple[Any, ...], _Tape | str] = {}
_changing = threading.Lock()  # held where kinds come and go


def played(kind: tuple[Any, ...], given: list[Tensor], compute: Callable[[], Results]) -> Results:
    """What ``compute`` makes of the arrays that are ``given``, by a tape if there is one.

    Which kernels it starts, and with which arguments but these arrays, is decided by the ``kind``
    alone; its results are whole arrays of float32. The second call of a kind is recorded, so that
    what changes with every call is not.
    """
    device = given[0].get_device()
    addresses = [array.data_ptr() for array in given]
    misaligned = 0
    for address in addresses:
        misaligned |= address & 15
    # Kernels are compiled for the types and the alignment of what they are given.
    types = [array.dtype for array in given]
    key = (kind, device, *types, *([address & 15 for address in addresses] if misaligned else ()))
    tape = _tapes.get(key)
    if type(tape) is _Tape:
        if launch.INTERPRETED:
            return _interpreted(tape, given)
        if device == torch._C._cuda_getDevice():
            return _play(tape, given[0].device, device, addresses)
    elif tape is None:
        with _changing:
            if len(_tapes) >= MOST_TAPES:
                del _tapes[next(iter(_tapes))]
            _tapes[key] = _ONCE
    elif tape is _ONCE and len(set(addresses)) == len(addresses):  # else which would be which?
        results, found = _recorded(given, compute)
        with _changing:
            _tapes[key] = _NEVER if found is None else found
        return results
    return compute()


def forget() -> None:
    """Play nothing of what was recorded: for those who change what kernels do, as tests."""
    with _changing:
        _tapes.clear()


def _play(tape: _Tape, device: torch.device, index: int, addresses: list[int]) -> Results:
    shapes, size, _, begins, steps = tape
    results = [None if shape is None else floats(device, *shape) for shape in shapes]
    memory = torch.empty(size, dtype=torch.uint8, device=device)
    addresses += [0 if result is None else result.data_ptr() for result in results]
    first = memory.data_ptr()
    addresses += [first + begin for begin in begins]
    stream = torch._C._cuda_getCurrentRawStream(index)
    for (_, grid, _, numbers), compiled, chosen in steps:
        run, before, constants = compiled  # type: ignore[misc]  # on a device there is one
        run(*grid, stream, *before, *chosen(addresses), *numbers, *constants)
    return tuple(results)


def _interpreted(tape: _Tape, given: list[Tensor]) -> Results:
    """The same in Triton's interpreter, where kernels take tensors."""
    device = given[0].device
    results = tuple(None if s is None else floats(device, *s) for s in tape.shapes)
    memory = torch.empty(tape.size, dtype=torch.uint8, device=device)
    pieces = [memory[p.begin : p.end].view(p.dtype).view(p.shape) for p in tape.pieces]
    arrays = [a.view(torch.uint8) if a.dtype == torch.bool else a.detach() for a in given]
    for (launcher, grid, _, numbers), _, chosen in tape.steps:
        launcher(grid, chosen([*arrays, *results, *pieces]), numbers)
    return results


class _Recorder(TorchFunctionMode):
    """What is launched and allocated, and whether nothing else happens.

    A mode of functions: once a mode of dispatch was on, every backward pass takes longer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[Launched] = []
        self.allocated: dict[int, Tensor] = {}  # by address; kept, so that no two have the same
        self.size = 0
        self.plain = True

    def hear(self, launched: Launched) -> None:
        if self.plain:
            self.launches.append(launched)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.empty:
            if self.plain:
                self.allocated[result.data_ptr()] = result
                self.size += result.nbytes
        elif getattr(func, "__name__", "") not in _IDLE:
            self.plain = False
        if not self.plain or self.size > MOST_BYTES:
            # Of no use any more; memory that the call is done with is to be free again at once.
            self.plain = False
            self.launches.clear()
            self.allocated.clear()
        return result


def _recorded(given: list[Tensor], compute: Callable[[], Results]) -> tuple[Results, _Tape | None]:
    """The results, and a tape of how they came about if that holds all of it."""
    recorder = _Recorder()
    with launch.listening(recorder.hear), recorder:
        results = compute()
    if not recorder.plain:
        return results, None
    return results, _tape(given, results, recorder.allocated, recorder.launches)


def _tape(
    given: list[Tensor], results: Results, allocated: dict[int, Tensor], launches: list[Launched]
) -> _Tape | None:
    number = {array.data_ptr(): k for k, array in enumerate(given)}
    for k, result in enumerate(results, start=len(given)):
        if result is not None:
            whole = allocated.pop(result.data_ptr(), None)
            if whole is None or whole.nbytes != result.nbytes or whole.dtype != torch.float32:
                return None
            if not result.is_contiguous():
                return None
            number[result.data_ptr()] = k
    pieces: list[_Piece] = []
    size = 0
    for address, array in allocated.items():
        number[address] = len(given) + len(results) + len(pieces)
        pieces.append(_Piece(size, size + array.nbytes, array.dtype, array.shape))
        size += (array.nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    steps = []
    for launched in launches:
        launcher, grid, tensors, numbers = launched
        if any(t.data_ptr() not in number for t in tensors):
            return None
        compiled = None if launch.INTERPRETED else launcher.compiled(tensors, numbers)
        if compiled is None and not launch.INTERPRETED:
            return None
        assert len(tensors) > 1  # what is got of one is no tuple
        chosen = itemgetter(*(number[t.data_ptr()] for t in tensors))
        steps.append(_Step(Launched(launcher, grid, (), numbers), compiled, chosen))
    shapes = tuple(None if result is None else result.shape for result in results)
    return _Tape(shapes, size, tuple(pieces), tuple(p.begin for p in pieces), tuple(steps))
