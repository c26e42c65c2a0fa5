"""Matchings and large clouds of points beside libraries for them, on a GPU or a CPU.

Run ``python benchmarks/solvers.py``; it prints a line for each measurement and writes the record
``benchmarks/records/solvers-h200.json``, or ``solvers-cpu.json`` where there is no CUDA device.
``make docs`` makes the tables of ``docs/kernels.md`` from both. `sw.assign` stands beside SciPy
and, where they are installed, torch-linear-assignment on a GPU and lapx on a CPU. Losses of points
are measured forward and backward; on a CPU beside one k-d tree of SciPy, which is built of the
outputs and asked for the nearest one of each target.

Legend: B problems of M rows and N columns; N points in each of two clouds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]
from scipy.spatial import cKDTree  # type: ignore[import-untyped]
from torch import Tensor

import setwise as sw
from setwise import environment
from setwise.files import atomic_write_text

Row = dict[str, Any]
Solver = Callable[[Tensor], Tensor]

RECORDS = {
    device: Path(__file__).parent / "records" / f"solvers-{name}.json"
    for device, name in (("cuda", "h200"), ("cpu", "cpu"))
}
OURS, SCIPY, TREE = "setwise", "SciPy", "cKDTree"
PACKAGES = ("scipy", "torch-linear-assignment", "lapx")
PROBLEMS = [(1000, 9, 9), (64, 100, 300), (64, 300, 300), (8, 1000, 1000), (1, 4096, 4096)]
# The sizes of clouds, each with the scales of the Gaussians that SH is measured at.
CLOUDS: dict[str, dict[int, tuple[float, ...]]] = {
    "cuda": {1_000_000: (0.01,), 10_000_000: (0.003,)},
    "cpu": {50_000: (0.005, 0.01, 0.02)},
}
NOISE = 1e-3  # of outputs that have nearly learned a surface
# Those that are compared take turns, as a host that others share is now fast, now slow. Each has so
# many turns, but no more once they have taken so many milliseconds: of long calls, one may do.
TURNS = 100
ENOUGH_MS = {"cuda": 1_000.0, "cpu": 5_000.0}
HOW = (
    "Milliseconds of a call, with a wait for the device: the median of some, and the least. Costs "
    "and points are where the call of ours wants them; what others need elsewhere is copied."
)


def timed(
    steps: Mapping[str, Callable[[], Any]], device: str
) -> tuple[dict[str, Row], dict[str, Any]]:
    """Median and least time of each step, with the number of calls; and what each returned."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    found = {}
    for _ in range(TURNS):
        for name, step in steps.items():
            if sum(times[name]) < ENOUGH_MS[device]:
                wait_for(device)
                start = time.perf_counter()
                found[name] = step()
                wait_for(device)
                times[name].append(1e3 * (time.perf_counter() - start))
    rows = {
        name: {"median_ms": statistics.median(each), "min_ms": min(each), "calls": len(each)}
        for name, each in times.items()
    }
    return rows, found


