"""Set cross entropy on CPU beside a hand-written dense version: time and peak memory, one run.

Run ``python benchmarks/losses_cpu.py``; it prints a table and writes the record
``benchmarks/records/losses-cpu.json``. Each measurement runs in a process of its own, so that the
peak of one cannot hide behind the peak of another. Compare ratios, not seconds: both versions run
alternately on the same machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import statistics
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor

import setwise as sw
from setwise.bench import losses as bench
from setwise.bench.contenders import dense
from setwise.environment import current_commit

RECORD = Path(__file__).parent / "records" / "losses-cpu.json"
# The training shapes of the paper's tasks and of detection, and one set too large for a matrix.
SHAPES = {name: bench.SHAPES[name] for name in ("puzzle", "rules", "blocks", "detr")}
SHAPES |= {"large": (1, 20_000, 64)}


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "dense": dense,
    "setwise": sw.set_cross_entropy,
}


def _data(shape: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator).requires_grad_()
    return logits, torch.randint(0, 2, shape, generator=generator).float()


def _milliseconds(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, x: Tensor) -> float:
    start = time.perf_counter()
    torch.autograd.grad(loss(logits, x), logits)
    return (time.perf_counter() - start) * 1e3


def time_both(shape: tuple[int, int, int], repeats: int) -> dict[str, float]:
    """Median milliseconds forward and backward, the two versions taking turns."""
    logits, x = _data(shape)
    samples: dict[str, list[float]] = {name: [] for name in LOSSES}
    for _ in range(repeats):
        for name, loss in LOSSES.items():
            samples[name].append(_milliseconds(loss, logits, x))
    warm_up = repeats // 4
    return {name: statistics.median(times[warm_up:]) for name, times in samples.items()}


def _peak(name: str, shape: tuple[int, int, int], pipe: Any) -> None:
    """Send the peak resident memory, in MB above the inputs, of one forward and backward."""
    loss = LOSSES[name]
    small, small_x = _data((1, 2048, 64))  # libraries load and threads start here
    torch.autograd.grad(loss(small, small_x), small)
    logits, x = _data(shape)
    process = psutil.Process()
    before, peak, done = process.memory_info().rss, 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, process.memory_info().rss)
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    torch.autograd.grad(loss(logits, x), logits)
    done.set()
    watcher.join()
    pipe.send((peak - before) / 1e6)


def peak_megabytes(name: str, shape: tuple[int, int, int]) -> float:
    """Peak memory above the inputs, measured in a fresh process."""
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_peak, args=(name, shape, sender))
    process.start()
    megabytes: float = receiver.recv()
    process.join()
    return megabytes


def main() -> None:
    """Measure every shape, print the table, write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RECORD)
    output: Path = parser.parse_args().output
    rows = []
    print(f"{'shape':<10}{'(B, N, F)':<18}{'dense ms':>10}{'setwise ms':>12}{'ratio':>8}  peak MB")
    for name, shape in SHAPES.items():
        times = time_both(shape, repeats=5 if name == "large" else 200)
        peaks = {impl: peak_megabytes(impl, shape) for impl in LOSSES}
        ratio = times["dense"] / times["setwise"]
        print(
            f"{name:<10}{shape!s:<18}{times['dense']:>10.2f}{times['setwise']:>12.2f}{ratio:>8.2f}"
            f"  {peaks['dense']:.0f} / {peaks['setwise']:.0f}"
        )
        rows += [
            {"shape": name, "impl": impl, "total_ms": times[impl], "peak_mb": peaks[impl]}
            for impl in LOSSES
        ]
    output.parent.mkdir(exist_ok=True)
    output.write_text(json.dumps({"header": header(), "rows": rows}, indent=1) + "\n")


def header() -> dict[str, Any]:
    """With what, and when, it was measured."""
    return {
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "setwise": sw.__version__,
        "commit": current_commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "shapes": SHAPES,
    }


if __name__ == "__main__":
    main()
