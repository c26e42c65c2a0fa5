"""What the device can do at most, measured, and so the time that a set loss cannot go below."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch


def ceilings(device: str) -> dict[str, float]:
    """Measured rates: products in float32 (tf32 on CUDA) and 16 bits, exponentials, bytes."""
    size = 8192 if device == "cuda" else 1024
    rates = {}
    for name, dtype in (("matmul", torch.float32), ("matmul_bf16", torch.bfloat16)):
        a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        rates[f"{name}_flops"] = 2 * size**3 / seconds(partial(torch.matmul, a, b), device)
    x = torch.randn(2**28 if device == "cuda" else 2**24, device=device)
    y = torch.empty_like(x)
    rates["bytes"] = 2 * x.numel() * x.element_size() / seconds(lambda: y.copy_(x), device)
    rates["exps"] = _exponentials(device)
    return rates


def seconds(function: Callable[[], object], device: str, repeats: int = 15) -> float:
    """Median seconds of a call; a call of more than a second is timed once."""
    if device == "cuda":
        from triton.testing import do_bench

        function()  # the first call may compile
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        if (once := time.perf_counter() - start) > 1:
            return once
        return float(do_bench(function, warmup=25, rep=100, return_mode="median")) / 1e3
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def limit_ms(
    B: int,
    N: int,
    F: int,
    itemsize: int,
    both_sides: bool,
    products: str,
    rates: dict[str, float],
) -> tuple[float, float]:
    """Milliseconds that forward, and forward with backward, need at the least.

    The forward pass must form B N^2 dot products of F terms and as many exponentials. The backward
    pass must form them again, since they are not stored, and B N^2 F multiply-adds more for each
    side that gets a gradient. Inputs are read and gradients written once. A pass takes at least as
    long as the slowest of products, exponentials and bytes. ``products`` names their rate.
    """
    product, exps = 2 * B * N * N * F / rates[products], B * N * N / rates["exps"]
    moved = B * N * F * itemsize / rates["bytes"]
    sides = 2 if both_sides else 1
    forward = max(product, exps, 2 * moved)
    # With both sides, each needs a walk of its own: no walk can add to both without atomics.
    backward = sides * max(2 * product, exps, 3 * moved)
    return forward * 1e3, (forward + backward) * 1e3


def _exponentials(device: str) -> float:
    """Exponentials a second, from registers on CUDA and from cache on a CPU."""
    if device != "cuda":
        x = torch.randn(2**16)
        return x.numel() / seconds(lambda: torch.exp(x), device, repeats=200)
    from setwise.bench.exponentials import exponentials

    rounds, block, programs = 256, 1024, 132 * 16
    out = torch.empty(programs * block, device=device)
    elapsed = seconds(lambda: exponentials[(programs,)](out, ROUNDS=rounds, BLOCK=block), device)
    return programs * block * rounds / elapsed