def wait_for(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def matchings(device: str) -> Iterator[Row]:
    """The times of each solver, and by which part its total cost is off from SciPy's."""
    generator = torch.Generator(device).manual_seed(0)
    for sizes in PROBLEMS:
        costs = torch.rand(sizes, generator=generator, device=device)
        steps = {name: _call(solve, costs) for name, solve in solvers(device).items()}
        for step in steps.values():
            step()  # compiled for these sizes
        times, columns = timed(steps, device)
        least = total(costs, columns[SCIPY])
        for name, row in times.items():
            error = total(costs, columns[name]) / least - 1
            problem = {"part": "matchings", "sizes": sizes, "impl": name}
            yield problem | row | {"cost_error": error}


def _call(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: function(*arguments)


def solvers(device: str) -> dict[str, Solver]:
    """From costs [B, M, N], with no more rows than columns, to the column of each row."""
    found: dict[str, Solver] = {OURS: sw.assign, SCIPY: on_host(by_scipy)}
    if device == "cuda" and find_spec("torch_linear_assignment"):
        name = "torch-linear-assignment"
        found[name] = import_module("torch_linear_assignment").batch_linear_assignment
    if device == "cpu" and find_spec("lap"):
        found |= {"lapx": on_host(by_lapx), "lapx, its batches": on_host(by_batches_of_lapx)}
    return found


def on_host(solve: Callable[[Any], list[Any]]) -> Solver:
    """A solver of arrays, for tensors anywhere."""

    def solver(costs: Tensor) -> Tensor:
        return torch.from_numpy(np.stack(solve(costs.cpu().numpy()))).to(costs.device)

    return solver


def by_scipy(costs: Any) -> list[Any]:
    return [linear_sum_assignment(one)[1] for one in costs]


def by_lapx(costs: Any) -> list[Any]:
    solve, extend = import_module("lap").lapjv, costs.shape[1] != costs.shape[2]
    return [solve(one, extend_cost=extend, return_cost=False)[0] for one in costs]


def by_batches_of_lapx(costs: Any) -> list[Any]:
    """In the type of the costs, and as many threads as PyTorch has."""
    solve, extend = import_module("lap").lapjvr_batch, costs.shape[1] != costs.shape[2]
    options = {"extend_cost": extend, "return_cost": False, "n_threads": torch.get_num_threads()}
    return list(solve(costs, **options)[1])


def total(costs: Tensor, columns: Tensor) -> float:
    """What all matched pairs cost, in float64."""
    return costs.double().gather(-1, columns.long().unsqueeze(-1)).sum().item()


def points(device: str) -> Iterator[Row]:
    """Steps of training on a surface: of SH, and of losses that look for the nearest."""
    for n, scales in CLOUDS[device].items():
        z, x = surface(n, device)
        steps = {
            f"SH, scale {scale:g}": _gradient(sw.set_cross_entropy, z, x, gaussian(scale))
            for scale in scales
        }
        if device == "cuda":
            steps["Chamfer"] = _gradient(sw.chamfer, z, x)
        else:
            steps["A1H"] = _gradient(sw.set_average, z, x, gaussian(1.0))
        for step in steps.values():
            step()  # compiled for these sizes
        if device == "cpu":
            steps[TREE] = _call(nearest, z.detach()[0].numpy(), x[0].numpy())
        for name, row in timed(steps, device)[0].items():
            yield {"part": "points", "points": n, "what": name, **row}


def surface(n: int, device: str) -> tuple[Tensor, Tensor]:
    """Outputs near a sphere, which want a gradient, and as many targets on it."""
    generator = torch.Generator(device).manual_seed(0)
    z, x, noise = torch.randn(3, 1, n, 3, generator=generator, device=device)
    z, x = (p / p.norm(dim=-1, keepdim=True) for p in (z, x))
    return (z + NOISE * noise).requires_grad_(), x


def gaussian(scale: float) -> sw.Features:
    return sw.Features(sw.Gaussian(3, scale=scale))


def _gradient(loss: Callable[..., Tensor], z: Tensor, *others: Any) -> Callable[[], Any]:
    """Forward and backward."""
    return lambda: torch.autograd.grad(loss(z, *others), z)


def nearest(outputs: Any, targets: Any) -> Any:
    return cKDTree(outputs).query(targets, workers=torch.get_num_threads())


def version_of(package: str) -> str | None:
    """None where it is not installed, or lies on the path without saying what it is."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def records(device: str, commit: str | None) -> Iterator[dict[str, Any]]:
    """The record so far after each row, and the whole: a run that is cut short is not lost."""
    header = environment.describe(torch.device(device), commit)
    header |= {"date": datetime.now(UTC).date().isoformat(), "how": HOW}
    header |= {"versions": {package: version_of(package) for package in PACKAGES}}
    rows: list[Row] = []
    for part in (points, matchings):  # the longest matching last
        for row in part(device):
            rows.append(row)
            yield {"header": header, "rows": rows, "whole": False}
    yield {"header": header, "rows": rows, "whole": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    available = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=tuple(RECORDS), default=available)
    parser.add_argument("--output", type=Path, help="default: the record of the device")
    parser.add_argument("--commit", help="recorded in the header; default: asked of git")
    options = parser.parse_args()
    output = options.output or RECORDS[options.device]
    for record in records(options.device, options.commit):
        if not record["whole"]:
            print(record["rows"][-1], flush=True)
        atomic_write_text(output, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
