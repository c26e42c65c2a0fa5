"""What the kernels of a training step are waiting for, told by the counters of the device.

Run ``python benchmarks/counters.py`` on a CUDA device with NVIDIA Nsight Compute (``ncu``) on the
path; it prints a line for each shape and writes ``benchmarks/records/profile-h200.json``. ``make
docs`` makes the table of ``docs/lab-book.md`` from it. One step of set cross entropy, forward and
backward, of each shape; products of float32 may be formed in tf32, and every tile is computed.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import setwise as sw
from setwise import environment
from setwise.bench.losses import SHAPES
from setwise.files import atomic_write_text

RECORD = Path(__file__).parent / "records" / "profile-h200.json"
PROFILED = ("mid", "shapenet", "detr", "puzzle", "rules", "blocks")
HOW = "By Nsight Compute, which runs a kernel several times, at the clock it would have anyway."

# What is told of a kernel, by the name of its counter. Shares are of what the device could do while
# the kernel runs, in percent.
COUNTERS = {
    "us": "gpu__time_duration.sum",
    "registers": "launch__registers_per_thread",
    "warps": "sm__warps_active.avg.per_cycle_active",
    "instructions": "smsp__issue_active.avg.pct_of_peak_sustained_elapsed",
    "exponentials": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed",
    "products": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "memory": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
}
# What a warp waits for before an instruction, in cycles; in the words of Nsight Compute.
STALLS = (
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "gmma",
    "imc_miss",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "misc",
    "no_instruction",
    "not_selected",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
)
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
# In units of a microsecond.
TIME_UNITS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}


def step(shape: tuple[int, int, int]) -> None:
    """A training step in a process that is profiled, after some that are not."""
    torch.set_float32_matmul_precision("medium")
    generator = torch.Generator("cuda").manual_seed(0)
    target = torch.randint(0, 2, shape, generator=generator, device="cuda").float()
    logits = 2 * torch.randn(shape, generator=generator, device="cuda")
    logits.requires_grad_()
    for last in (False, False, True):
        torch.cuda.synchronize()
        if last:
            torch.cuda.profiler.start()
        loss = sw.set_cross_entropy(logits, target, impl="triton", skip_negligible=False)
        torch.autograd.grad(loss, logits)
        torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def profiled(name: str) -> list[dict[str, Any]]:
    """The kernels of a step, in the order they ran in."""
    counters = [*COUNTERS.values(), *map(STALL.format, STALLS)]
    command = ["ncu", "--csv", "--page", "raw", "--clock-control", "none"]
    command += ["--profile-from-start", "off", "--metrics", ",".join(counters)]
    command += [sys.executable, __file__, "--step", name]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(f"ncu: ended with {run.returncode}:\n{run.stdout}\n{run.stderr}")
    return list(kernels(run.stdout))


def kernels(printed: str) -> Iterator[dict[str, Any]]:
    """What ncu printed, a row for each kernel, among lines of its own."""
    lines = [line for line in printed.splitlines() if line.startswith('"')]
    names, units, *rows = csv.reader(lines)
    for row in rows:
        found, unit = dict(zip(names, row, strict=True)), dict(zip(names, units, strict=True))
        told = {what: _number(found[counter]) for what, counter in COUNTERS.items()}
        told["us"] *= TIME_UNITS[unit[COUNTERS["us"]]]
        stalls = {reason: _number(found[STALL.format(reason)]) for reason in STALLS}
        yield {"kernel": found["Kernel Name"], **told, "stalls": stalls}


def _number(printed: str) -> float:
    return float(printed.replace(",", ""))


def records(shapes: tuple[str, ...], commit: str | None) -> Iterator[dict[str, Any]]:
    """The record so far, after each shape."""
    header = environment.describe(torch.device("cuda"), commit)
    header |= {"date": datetime.now(UTC).date().isoformat(), "how": HOW}
    rows: list[dict[str, Any]] = []
    for name in shapes:
        rows += [{"shape": name, "sizes": SHAPES[name], **row} for row in profiled(name)]
        yield {"header": header, "rows": rows}


def main() -> None:
    """Profile, and write the record so far after each shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RECORD)
    parser.add_argument("--commit", help="recorded in the header; default: asked of git")
    parser.add_argument("--step", choices=PROFILED, help="only run a step of that shape")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("expected a CUDA device, found none: its counters are what is read")
    if options.step is not None:
        step(SHAPES[options.step])
        return
    if shutil.which("ncu") is None:
        parser.error("expected ncu on the path, found none: install NVIDIA Nsight Compute")
    for record in records(PROFILED, options.commit):
        print(record["rows"][-1])
        atomic_write_text(options.output, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
