"""Compiles kernels of `products` for NVIDIA devices, which needs none; prints what came out.

A program of its own, because in a test without a GPU the kernels are made for the interpreter.
Arguments: compute capability, features, shared memory of the device. The last line is JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from setwise.kernels.triton import products, tiles
from setwise.kernels.triton.thirds import APART, row_length


def compiled(
    kernel: Any, types: list[str], constants: dict[str, Any], walk: tiles.Tiles, capability: int
) -> Any:
    names = kernel.arg_names
    given = names[: len(types)]
    signature = dict(zip(given, types, strict=True)) | dict.fromkeys(constants, "constexpr")
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(types) if kind != "fp32"}
    values = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, signature, values, aligned)
    options = {"num_warps": walk.warps, "num_stages": walk.stages, "enable_fp_fusion": True}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def main() -> None:
    """Forward and backward for a large set."""
    capability, F, room = map(int, sys.argv[1:])
    N, row = 4096, row_length(F)
    forward = tiles.forward_tiles(N, N, F, torch.float32, "float32", room)
    backward = tiles.backward_tiles(N, N, F, torch.float32, "float32", False, room)
    blocks = [
        {"BLOCK_A": walk.a, "BLOCK_C": walk.c, "BLOCK_F": walk.f} for walk in (forward, backward)
    ]
    flags = ("RECORDED", "SUMMED", "WEIGHTED", "CENTRED")
    constants = dict.fromkeys(flags, False) | {"F": row, **blocks[0], "PEAK_KEYS": forward.c}
    constants |= {"PRECISION": "float32"}
    types = ["*bf16"] * 2 + ["*fp32"] * 6 + ["i32"] * 4 + ["fp32"]
    passes = [(compiled(products.logsumexp, types, constants, forward, capability), forward)]
    constants = dict.fromkeys(("OWNS_KEYS", "SIGMOID", "UNIT", "WHOLE"), True)
    constants |= {"WEIGHTED": False, "SECOND": "same", "SCALED": False, "LISTED": False}
    constants |= {"F": F, **blocks[1], "BLOCK_D": backward.d, "HALVES": backward.halves}
    constants |= {"ROW": row, "PRECISION": "float32"}
    types = ["*bf16"] * 3 + ["*fp32"] * 5 + ["*i32"] * 2 + ["*fp32"] * 2 + ["i32"] * 6 + ["fp32"]
    passes.append((compiled(products.gradients, types, constants, backward, capability), backward))
    mark = f"maxNumImpreciseAcc = {APART.value}"
    results = [
        {
            "shared": kernel.metadata.shared,
            "expected": tiles.bytes_of_thirds(walk, F),
            "apart": [line for line in kernel.asm["ttgir"].splitlines() if mark in line],
        }
        for kernel, walk in passes
    ]
    print(json.dumps(results))


if __name__ == "__main__":
    main()
