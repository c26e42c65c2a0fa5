"""Likelihoods and transport on a GPU, forward and backward, beside set cross entropy and peers.

Run ``python benchmarks/likelihood.py`` on a CUDA device; it prints a line for each measurement and
writes the record ``benchmarks/records/likelihood-h200.json``. ``make docs`` makes the tables of
``docs/lab-book.md`` from it. Peers are measured where they are installed: geomloss (tensorized) and
flash-sinkhorn, on points, as they know no other cost; and Bethe's messages as PyTorch code,
compiled.

Legend: B sets, N outputs and as many targets, F features.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

import setwise as sw
from setwise import environment
from setwise.bench.cells import FAMILIES, SHAPES, Cell
from setwise.bench.losses import graph_ms
from setwise.files import atomic_write_text
from setwise.kernels import bethe
from setwise.kernels.fixed_point import ROUNDS_BETWEEN_LOOKS
from setwise.kernels.sinkhorn import Masses

Row = dict[str, Any]

RECORD = Path(__file__).parent / "records" / "likelihood-h200.json"
EXACT, BETHE, SH = "likelihood, exact", "likelihood, Bethe", "SH"
# What is compared with SH, by the shape of the sets.
COMPARED = {"puzzle": (EXACT, BETHE), "detr": (BETHE,)}
# A host that others share is now fast, now slow: those that are compared take turns. Of a longer
# step few calls tell enough.
TURNS, CALLS = 12, 20
LONG_MS, LONG_CALLS = 20.0, 5
MESSAGES = 21  # rounds of them
OURS, ALONE, WITH_LOOKS = "setwise", "compiled", "compiled, with looks and beliefs"
PRECISION = "medium"  # products of float32 may be formed in tf32, by all that are compared
TEMPERATURES = (1.0, 10.0)
# The module of each, and its options. By default geomloss halves the temperature until it is there,
# and stops, whether or not its potentials have settled; in small steps they nearly have.
PEERS: dict[str, tuple[str, dict[str, Any]]] = {
    "geomloss": ("geomloss", {"backend": "tensorized"}),
    "geomloss, scaling 0.99": ("geomloss", {"backend": "tensorized", "scaling": 0.99}),
    "flash_sinkhorn": ("flash_sinkhorn", {"half_cost": True}),
}
SETTLED = 2000  # rounds in float64, against which the values of transport are held
HOW = (
    "Milliseconds of a step, with a wait for the device: the median of many, and the least. Errors "
    "are against float64: the largest difference, in units of the largest entry; apart is the "
    "largest difference of a probability from that of compiled PyTorch, both in float32."
)


def timed(steps: Mapping[str, Callable[[], object]]) -> dict[str, dict[str, float]]:
    """The median and the least time of each step, in milliseconds."""
    times: dict[str, list[float]] = {}
    for name, step in steps.items():
        for _ in range(4):  # some compile, and launches are recorded
            step()
        times[name] = [time_of(step) for _ in range(LONG_CALLS)]
    short = {name: steps[name] for name in steps if min(times[name]) < LONG_MS}
    for _ in range(TURNS):
        for name, step in short.items():
            times[name] += [time_of(step) for _ in range(CALLS)]
    return {
        name: {"median_ms": statistics.median(found), "min_ms": min(found)}
        for name, found in times.items()
    }


def time_of(step: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start)


def step_of(loss: Callable[..., Tensor], *sets: Tensor) -> Callable[[], tuple[Tensor, Tensor]]:
    """Forward and backward, to the first of the sets."""

    def step() -> tuple[Tensor, Tensor]:
        value = loss(*sets).mean()
        return value.detach(), torch.autograd.grad(value, sets[0])[0]

    return step


def losses(device: str) -> Iterator[Row]:
    """Likelihoods beside set cross entropy, for every family of elements."""
    for shape, compared in COMPARED.items():
        for family in FAMILIES:
            cells = {loss: Cell(loss, family, shape, SHAPES[shape]) for loss in (SH, *compared)}
            steps = {
                loss: step_of(cell.ours(), *cell.leaves(device)) for loss, cell in cells.items()
            }
            found = timed(steps)
            for loss, step in steps.items():
                row: Row = {"part": "losses", "loss": loss, "family": family, "shape": shape}
                row |= {**found[loss], "graph_ms": graph_ms(step, device)}
                yield row | (errors(cells[loss], step, device) if loss == EXACT else {})


def errors(cell: Cell, step: Callable[[], tuple[Tensor, Tensor]], device: str) -> Row:
    """Of value and gradient."""
    logits, target = cell.leaves(device)
    doubles = logits.detach().double().requires_grad_(), target.double()
    right = step_of(cell.ours(), *doubles)()
    found = [
        ((got.double() - exact).abs().max() / exact.abs().max()).item()
        for got, exact in zip(step(), right, strict=True)
    ]
    return dict(zip(("value_error", "gradient_error"), found, strict=True))


def points(device: str) -> Iterator[Row]:
    """Transport of points, beside libraries for it."""
    generator = torch.Generator(device).manual_seed(0)
    y, x = (torch.randn(SHAPES["detr"], generator=generator, device=device) for _ in range(2))
    y.requires_grad_()
    features = sw.Features(sw.Gaussian(x.shape[-1]))
    for t in TEMPERATURES:

        def ours(y: Tensor, x: Tensor, t: float = t) -> Tensor:
            return sw.transport_cross_entropy(y, x, features, temperature=t) / x.shape[1]

        row: Row = {"part": "transport", "temperature": t}
        right, steps = settled_value(x, y, t), {OURS: step_of(ours, y, x)}
        of_peers = {name: one for name, one in PEERS.items() if find_spec(one[0]) is not None}
        told: dict[str, Row] = {OURS: {}}
        told |= {name: {"version": version(peer)} for name, (peer, _) in of_peers.items()}
        for name, (peer, options) in of_peers.items():
            try:
                loss = import_module(peer).SamplesLoss(blur=t**0.5, debias=False, **options)
                steps[name] = step_of(loss, y, x)
                steps[name]()
            except Exception as error:  # what it raised is recorded, and is not the end of the run
                steps.pop(name, None)
                said = " ".join(str(error).split())[:120]
                told[name]["error"] = f"{type(error).__name__}: {said}"
        for name, times in timed(steps).items():
            off = abs(steps[name]()[0].item() / right - 1)
            told[name] |= {**times, "value_error": off}
        for name, found in told.items():
            yield row | {"impl": name} | found


def settled_value(x: Tensor, y: Tensor, t: float) -> float:
    """The mean over the sets of the value of transport, for masses that sum to 1."""
    with torch.no_grad():
        costs = torch.cdist(x.double(), y.double()).square() / 2
        equal = costs.new_full(costs.shape[:2], 1 / costs.shape[1])
        masses, g = Masses(equal, equal, t, None), torch.zeros_like(equal)
        for _ in range(SETTLED):
            g = masses.round(costs, g)
        return masses.value(costs, g).mean().item()


def messages(device: str) -> Iterator[Row]:
    """The same number of rounds for all sets: our launch, and rounds of compiled PyTorch.

    These alone, and with all that the launch gives besides: the value and by how much messages are
    apart at each look, and the probabilities of pairs in the end. The messages of PyTorch are
    logarithms and have masks, and what they are prepared from is not timed; ours are plain numbers,
    have none, and are prepared in the launch. What a loss adds for sets that have not settled, a
    second launch that returns at once, is not in it.
    """
    from setwise.kernels.triton import plain_bethe as fused  # not every machine has Triton

    logits, target = Cell(BETHE, "Bernoulli", "detr", SHAPES["detr"]).leaves(device)
    scores = -FAMILIES["Bernoulli"].cost(logits.detach(), target)
    B, _, N = scores.shape
    every = torch.ones(B, N, dtype=torch.bool, device=device)
    graph = bethe.graph(scores, torch.zeros(B, N, device=device), None, every, every)
    plain = torch.compile(lambda answers: bethe._answer(graph, bethe._ask(graph, answers)))

    @torch.compile
    def looking(answers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        asked = bethe._ask(graph, answers)
        answered = bethe._answer(graph, asked)
        apart = (asked + answers).sigmoid() - (asked + answered).sigmoid()
        return answered, bethe._value(graph, answers, asked), apart.abs().amax((1, 2))

    beliefs = torch.compile(lambda answers: bethe._beliefs(graph, answers)[0])

    def rounds() -> None:
        answers = torch.zeros_like(scores)
        for _ in range(MESSAGES):
            answers = plain(answers)

    def with_looks() -> Tensor:
        answers = torch.zeros_like(scores)
        for n in range(MESSAGES):
            if n % ROUNDS_BETWEEN_LOOKS == 0:
                answers, _, _ = looking(answers)
            else:
                answers = plain(answers)
        return beliefs(answers)

    never = patch.object(fused, "tolerance", lambda dtype: -1.0)
    with patch.object(fused, "MOST_ROUNDS", MESSAGES), never:
        steps = {
            OURS: lambda: fused.plain_bethe(scores, None, None),
            ALONE: rounds,
            WITH_LOOKS: with_looks,
        }
        found = timed(steps)
        off = (fused.plain_bethe(scores, None, None)[1] - with_looks()).abs().max().item()
    for impl, times in found.items():
        row: Row = {"part": "messages", "rounds": MESSAGES, "impl": impl, **times}
        yield row | ({"apart": off} if impl == OURS else {})


def records(device: str, commit: str | None) -> Iterator[dict[str, Any]]:
    """The record so far after each row, and the whole: a run that is cut short is not lost."""
    header = environment.describe(torch.device(device), commit)
    header |= {"date": datetime.now(UTC).date().isoformat(), "how": HOW, "precision": PRECISION}
    rows: list[Row] = []
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(PRECISION)
    try:
        for part in (losses, messages, points):
            for row in part(device):
                rows.append(row)
                yield {"header": header, "rows": rows, "whole": False}
        yield {"header": header, "rows": rows, "whole": True}
    finally:
        torch.set_float32_matmul_precision(before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RECORD)
    parser.add_argument("--commit", help="recorded in the header; default: asked of git")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("expected a CUDA device, found none: the Triton engine is what is measured")
    for record in records("cuda", options.commit):
        if not record["whole"]:
            print(record["rows"][-1], flush=True)
        atomic_write_text(options.output, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
