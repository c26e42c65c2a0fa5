"""What full float32 precision costs, PyTorch's default, and how precise it is; tf32 beside it.

Run ``python benchmarks/precision.py`` on a CUDA device; it prints a line for each shape and writes
the record ``benchmarks/records/precision-h200.json``. ``make docs`` makes the tables of
``docs/lab-book.md`` from it. Forward and backward of set cross entropy, with the gradient to the
logits, as one would write it, compiled, and by the kernels.

Legend: B sets, N outputs and as many targets, F Bernoulli features.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import setwise as sw
from setwise import environment
from setwise.bench.contenders import dense
from setwise.bench.losses import graph_ms, peak_mb
from setwise.files import atomic_write_text

RECORD = Path(__file__).parent / "records" / "precision-h200.json"
# Small sets, which multiply by other kernels; few and many features; sets as those of `bench`.
SHAPES = [(1000, 9, 15), (256, 64, 128), (64, 300, 92), (8, 2048, 128), (8, 4096, 16)]
SHAPES += [(8, 4096, 64), (1, 16384, 256), (16, 300, 1203), (4, 1024, 1000), (8, 2048, 768)]
RANDOM, SOFT, CONFIDENT = "random", "random, soft targets", "confident"
DATA = [RANDOM, SOFT, CONFIDENT]
HOW = (
    "Times are medians of steps replayed from a CUDA graph. Errors are against float64: the "
    "largest difference, in units of the largest entry."
)


def draw(kind: str, shape: tuple[int, int, int], device: str) -> tuple[Tensor, Tensor]:
    """Logits and target, which is of zeros and ones unless it is soft.

    Confident outputs are those of a trained network, wrong in one feature.
    """
    generator = torch.Generator(device).manual_seed(0)
    target = torch.rand(shape, generator=generator, device=device)
    logits = torch.randn(shape, generator=generator, device=device)
    if kind == SOFT:
        return 2 * logits, target
    target = target.round()
    if kind == RANDOM:
        return 2 * logits, target
    logits += 10 * (2 * target - 1)
    logits[..., 0] *= -1
    return logits, target


def records(
    shapes: list[tuple[int, int, int]], device: str, commit: str | None
) -> Iterator[dict[str, Any]]:
    """The record so far, after each shape."""
    header = environment.describe(torch.device(device), commit)
    header |= {"date": datetime.now(UTC).date().isoformat(), "how": HOW}
    header |= {"data": DATA}
    rows: list[dict[str, Any]] = []
    for shape in shapes:
        rows.append({"shape": shape, "ran": measure(shape, device)})
        yield {"header": header, "rows": rows}


def measure(shape: tuple[int, int, int], device: str) -> dict[str, Any]:
    """At each setting, time, memory and errors of each contender."""
    torch._dynamo.reset()  # or shapes would fill up the cache of what was compiled
    exact = {kind: step(dense, *doubled(draw(kind, shape, device))) for kind in DATA}
    ours = partial(sw.set_cross_entropy, impl="triton", skip_negligible=False)
    contenders: dict[str, Callable[..., Tensor]] = {
        "dense": dense,
        "compiled": torch.compile(dense, dynamic=False),
        "setwise": ours,
    }
    ran: dict[str, Any] = {}
    before = torch.get_float32_matmul_precision()
    for setting, names in (("highest", [*contenders]), ("medium", ["compiled", "setwise"])):
        torch.set_float32_matmul_precision(setting)
        ran[setting] = {name: compare(contenders[name], exact, shape, device) for name in names}
    torch.set_float32_matmul_precision(before)
    return ran


def compare(
    loss: Callable[..., Tensor],
    exact: dict[str, tuple[Tensor, Tensor]],
    shape: tuple[int, int, int],
    device: str,
) -> dict[str, Any]:
    """Of one contender: errors for all data, and time for those that differ in it."""
    errors = {}
    for kind, right in exact.items():
        got = step(loss, *draw(kind, shape, device))
        errors[kind] = dict(zip(("loss", "gradient"), map(error, got, right), strict=True))
    calls = {kind: partial(step, loss, *draw(kind, shape, device)) for kind in (RANDOM, SOFT)}
    return {
        "ms": {kind: graph_ms(call, device) for kind, call in calls.items()},
        "peak_mb": peak_mb(calls[RANDOM], device),
        "errors": errors,
    }


def doubled(tensors: tuple[Tensor, Tensor]) -> list[Tensor]:
    return [t.double() for t in tensors]


def step(loss: Callable[..., Tensor], logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The loss, and its gradient to the logits."""
    leaf = logits.detach().requires_grad_()
    value = loss(leaf, target)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


def error(got: Tensor, right: Tensor) -> float:
    return ((got.double() - right).abs().max() / right.abs().max()).item()


def main() -> None:
    """Measure, and write the record so far after each shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RECORD)
    parser.add_argument("--commit", help="recorded in the header; default: asked of git")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("expected a CUDA device, found none: the Triton engine is what is measured")
    for record in records(SHAPES, "cuda", options.commit):
        print(record["rows"][-1], flush=True)
        atomic_write_text(options.output, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
