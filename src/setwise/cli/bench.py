"""``setwise bench``: what this machine makes of the losses, and of the kernels in depth."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from setwise.cli import matrix
from setwise.cli.errors import CommandError
from setwise.cli.options import device_named, require_place
from setwise.files import atomic_write_text


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's."""
    bench = commands.add_parser(
        "bench", help="benchmark the losses", description="Benchmarks the library on this machine."
    )
    subjects = bench.add_subparsers(dest="subject", required=True)
    matrix.register(subjects)
    kernels = subjects.add_parser(
        "kernels",
        help="set cross entropy, compared with fused peers and the limits of the device",
        description="Measures time and memory of set cross entropy, forward and backward, in more "
        "shapes and types, beside its peers and the limits of the device. All shapes take minutes.",
    )
    kernels.add_argument(
        "--device",
        choices=["auto", "cpu", "cuda"],
        default="auto",
        help="default: cuda if available",
    )
    kernels.add_argument("--shapes", nargs="*", default=[], help="names of shapes; default: all")
    kernels.add_argument("--output", type=Path, help="write the record, JSON, to this file")
    kernels.add_argument("--plot", type=Path, help="draw the record to this PNG")
    kernels.add_argument("--commit", help="git commit to record; default: that of the working copy")
    kernels.set_defaults(run=_bench_kernels, extra="bench")


def _bench_kernels(options: argparse.Namespace) -> int:
    from setwise.bench import show

    if options.plot:
        import matplotlib  # noqa: F401  found missing now, not after minutes of measuring

    from setwise.bench.losses import SHAPES, SWEEP, measure

    unknown = sorted(set(options.shapes) - set(SHAPES | SWEEP))
    if unknown:
        raise CommandError(
            f"--shapes: unknown {', '.join(unknown)}; known: {', '.join(SHAPES | SWEEP)}"
        )
    for name in ("output", "plot"):
        path = getattr(options, name)
        if path is not None:
            require_place(f"--{name}", path)
    if options.plot and options.plot.suffix.lower() != ".png":
        raise CommandError(f"--plot: expected a name that ends in .png, got {options.plot.name}")
    device = device_named(options.device)
    results: list[dict[str, Any]] = []
    for result in measure(device, options.shapes, options.commit):
        results.append(result)
        _say(result)
        if options.output:
            _write(options.output, results)
    header, *rows = results
    show.print_table(header, rows)
    if options.plot:
        show.draw(header, rows, options.plot)
    return 0


def _say(result: dict[str, Any]) -> None:
    """One line for each measurement: the whole takes minutes."""
    if "impl" in result:
        outcome = result.get("error") or f"{result['total_ms']:.3f} ms"
        print(f"{result['shape']:>12} {result['impl']:<20} {outcome}", file=sys.stderr)


def _write(path: Path, results: list[dict[str, Any]]) -> None:
    """The record so far, in one step: a run that is stopped leaves a whole file behind."""
    header, *rows = results
    atomic_write_text(path, json.dumps({"header": header, "rows": rows}, indent=1) + "\n")
