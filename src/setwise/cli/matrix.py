"""``setwise bench losses``: every loss on this machine, beside its rivals."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from setwise.cli.errors import CommandError
from setwise.cli.interrupt import interruptible
from setwise.cli.options import device_named, positive, require_place
from setwise.files import atomic_write_text

# What must not differ between the rows of one record.
SAME = ("commit", "setwise", "torch", "triton", "hardware")


def register(subjects: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subject to those of ``setwise bench``."""
    losses = subjects.add_parser(
        "losses",
        help="every loss, element family and shape, compared with PyTorch and other libraries",
        description="Measures time and memory of every loss for every family of elements, forward "
        "and backward, eager, inside torch.compile and from CUDA graphs, beside the same in plain "
        "PyTorch and whichever libraries are installed. All of it takes many minutes; after "
        "Ctrl-C the same command resumes.",
    )
    losses.add_argument(
        "--device",
        choices=["auto", "cpu", "cuda"],
        default="auto",
        help="default: cuda if available",
    )
    losses.add_argument("--quick", action="store_true", help="tiny sets, for a trial")
    for what in ("losses", "families", "shapes", "modes"):
        losses.add_argument(f"--{what}", nargs="*", default=[], help="some of them; default: all")
    losses.add_argument(
        "--budget", type=positive, metavar="SECONDS", help="start no measurement after this time"
    )
    losses.add_argument(
        "--output", type=Path, help="the record, JSON; what is in it already is not measured again"
    )
    losses.add_argument("--plot", type=Path, help="draw the record as heat maps, to this PNG")
    losses.add_argument("--commit", help="git commit to record; default: that of the working copy")
    losses.set_defaults(run=_run, extra="bench")


def _run(options: argparse.Namespace) -> int:
    from setwise.bench.cells import CPU_SHAPES, FAMILIES, LOSSES, QUICK, SHAPES, cells
    from setwise.bench.matrix import header, key, measure
    from setwise.bench.rivals import MODES
    from setwise.report import heatmap

    if options.plot:
        import matplotlib  # noqa: F401  found missing now, not after minutes of measuring

        if options.plot.suffix.lower() != ".png":
            raise CommandError(
                f"--plot: expected a name that ends in .png, got {options.plot.name}"
            )
    device = device_named(options.device)
    shapes = QUICK if options.quick else CPU_SHAPES if device == "cpu" else SHAPES
    known: dict[str, Iterable[str]] = {
        "losses": LOSSES, "families": FAMILIES, "shapes": shapes, "modes": MODES,
    }  # fmt: skip
    for name, names in known.items():
        unknown = sorted(set(getattr(options, name)) - set(names))
        if unknown:
            raise CommandError(f"--{name}: unknown {', '.join(unknown)}; known: {', '.join(names)}")
    for name in ("output", "plot"):
        path = getattr(options, name)
        if path is not None:
            require_place(f"--{name}", path)
    chosen = {name: shapes[name] for name in options.shapes or shapes}
    head, rows = _begun(options.output, header(device, options.commit))
    asked = list(cells(chosen, options.losses, options.families))
    done = {key(row) for row in rows}
    # Signals are noted, and heard between cells: an exception may be lost in what a compiler calls.
    with interruptible() as interrupt:
        for found in measure(device, asked, options.modes, done, options.budget):
            rows += found
            _say(found)
            if options.output:
                text = json.dumps({"header": head, "rows": rows}, indent=1)
                atomic_write_text(options.output, text + "\n")
            if interrupt():
                raise KeyboardInterrupt
    heatmap.print_table(head, rows)
    if options.plot:
        heatmap.draw(head, rows, options.plot)
    return 0


def _begun(path: Path | None, head: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What a record holds already; it must be of the same code on the same machine."""
    if path is None or not path.exists():
        return head, []
    from setwise.report.matrix import read

    try:
        before, rows = read(path)
    except ValueError as error:
        raise CommandError(f"--output: {error}; name another file") from error
    other = [name for name in SAME if before.get(name) != head[name]]
    if other:
        was, now = before.get(other[0]), head[other[0]]
        raise CommandError(
            f"--output: {path} was measured with {other[0]} {was}, this is {now}; name another file"
        )
    return before, rows


def _say(rows: list[dict[str, Any]]) -> None:
    """One line for each measurement: the whole takes minutes."""
    for row in rows:
        outcome = row.get("error") or f"{row['total_ms']:.3f} ms"
        cell = f"{row['shape']:>10} {row['family']:<11} {row['loss']:<17}"
        print(f"{cell} {row['impl']:<10} {row['mode']:<14} {outcome}", file=sys.stderr, flush=True)
