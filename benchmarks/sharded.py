"""Sets spread over processes: peak memory and processor time of each for a step.

Run ``python benchmarks/sharded.py`` on Linux; it writes ``benchmarks/records/sharded.json``, from
which ``python -m tools.scaling`` writes its part of docs/scaling.md. The processes share a machine
and talk by Gloo, one thread each. What is measured of them is the memory that a step adds at its
peak, and processor time, which depends little on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

import setwise as sw
from setwise.environment import describe
from setwise.files import atomic_write_text

RECORD = Path(__file__).parent / "records" / "sharded.json"
RANKS, SIZES = (1, 2, 4), (64, 128, 256)
SETS, FEATURES = 256, 256


def step(size: int) -> None:
    """Loss and gradient of sets of which this process has ``size`` outputs and targets each."""
    outputs = torch.randn(SETS, size, FEATURES, requires_grad=True)
    targets = torch.rand(SETS, size, FEATURES)
    loss = sw.set_cross_entropy(outputs, targets, group=dist.group.WORLD, impl="chunked")
    loss.backward()


def peak_megabytes() -> float:
    """The most that this process has had in memory since it was last forgotten."""
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x)
    return int(line.split()[1]) / 1e3


def measure(rank: int, ranks: int, sizes: list[int], place: str) -> None:
    """In a process of its own: a step of each size, after a small one that loads what is needed."""
    torch.set_num_threads(1)
    meeting = f"file://{place}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    step(4)
    found = []
    for size in sizes:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak
        before, start = peak_megabytes(), time.process_time()
        step(size // ranks)
        seconds, peak = time.process_time() - start, peak_megabytes() - before
        found.append({"elements": size, "seconds": seconds, "peak_mb": peak})
    (Path(place) / f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def rows_of(ranks: int, sizes: list[int]) -> list[dict[str, Any]]:
    """Of each size, the largest numbers over all processes."""
    with tempfile.TemporaryDirectory() as place:
        spawn(measure, (ranks, sizes, place), nprocs=ranks)
        told = [json.loads(path.read_text()) for path in Path(place).glob("*.json")]
    return [
        {"ranks": ranks} | {name: max(one[name] for one in same) for name in same[0]}
        for same in zip(*told, strict=True)
    ]


def main(arguments: list[str] | None = None) -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=RECORD)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options = parser.parse_args(arguments)
    rows = []
    for ranks in RANKS:
        rows += rows_of(ranks, list(options.sizes))
        print(*rows[-len(options.sizes) :], sep="\n", flush=True)
    header = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **describe(torch.device("cpu"), threads=1),
        "sets": SETS,
        "features": FEATURES,
    }
    atomic_write_text(options.output, json.dumps({"header": header, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
