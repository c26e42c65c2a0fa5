"""What it gains to leave out tiles that cannot matter, and what it costs where all of them matter.

Run ``python benchmarks/skipping.py`` on a CUDA device; it prints a line for each measurement and
writes the record ``benchmarks/records/skipping-h200.json``. ``make docs`` makes the table of
``docs/lab-book.md`` from it. Forward and backward of set cross entropy at the shape `wide` run with
and without ``skip_negligible``; products of float32 are formed in tf32.

Legend: B sets, N outputs and as many targets, F Bernoulli features.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

import setwise as sw
from setwise import environment
from setwise.bench.limits import seconds
from setwise.bench.losses import SHAPES, peak_mb
from setwise.files import atomic_write_text
from setwise.kernels.triton import engine
from setwise.kernels.triton.skipping import tiles_to_visit
from setwise.kernels.triton.tiles import Tiles, blocks_in

RECORD = Path(__file__).parent / "records" / "skipping-h200.json"
PRECISIONS = {"tf32": torch.float32, "bf16": torch.bfloat16}
SAME, UNMATCHED, SHUFFLED = (
    "confident, same order",
    "confident, 1 of 32 targets unmatched",
    "confident, random order",
)
DATA = ("random", SAME, UNMATCHED, SHUFFLED)
HOW = "Times are medians of repeated steps, by CUDA events, each after the cache was emptied."
# How sure a confident output is of each feature, beside noise of size 1.
CONFIDENCE = 8.0


def draw(
    kind: str, shape: tuple[int, int, int], dtype: torch.dtype, device: str
) -> tuple[Tensor, Tensor]:
    """Logits and target: outputs that know nothing, or those that a network has learned."""
    generator = torch.Generator(device).manual_seed(0)
    target = torch.randint(0, 2, shape, generator=generator, device=device).float()
    logits = torch.randn(shape, generator=generator, device=device)
    meant = target.clone()
    if kind == UNMATCHED:
        meant[:, ::32] = meant[:, 1::32]  # what the next output says as well
    if kind != "random":
        logits += CONFIDENCE * (2 * meant - 1)
    if kind == SHUFFLED:
        logits = logits[:, torch.randperm(shape[1], generator=generator, device=device)]
    return logits.to(dtype), target.to(dtype)


def records(
    shape: tuple[int, int, int], device: str, commit: str | None
) -> Iterator[dict[str, Any]]:
    """The record so far, after each measurement."""
    header = environment.describe(torch.device(device), commit)
    header |= {"date": datetime.now(UTC).date().isoformat(), "shape": shape, "how": HOW}
    rows = []
    for row in measure(shape, device):
        rows.append(row)
        yield {"header": header, "rows": rows}


def measure(shape: tuple[int, int, int], device: str) -> Iterator[dict[str, Any]]:
    """A row for each precision, kind of data and choice of gradients."""
    for precision, dtype in PRECISIONS.items():
        for kind in DATA:
            for gradients in ("logits", "both"):
                logits, target = draw(kind, shape, dtype, device)
                wanted = [logits] if gradients == "logits" else [logits, target]
                row = {"precision": precision, "data": kind, "gradients": gradients}
                yield row | measure_one(logits, target, wanted, device)


def measure_one(
    logits: Tensor, target: Tensor, wanted: list[Tensor], device: str
) -> dict[str, Any]:
    """A training step with and without skipping, and whether gradients have the same bits."""
    for leaf in wanted:
        leaf.requires_grad_()

    def step(skip: bool) -> tuple[Tensor, ...]:
        loss = sw.set_cross_entropy(logits, target, impl="triton", skip_negligible=skip)
        return torch.autograd.grad(loss, wanted)

    return {
        "on_ms": seconds(lambda: step(True), device) * 1e3,
        "off_ms": seconds(lambda: step(False), device) * 1e3,
        "peak_on_mb": peak_mb(lambda: step(True), device),
        "peak_off_mb": peak_mb(lambda: step(False), device),
        "visited": visited(lambda: step(True)),
        "equal": all(torch.equal(a, b) for a, b in zip(step(True), step(False), strict=True)),
    }


def visited(step: Callable[[], object]) -> dict[str, float]:
    """The share of its tiles that a loop visits, by what it gives a gradient to."""
    shares = {}

    def watched(
        kept: Tensor, M: int, N: int, F: int, tiles: Tiles, rows_are_keys: bool, per_split: int
    ) -> tuple[Tensor, Tensor]:
        listed, count = tiles_to_visit(kept, M, N, F, tiles, rows_are_keys, per_split)
        rows, columns = (N, M) if rows_are_keys else (M, N)
        everything = len(kept) * blocks_in(rows, tiles.a) * blocks_in(columns, tiles.c)
        shares["logits" if rows_are_keys else "target"] = count.sum().item() / everything
        return listed, count

    with patch.object(engine, "tiles_to_visit", watched):
        step()
    return shares


def main() -> None:
    """Measure, and write the record so far after each measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RECORD)
    parser.add_argument("--commit", help="recorded in the header; default: asked of git")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("expected a CUDA device, found none: only the Triton engine skips tiles")
    torch.set_float32_matmul_precision("medium")
    for record in records(SHAPES["wide"], "cuda", options.commit):
        print(record["rows"][-1])
        atomic_write_text(options.output, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
