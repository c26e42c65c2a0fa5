"""Set cross entropy beside its peers: time, memory, and distance from what the device allows."""

from __future__ import annotations

import gc
import platform
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import torch
import torch._dynamo
from torch import Tensor

import setwise as sw
from setwise.bench.contenders import Contender, available
from setwise.bench.limits import ceilings, limit_ms, seconds
from setwise.environment import current_commit

# (B, N, F): what people train on, from puzzles to point clouds.
SHAPES = {
    "puzzle": (1000, 9, 15),
    "rules": (1000, 5, 328),
    "blocks": (256, 5, 1224),
    "detr": (64, 300, 92),
    "shapenet": (32, 2048, 3),
    "mid": (8, 4096, 64),
    "wide": (1, 32768, 256),
    "cloud100k": (1, 100_000, 3),
    "cloud1M": (1, 1_000_000, 3),
}
SWEEP = {f"sweep-{n}": (1, n, 64) for n in (1024, 2048, 4096, 8192, 16384, 32768, 65536)}
# A CPU would need hours for the largest shapes.
CPU_SCORES = 5e8


def measure(device: str, names: list[str], commit: str | None) -> Iterator[dict[str, Any]]:
    """Yield the header, then one row for each shape and contender as it is measured."""
    # Peers and we alike: products of float32 may be formed in tf32.
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield from _measure(device, names, commit)
    finally:
        torch.set_float32_matmul_precision(before)


def _measure(device: str, names: list[str], commit: str | None) -> Iterator[dict[str, Any]]:
    rates = ceilings(device)
    yield {
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "setwise": sw.__version__,
        "commit": commit or current_commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "ceilings": rates,
    }
    contenders = available(device)
    for name, (B, N, width) in (SHAPES | SWEEP).items():
        if names and name not in names:
            continue
        if device == "cpu" and B * N * N > CPU_SCORES:
            continue
        torch._dynamo.reset()  # nothing compiled for another shape may serve this one
        for contender in contenders:
            row = {"shape": name, "B": B, "N": N, "F": width, "impl": contender.name}
            yield row | _measure_one(contender, (B, N, width), device, rates)


def _measure_one(
    contender: Contender, shape: tuple[int, int, int], device: str, rates: dict[str, float]
) -> dict[str, Any]:
    reason = contender.refuses(*shape)
    if reason:
        return {"error": reason}
    generator = torch.Generator(device).manual_seed(0)
    logits = torch.randn(shape, generator=generator, device=device).to(contender.dtype)
    target = torch.randint(0, 2, shape, generator=generator, device=device).to(contender.dtype)
    leaves = [logits.requires_grad_()]
    if contender.both_sides:
        leaves.append(target.requires_grad_())

    def forward() -> Tensor:
        return contender.loss(logits, target)

    def total() -> tuple[Tensor, ...]:
        return torch.autograd.grad(forward(), leaves)

    try:
        total()
        result: dict[str, Any] = {
            "forward_ms": seconds(forward, device) * 1e3,
            "total_ms": seconds(total, device) * 1e3,
            "peak_mb": peak_mb(total, device),
        }
        result["graph_ms"] = _graph_ms(total, device) if result["total_ms"] < 5 else None
    except torch.cuda.OutOfMemoryError:
        return {"error": "out of memory"}
    finally:
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
    least = limit_ms(*shape, contender.dtype.itemsize, contender.both_sides, rates)
    result["limit_ms"] = least[1]
    result["limit_fraction"] = least[1] / result["total_ms"]
    return result


def peak_mb(call: Callable[[], object], device: str) -> float | None:
    """Memory above the inputs at its highest, on CUDA; benchmarks/losses_cpu.py has the CPU's."""
    if device != "cuda":
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def _graph_ms(call: Callable[[], object], device: str) -> float | None:
    """The same work replayed from a CUDA graph: what is left when launching costs nothing."""
    if device != "cuda":
        return None
    from triton.testing import do_bench_cudagraph

    try:
        return float(do_bench_cudagraph(call, rep=50, return_mode="median"))
    except RuntimeError:  # work that cannot be captured
        torch.cuda.synchronize()
        return None
