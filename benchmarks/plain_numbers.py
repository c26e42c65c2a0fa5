"""Sums over matchings and transport on a CPU: plain numbers beside logarithms.

Run ``python benchmarks/plain_numbers.py``; it prints a line for each measurement and writes the
record ``benchmarks/records/plain-numbers-cpu.json``, of which ``make docs`` makes a table of
``docs/lab-book.md``. Outputs are random, or nearly what they should be; solvers get the same
scores, in float32, and nothing else is measured.

Legend: B sets of M targets and N outputs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import setwise as sw
from setwise import environment
from setwise.files import atomic_write_text
from setwise.kernels import bethe, host_bethe, host_permanent, host_sinkhorn, permanent, sinkhorn

Row = dict[str, Any]
Solver = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]

RECORD = Path(__file__).parent / "records" / "plain-numbers-cpu.json"
SHAPES = [(1000, 9, 9), (64, 10, 20), (16, 100, 100), (64, 20, 100), (16, 300, 300)]
MOST_TARGETS = 10  # of the exact sum
# A class and a place, as of a detector; places span 2.
FEATURES = sw.Features(sw.Categorical(10), sw.Gaussian(2, scale=0.1))
EXCLUSIVITY, TEMPERATURE = 0.5, 1.0
CALLS, ENOUGH_SECONDS = 20, 2.0
HOW = "Milliseconds of a call: the median of some, of which the two take turns."


def _shared(scores: Tensor) -> Tensor:
    return scores.new_full(scores.shape[:1], EXCLUSIVITY)


def _masses(valid: Tensor) -> Tensor:
    return valid.float() / valid.shape[1]


# Plain numbers, logarithms: of scores [B, M, N], and masks [B, M] and [B, N] of all elements.
SOLVERS: dict[str, tuple[Solver, Solver]] = {
    "exact": (
        lambda s, r, c: host_permanent.log_permanent_on_host(s, r, c, True),
        lambda s, r, c: permanent.log_permanent(s, r, c, True),
    ),
    "Bethe": (
        lambda s, r, c: host_bethe.bethe_on_host(s, torch.zeros_like(s[:, 0]), None, r, c),
        lambda s, r, c: bethe.bethe(s, torch.zeros_like(s[:, 0]), None, r, c),
    ),
    "exclusivity": (
        lambda s, r, c: host_bethe.bethe_on_host(s, torch.zeros_like(s[:, 0]), _shared(s), r, c),
        lambda s, r, c: bethe.bethe(s, torch.zeros_like(s[:, 0]), _shared(s), r, c),
    ),
    "transport": (
        lambda s, r, c: host_sinkhorn.transport_on_host(-s, _masses(r), _masses(c), TEMPERATURE),
        lambda s, r, c: sinkhorn.transport_by_logarithms(
            -s, _masses(r), _masses(c), TEMPERATURE, None
        ),
    ),
}


def scores_of(B: int, M: int, N: int, confident: bool) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    x = FEATURES.random_targets((B, M), generator)
    z = torch.randn(B, N, FEATURES.width, generator=generator)
    if confident:
        z *= 0.1
        z[:, :M, :10] += 12 * x[..., :10] - 4
        z[:, :M, 10:] += x[..., 10:]
    pairs = [FEATURES.cost(z[:, j : j + 1].expand(-1, M, -1), x) for j in range(N)]
    return -torch.stack(pairs, dim=2)


def measurements() -> Iterator[Row]:
    for B, M, N in SHAPES:
        for confident in (False, True):
            scores = scores_of(B, M, N, confident)
            given = scores, torch.ones(B, M).bool(), torch.ones(B, N).bool()
            for name, solvers in SOLVERS.items():
                if name == "exact" and M > MOST_TARGETS:
                    continue
                yield {"solver": name, "shape": [B, M, N], "confident": confident} | beside(
                    solvers, given
                )


def beside(solvers: tuple[Solver, Solver], given: tuple[Tensor, Tensor, Tensor]) -> Row:
    """Times of both, and by which part of it a value of float32 differs where both have settled."""
    seconds: tuple[list[float], list[float]] = ([], [])
    found = [solve(*given) for solve in solvers]
    ours, theirs = (results[0] for results in found)
    # What says whether a set has settled are booleans; an exact sum always has.
    said = [t for results in found for t in results if t.dtype == torch.bool]
    settled = torch.stack([torch.ones_like(ours).bool(), *said]).all(0)
    for _ in range(CALLS):
        for solve, times in zip(solvers, seconds, strict=True):
            began = time.perf_counter()
            solve(*given)
            times.append(time.perf_counter() - began)
        if sum(map(sum, seconds)) > ENOUGH_SECONDS:
            break
    plain_ms, logarithms_ms = (1e3 * statistics.median(times) for times in seconds)
    apart = ((ours - theirs).abs() / (1 + theirs.abs()))[settled]
    return {
        "settled": settled.double().mean().item(),
        "plain_ms": plain_ms,
        "logarithms_ms": logarithms_ms,
        "apart": apart.max().item() if len(apart) else None,
        "calls": len(seconds[0]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RECORD)
    parser.add_argument("--commit", help="git commit to record; default: that of the working copy")
    options = parser.parse_args()
    header = environment.describe(torch.device("cpu"), options.commit)
    header |= {"date": datetime.now(UTC).date().isoformat(), "method": HOW}
    rows: list[Row] = []
    for row in measurements():
        print(json.dumps(row), flush=True)
        rows.append(row)
    atomic_write_text(options.output, json.dumps({"header": header, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
