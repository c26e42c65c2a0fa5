"""Compiles kernels of full precision for NVIDIA devices, which needs none; prints what came out.

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

from setwise.kernels.triton import products, strips, tiles
from setwise.kernels.triton.thirds import APART, row_length

N = 4096
WALK = {"OWNS_KEYS": True, "UNIT": True, "WEIGHTED": False, "SCALED": False, "LISTED": False}


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


def forward(capability: int, F: int, room: int) -> dict[str, Any]:
    walk = tiles.forward_tiles(N, N, F, torch.float32, "float32", room)
    constants = dict.fromkeys(("RECORDED", "SUMMED", "WEIGHTED", "CENTRED"), False)
    constants |= {"F": row_length(F), "PEAK_KEYS": walk.c, "PRECISION": "float32"} | blocks(walk)
    types = ["*bf16"] * 2 + ["*i8"] + ["*fp32"] * 6 + ["i32"] * 4 + ["fp32"]
    kernel = compiled(products.logsumexp, types, constants, walk, capability)
    return told(kernel, tiles.bytes_of_thirds(walk, F))


def backward(capability: int, F: int, room: int) -> dict[str, Any]:
    walk = tiles.backward_tiles(N, N, F, torch.float32, "float32", False, room)
    constants = WALK | {"SIGMOID": True, "WHOLE": True, "SECOND": "same"} | blocks(walk)
    constants |= {"F": F, "BLOCK_D": walk.d, "HALVES": walk.halves, "ROW": row_length(F)}
    types = ["*bf16"] * 3 + ["*i8"] + ["*fp32"] * 5 + ["*i32"] * 2 + ["*fp32"] * 2
    types += ["i32"] * 6 + ["fp32"]
    constants |= {"PRECISION": "float32"}
    kernel = compiled(products.gradients, types, constants, walk, capability)
    return told(kernel, tiles.bytes_of_thirds(walk, F))


def weights(capability: int, F: int, room: int) -> dict[str, Any]:
    walk = tiles.forward_tiles(N, N, F, torch.float32, "float32", room)
    constants = WALK | {"ROW": row_length(F), "PRECISION": "float32"} | blocks(walk)
    types = ["*bf16"] * 2 + ["*i8"] + ["*fp32"] * 5 + ["*i32"] * 2 + ["*bf16", "*fp32"]
    types += ["i32"] * 6 + ["fp32"] + ["i32"] * 2
    kernel = compiled(strips.weights, types, constants, walk, capability)
    return told(kernel, tiles.bytes_of_thirds(walk, F))


def strip_gradients(capability: int, F: int, room: int) -> dict[str, Any]:
    tiles.shared_memory = lambda device: room
    large, walk, _ = tiles.strip_tiles(
        torch.device("cpu"), 1, N, N, F, torch.float32, torch.float32, "float32"
    )
    constants = WALK | {"SIGMOID": True, "WHOLE": True, "TRANSPOSED": False, "F": F}
    constants |= {"ROW": row_length(F), "C_ROW": row_length(F), "BLOCK_A": walk.a}
    constants |= {"TILE_C": large.c, "BLOCK_C": walk.c, "BLOCK_D": walk.d}
    types = ["*bf16", "*fp32", "*bf16", "*bf16", "*i8"] + ["*fp32"] * 3 + ["*i32"] * 2
    types += ["*fp32"] * 2 + ["i32"] * 6 + ["fp32"] + ["i32"] * 2
    constants |= {"PRECISION": "float32"}
    kernel = compiled(strips.gradients, types, constants, walk, capability)
    return told(kernel, tiles.bytes_of_products(walk, 6))


def blocks(walk: tiles.Tiles) -> dict[str, int]:
    return {"BLOCK_A": walk.a, "BLOCK_C": walk.c, "BLOCK_F": walk.f}


def told(kernel: Any, expected: int) -> dict[str, Any]:
    mark = f"maxNumImpreciseAcc = {APART.value}"
    return {
        "shared": kernel.metadata.shared,
        "expected": expected,
        "apart": [line for line in kernel.asm["ttgir"].splitlines() if mark in line],
    }


def main() -> None:
    """Forward and backward for a large set."""
    capability, F, room = map(int, sys.argv[1:])
    passes = [forward, backward] if F <= tiles.MOST_FEATURES_AT_ONCE else [weights, strip_gradients]
    print(json.dumps({run.__name__: run(capability, F, room) for run in passes}))


if __name__ == "__main__":
    main()
