"""Compiles kernels as they are planned, for a device that need not be there; tells what came out.

A program of its own, because in a test without a GPU the kernels are made for the interpreter.
Arguments: compute capability, and shared memory of the device. The last line is JSON.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from setwise.kernels.triton import plans, points, tiles
from setwise.kernels.triton.thirds import APART, row_length

CPU = torch.device("cpu")
N = 4096
# What elements are multiplied as.
POINTERS = {"thirds": "*bf16", "float16": "*fp16", "tf32": "*fp32"}
# What arguments are; else arrays of float32 and, in small letters, integers.
TYPES = {"LONG": "*i8", "LIST": "*i32", "COUNT": "*i32", "VALID": "*u8"}
TYPES |= {"factor": "fp32", "M": "i32", "N": "i32"}


class Planned:
    """Stands for a `launch.Launcher`."""

    def __init__(self, kernel: Any, constants: dict[str, Any], warps: int, stages: int) -> None:
        self.kernel, self.constants = kernel, constants
        self.options = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}

    def compiled(self, capability: int, elements: str) -> Any:
        """With elements, and weights, of that type."""
        types = TYPES | dict.fromkeys(("A", "C", "C_T", "P", "Q", "K"), elements)
        names = self.kernel.arg_names
        given = [name for name in names if name not in self.constants]
        assert given == names[: len(given)]
        assert list(self.constants) == names[len(given) :]
        signature = {
            name: types.get(name, "*fp32" if name.isupper() else "i32") for name in given
        } | dict.fromkeys(self.constants, "constexpr")
        aligned = {
            (i,): [["tt.divisibility", 16]]
            for i, name in enumerate(given)
            if signature[name] != "fp32"
        }
        values = {(names.index(name),): value for name, value in self.constants.items()}
        source = ASTSource(self.kernel, signature, values, aligned)
        target = GPUTarget("cuda", capability, 32)
        return triton.compile(source, target=target, options=self.options)


def planned(plan: Any, *args: Any) -> Any:
    """Anew: what is remembered has a launcher of another kind."""
    return inspect.unwrap(plan)(*args)


def walks(
    precision: str, F: int, dtype: torch.dtype, owns_keys: bool, listed: bool
) -> Iterator[tuple[str, Planned]]:
    """The launches of a training step, to one side, and what each is for."""
    row = row_length(F) if F > points.MAX_FEATURES else F
    forward = planned(
        plans.logsumexp, CPU, 1, N, N, F, row, dtype, precision,
        listed, True, False, precision != "tf32", dtype == torch.float16,
    )  # fmt: skip
    backward = planned(
        plans.gradients, CPU, 1, N, N, F, row, dtype, precision,
        owns_keys, owns_keys, owns_keys, False, listed, dtype == torch.float16,
        owns_keys and F < 256,
    )  # fmt: skip
    yield "forward", forward.start
    if backward.strips is None:
        for launch in getattr(backward.start, "launchers", [backward.start]):
            yield f"backward of {launch.constants.get('QUERIES', 'any')} queries", launch
    else:
        yield "weights", backward.strips.start
        yield "backward", backward.start


def main() -> None:
    capability, room = map(int, sys.argv[1:])
    plans.launcher = Planned
    plans.shared_memory = tiles.shared_memory = lambda device: room
    results = []
    for kind, F, owns_keys, listed in (
        ("thirds", 64, True, False),
        ("thirds", 256, False, True),
        ("thirds", 1000, True, True),
        ("float16", 92, True, False),
        ("float16", 92, False, True),
        ("float16", 256, True, False),
        ("float16", 1000, True, True),
        ("tf32", 256, False, False),
        ("tf32", 1000, False, True),
        ("tf32", 4, True, False),
    ):
        precision = "float32" if kind == "thirds" else "tf32"
        dtype = torch.float16 if kind == "float16" else torch.float32
        for name, launch in walks(precision, F, dtype, owns_keys, listed):
            kernel = launch.compiled(capability, POINTERS[kind])
            results.append([f"{name}, {kind}, {F} features", *told(kernel)])
    for kind, precision in (("thirds", "float32"), ("float16", "tf32")):
        small = planned(plans.small_sets, 8, 64, 64, 128, True, True, True, True, precision)
        kernel = small.start.compiled(capability, "*fp32")
        results.append([f"small sets, {kind}", *told(kernel)])
    print(json.dumps(results))


def told(kernel: Any) -> tuple[int, list[str]]:
    """Bytes of shared memory, and products that nothing should be added to."""
    mark = f"maxNumImpreciseAcc = {APART.value}"
    lines = [line for line in kernel.asm["ttgir"].splitlines() if mark in line]
    return kernel.metadata.shared, lines


if __name__ == "__main__":
    main()
