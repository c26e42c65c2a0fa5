"""Set cross entropy beside its peers: time, memory, and distance from what the device allows."""

from __future__ import annotations

import gc
import platform
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import torch

import setwise as sw
from setwise.bench.contenders import Contender, available
from setwise.bench.host import host_us
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
# A GPU may form products in tf32. Some CPUs would form them in bfloat16, where allowed to, and
# compute another loss.
PRECISION = {"cuda": "medium", "cpu": "highest"}
# A CPU would need hours for the largest shapes.
CPU_SCORES = 5e8
# A step of less is timed in so many rounds, and also from a CUDA graph.
SHORT_MS = 5.0
ROUNDS = 7


def measure(device: str, names: list[str], commit: str | None) -> Iterator[dict[str, Any]]:
    """Yield the header, then one row for each shape and contender as it is measured."""
    with products_of(device):
        yield from _measure(device, names, commit)


@contextmanager
def products_of(device: str) -> Iterator[None]:
    """How products of float32 are formed meanwhile, of peers and ours alike: `PRECISION`."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(PRECISION[torch.device(device).type])
    try:
        yield
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
        "host_us": host_us() if device == "cuda" else None,
    }
    contenders = available(device)
    for name, shape in (SHAPES | SWEEP).items():
        B, N, width = shape
        if names and name not in names:
            continue
        if device == "cpu" and B * N * N > CPU_SCORES:
            continue
        torch.compiler.reset()  # nothing compiled for another shape may serve this one
        for contender, result in zip(
            contenders, _measure_shape(contenders, shape, device, rates), strict=True
        ):
            yield {"shape": name, "B": B, "N": N, "F": width, "impl": contender.name} | result


def _measure_shape(
    contenders: list[Contender], shape: tuple[int, int, int], device: str, rates: dict[str, float]
) -> list[dict[str, Any]]:
    """What was measured of each contender, or its error.

    A short step takes as long as the host needs to start it, and a host that others share is now
    fast, now slow. So the contenders take turns, and a median over the rounds is what counts.
    """
    trials = [_Trial(contender, shape, device) for contender in contenders]
    for number in range(ROUNDS):
        for trial in trials:
            if number == 0 or trial.is_short():
                trial.time()
    return [trial.result(rates) for trial in trials]


class _Trial:
    """One contender on one shape."""

    def __init__(self, contender: Contender, shape: tuple[int, int, int], device: str) -> None:
        self.contender, self.shape, self.device = contender, shape, device
        self.error = contender.refuses(*shape)
        self.forward_ms: list[float] = []
        self.total_ms: list[float] = []
        self.peak_mb: float | None = None
        if self.error:
            return
        generator = torch.Generator(device).manual_seed(0)
        logits = torch.randn(shape, generator=generator, device=device).to(contender.dtype)
        target = torch.randint(0, 2, shape, generator=generator, device=device).to(contender.dtype)
        leaves = [logits.requires_grad_()]
        if contender.both_sides:
            leaves.append(target.requires_grad_())
        self.forward = lambda: contender.loss(logits, target)
        self.total = lambda: torch.autograd.grad(self.forward(), leaves)

    def is_short(self) -> bool:
        return bool(self.total_ms) and self.total_ms[0] < SHORT_MS

    def time(self) -> None:
        """Time a round of forward passes, and one of whole steps."""
        if self.error:
            return
        try:
            self.total()
            self.forward_ms.append(seconds(self.forward, self.device) * 1e3)
            self.total_ms.append(seconds(self.total, self.device) * 1e3)
            self.peak_mb = peak_mb(self.total, self.device)
        except torch.cuda.OutOfMemoryError:
            self.error = "out of memory"
        finally:
            if not self.is_short():
                gc.collect()
                if self.device == "cuda":
                    torch.cuda.empty_cache()

    def result(self, rates: dict[str, float]) -> dict[str, Any]:
        if self.error:
            return {"error": self.error}
        one, total = self.contender, statistics.median(self.total_ms)
        least = limit_ms(*self.shape, one.dtype.itemsize, one.both_sides, one.products, rates)
        return {
            "forward_ms": statistics.median(self.forward_ms),
            "total_ms": total,
            "forward_ms_rounds": self.forward_ms,
            "total_ms_rounds": self.total_ms,
            "peak_mb": self.peak_mb,
            "graph_ms": graph_ms(self.total, self.device) if total < SHORT_MS else None,
            "products": one.products,
            "limit_ms": least[1],
            "limit_fraction": least[1] / total,
        }


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


def graph_ms(call: Callable[[], object], device: str) -> float | None:
    """The same work replayed from a CUDA graph: what is left when launching costs nothing."""
    if device != "cuda":
        return None
    from triton.testing import do_bench_cudagraph

    try:
        return float(do_bench_cudagraph(call, rep=50, return_mode="median"))
    except RuntimeError:  # work that cannot be captured
        torch.cuda.synchronize()
        return None
