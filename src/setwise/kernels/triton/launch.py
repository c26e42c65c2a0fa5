"""Starting a Triton kernel with little overhead.

Triton works out anew at every call which compiled version of a kernel fits its arguments, which
takes longer than a small kernel runs. Here the compiled version is remembered under everything its
choice depends on, and started directly.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

# Kernels are made for the interpreter or for the device when their module is first imported.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

_starters: dict[tuple[Any, ...], tuple[Any, Any, Any]] = {}


def launch(
    kernel: Any,
    grid: tuple[int, int, int],
    tensors: tuple[Tensor, ...],
    numbers: tuple[int | float, ...],
    constants: dict[str, Any],
    warps: int,
    stages: int,
) -> None:
    """Run ``kernel(*tensors, *numbers, **constants)``, which must be the order of its arguments."""
    assert all(t.is_contiguous() for t in tensors)
    if INTERPRETED:
        kernel[grid](*tensors, *numbers, **constants)
        return
    device = tensors[0].get_device()
    if device != torch._C._cuda_getDevice():
        with torch.cuda.device(device):
            launch(kernel, grid, tensors, numbers, constants, warps, stages)
        return
    # Compiled code assumes the types and the alignment of pointers, and properties of the numbers.
    pointers = [t.data_ptr() for t in tensors]
    misaligned = [p & 15 for p in pointers] if any(p & 15 for p in pointers) else ()
    # Of an integer only these properties are compiled in, of other numbers nothing.
    properties = [
        (n == 1, n % 16 == 0, n >= 2**31) if isinstance(n, int) else None for n in numbers
    ]
    values = constants.values()
    # The name, for the hash of a kernel is that of its source.
    name = (kernel.__module__, kernel.__name__)
    types = [t.dtype for t in tensors]
    key = (name, device, warps, stages, *values, *types, *misaligned, *properties)
    starter = _starters.get(key)
    if starter is None:
        compiled = kernel[grid](*tensors, *numbers, **constants, num_warps=warps, num_stages=stages)
        _starters[key] = compiled.run, compiled.function, compiled.packed_metadata
        return
    run, function, metadata = starter
    stream = torch._C._cuda_getCurrentRawStream(device)
    # Bare addresses: for a tensor the launcher would ask the driver about each pointer. The three
    # None stand where a profiler of Triton's own may hook in.
    run(*grid, stream, function, metadata, None, None, None, *pointers, *numbers, *values)
