"""The losses beside their peers, from records of ``setwise bench``: time and memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from setwise.outside import read_json
from setwise.report.page.colours import PALETTE
from setwise.report.page.markup import piece
from setwise.report.page.matrix import matrix_record
from setwise.report.page.pieces import (
    Curve,
    Markup,
    Section,
    bars,
    command,
    curves,
    gallery,
    joined,
    paragraph,
    subheading,
    table,
)
from setwise.report.page.provenance import provenance, source_of
from setwise.report.records import NUMBER, require

Row = dict[str, Any]

COMMANDS = {"losses-cpu.json": "python benchmarks/losses_cpu.py"}
BENCH = "setwise bench kernels --output benchmarks/records/{name}"
SWEEP = "sweep"
# Fields of a time, and what to say of it.
_CLOCKS = {"total_ms": "", "graph_ms": ", in CUDA graphs"}
CONTENDERS = (
    "dense is the formula in plain PyTorch, compiled the same under torch.compile, and "
    "cut-cross-entropy a fused loss of others for one set at a time, in bfloat16 and with "
    "gradients of both sides. Names that begin with "
    "setwise are ours: tf32 takes inputs of float32, bf16 of bfloat16, and both means that "
    "outputs and targets need gradients. A graph is a recorded CUDA graph, which costs the host "
    "nothing."
)


def benchmarks_section(folder: Path) -> Section:
    """Every record of the losses in a folder, or how to have one."""
    parts = [matrix_record(path) for path in sorted(folder.glob("matrix-*.json"))]
    parts.append(
        paragraph("Set cross entropy, forward and backward, beside other ways to compute it.")
    )
    found = sorted(folder.glob("losses-*.json"), key=lambda path: (path.name in COMMANDS, path))
    if found:
        parts += [paragraph(CONTENDERS, kind="note"), *map(_record, found)]
    else:
        made = command(BENCH.format(name="losses-mine.json"))
        parts += [paragraph("No benchmark is recorded yet."), made]
    return Section("kernels", "How fast the losses are", joined(parts), short="Kernels")


def _record(path: Path) -> Markup:
    try:
        record = read_json(path)
        require(record, {"header": dict, "rows": list})
        header, rows = record["header"], record["rows"]
        require(header, {"shapes": dict} if "shapes" in header else {})
        for row in rows:
            required = {"error": str} if "error" in row else {"total_ms": NUMBER}
            require(row, {"shape": str, "impl": str, **required})
        # Ours first: the first of them has the first colour in every drawing.
        impls = sorted(dict.fromkeys(row["impl"] for row in rows), key=lambda impl: not _ours(impl))
        shapes = [row for row in rows if not row["shape"].startswith(SWEEP)]
        sweep = [row for row in rows if row["shape"].startswith(SWEEP) and "error" not in row]
        device = header.get("device") or f"{header['machine']}, {header['threads']} threads"
        parts = [subheading(f"{device}, {path.stem}")]
        parts += [gallery([*_ratios(shapes, impls), *_growth(sweep, impls)])]
        parts += [paragraph(note, kind="note") for note in _left_out(shapes, impls)]
        parts += [
            _times(f"{path.stem}: time of a step and peak memory on {device}", header, shapes)
        ]
        made = COMMANDS.get(path.name, BENCH.format(name=path.name))
        source = source_of(header, header, f"{len(rows)} measurements")
        parts.append(provenance([made], [source], path.stem, level=4))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a record of the losses: {error!r}") from error
    return joined(parts)


def _ratios(rows: Sequence[Row], impls: Sequence[str]) -> list[Markup]:
    """How many times as fast as the fastest peer of each shape ours is."""
    drawn = []
    for what, how in _CLOCKS.items():
        ours, fastest = _compared(rows, impls, what)
        ratios = {shape: times[0] / times[1] for shape, (_, *times) in fastest.items()}
        if ratios:
            title = f"How many times as fast as the fastest peer{how}"
            label = f"its time / that of {ours}"
            peers = {shape: peer for shape, (peer, *_) in fastest.items()}
            colour = _colour(ours, impls)
            drawn.append(bars(title, ratios, label, notes=peers, mark=1.0, colour=colour))
    return drawn


def _left_out(rows: Sequence[Row], impls: Sequence[str]) -> list[str]:
    """Which shapes the drawings of `_ratios` cannot show, and why."""
    notes = []
    for what, how in _CLOCKS.items():
        _, fastest = _compared(rows, impls, what)
        missing = [s for s in dict.fromkeys(row["shape"] for row in rows) if s not in fastest]
        if fastest and missing:
            told = [f"{shape}{_failed(rows, shape)}" for shape in missing]
            notes.append(
                f"Not compared{how}, as ours or every peer has no time: {'; '.join(told)}."
            )
    return notes


def _failed(rows: Sequence[Row], shape: str) -> str:
    """What became of those that have no time at all."""
    found = [f"{r['impl']} {r['error']}" for r in rows if r["shape"] == shape and "error" in r]
    return f" ({', '.join(found)})" if found else ""


def _compared(
    rows: Sequence[Row], impls: Sequence[str], what: str
) -> tuple[str, dict[str, tuple[str, float, float]]]:
    """The first of ours, and for each shape the fastest peer, its time and the time of ours."""
    ours = next(filter(_ours, impls), "")
    times = {(r["shape"], r["impl"]): float(r[what]) for r in rows if r.get(what)}
    found = {}
    for shape in dict.fromkeys(row["shape"] for row in rows):
        peers = [impl for impl in impls if not _ours(impl) and (shape, impl) in times]
        if peers and (shape, ours) in times:
            peer = min(peers, key=lambda impl: times[shape, impl])
            found[shape] = peer, times[shape, peer], times[shape, ours]
    return ours, found


def _growth(rows: Sequence[Row], impls: Sequence[str]) -> list[Markup]:
    """Time and memory over the number of elements of one set."""
    drawn = []
    for what, unit, title in (
        ("total_ms", "ms", "Time over the size of one set"),
        ("peak_mb", "MB", "Memory over the size of one set"),
    ):
        # Those that were not measured too: the colours go by the place among all.
        lines = [
            Curve(
                impl, _colour(impl, impls), [(r["N"], r[what]) for r in rows if r["impl"] == impl]
            )
            for impl in impls
        ]
        if any(y is not None for line in lines for _, y in line.points):
            label = f"outputs and targets, {rows[0]['F']} features"
            drawn.append(curves(title, lines, label, unit, log=True, decimals=0))
    return drawn


def _ours(impl: str) -> bool:
    return impl.startswith("setwise")


def _colour(impl: str, impls: Sequence[str]) -> str:
    """By the place among all, so that each keeps its own in every drawing."""
    return PALETTE[impls.index(impl) % len(PALETTE)]


def _times(caption: str, header: Row, rows: Sequence[Row]) -> Markup:
    impls = list(dict.fromkeys(row["impl"] for row in rows))
    found = {(row["shape"], row["impl"]): row for row in rows}
    lines = []
    for shape in dict.fromkeys(row["shape"] for row in rows):
        first = next(row for row in rows if row["shape"] == shape)
        size = header.get("shapes", {}).get(shape) or [first[name] for name in "BNF"]
        name = piece("named", shape, " x ".join(f"{n:,}" for n in size))
        lines.append([name, *(_time(found.get((shape, impl))) for impl in impls)])
    return table(
        f"{caption}; shapes are sets x elements x features", ["", *impls], lines, cards=True
    )


def _time(row: Row | None) -> Markup:
    if row is None:
        return Markup("")
    if "error" in row:
        return piece("quiet", row["error"])
    lines = []
    if row.get("graph_ms"):
        lines.append(f"graph {_with_unit(row['graph_ms'], 'ms', 's')}")
    if row.get("peak_mb") is not None:  # which is not measured everywhere
        lines.append(_with_unit(row["peak_mb"], "MB", "GB"))
    return piece("measured", _with_unit(row["total_ms"], "ms", "s"), lines)


def _with_unit(value: float, unit: str, thousand: str) -> str:
    """Three digits, the unit being the larger one from a thousand on.

    >>> _with_unit(0.0091, "ms", "s"), _with_unit(17180.0, "MB", "GB")
    ('0.0091 ms', '17.2 GB')
    """
    return f"{value / 1000:.3g} {thousand}" if value >= 999.5 else f"{value:.3g} {unit}"
