"""The losses beside their peers, from records of ``setwise bench losses``: time and memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from setwise.report.page.charts import bars, curves
from setwise.report.page.frame import Section
from setwise.report.page.html import EMPTY, Html, element, joined
from setwise.report.page.pieces import command, gallery, paragraph, subheading, table
from setwise.report.page.provenance import provenance, source_of

Row = dict[str, Any]

COMMANDS = {"losses-cpu.json": "python benchmarks/losses_cpu.py"}
BENCH = "setwise bench losses --output benchmarks/records/{name}"
SWEEP = "sweep"
CONTENDERS = (
    "dense is the formula in plain PyTorch, compiled the same under torch.compile, and "
    "cut-cross-entropy a fused loss of others for one set at a time. Names that begin with "
    "setwise are ours: tf32 takes inputs of float32, bf16 of bfloat16, and both means that "
    "outputs and targets need gradients. A graph is a recorded CUDA graph, which costs the host "
    "nothing."
)


def benchmarks_section(folder: Path) -> Section:
    """Every record of the losses in a folder, or how to have one."""
    parts = [paragraph("Set cross entropy, forward and backward, beside other ways to compute it.")]
    found = sorted(folder.glob("losses-*.json"), key=lambda path: (path.name in COMMANDS, path))
    if found:
        parts += [element("p", CONTENDERS, class_="note"), *map(_record, found)]
    else:
        made = command(BENCH.format(name="losses-mine.json"))
        parts += [paragraph("No benchmark is recorded yet."), made]
    return Section("kernels", "How fast the losses are", joined(parts), short="Kernels")


def _record(path: Path) -> Html:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        header, rows = record["header"], record["rows"]
        shapes = [row for row in rows if not row["shape"].startswith(SWEEP)]
        sweep = [row for row in rows if row["shape"].startswith(SWEEP) and "error" not in row]
        device = header.get("device") or f"{header['machine']}, {header['threads']} threads"
        parts = [subheading(device)]
        parts += [gallery([*_ratios(shapes), *_growth(sweep)])]
        parts += [_times(f"Time of a step and peak memory on {device}", header, shapes)]
        made = COMMANDS.get(path.name, BENCH.format(name=path.name))
        source = source_of(header, header, f"{len(rows)} measurements")
        parts.append(provenance([made], [source]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a record of the losses: {error!r}") from error
    return joined(parts)


def _ratios(rows: Sequence[Row]) -> list[Html]:
    """How many times as fast as the best known peer we are, for each shape."""
    impls = dict.fromkeys(row["impl"] for row in rows)
    ours = next(filter(_ours, impls), "")
    peer = "compiled" if "compiled" in impls else "dense"
    drawn = []
    for what, how in (("total_ms", ""), ("graph_ms", ", in CUDA graphs")):
        times = {(r["shape"], r["impl"]): float(r[what]) for r in rows if r.get(what)}
        ratios = {
            shape: times[shape, peer] / times[shape, ours]
            for shape in dict.fromkeys(row["shape"] for row in rows)
            if (shape, peer) in times and (shape, ours) in times
        }
        if ratios:
            title = f"How many times as fast as {peer}{how}"
            drawn.append(bars(title, ratios, f"time of {peer} / time of {ours}", mark=1.0))
    return drawn


def _growth(rows: Sequence[Row]) -> list[Html]:
    """Time and memory over the number of elements of one set."""
    drawn = []
    for what, unit, title in (
        ("total_ms", "ms", "Time over the size of one set"),
        ("peak_mb", "MB", "Memory over the size of one set"),
    ):
        lines = {
            impl: [(row["N"], row[what]) for row in rows if row["impl"] == impl]
            # Ours first: they have the colours that ours have elsewhere.
            for impl in sorted(
                {row["impl"] for row in rows}, key=lambda name: (not _ours(name), name)
            )
        }
        if lines:
            label = f"outputs and targets, {rows[0]['F']} features"
            drawn.append(curves(title, lines, label, unit, log=True, decimals=0))
    return drawn


def _ours(impl: str) -> bool:
    return impl.startswith("setwise")


def _times(caption: str, header: Row, rows: Sequence[Row]) -> Html:
    impls = list(dict.fromkeys(row["impl"] for row in rows))
    found = {(row["shape"], row["impl"]): row for row in rows}
    lines = []
    for shape in dict.fromkeys(row["shape"] for row in rows):
        first = next(row for row in rows if row["shape"] == shape)
        size = header.get("shapes", {}).get(shape) or [first[name] for name in "BNF"]
        name = joined([shape, element("span", " x ".join(f"{n:,}" for n in size), class_="quiet")])
        lines.append(
            [
                element("div", name, class_="cell"),
                *(_time(found.get((shape, impl))) for impl in impls),
            ]
        )
    return table(
        f"{caption}; shapes are sets x elements x features", ["", *impls], lines, cards=True
    )


def _time(row: Row | None) -> Html:
    if row is None:
        return EMPTY
    if "error" in row:
        return element("span", row["error"], class_="quiet")
    graph = row.get("graph_ms")
    lines = [element("strong", _with_unit(row["total_ms"], "ms", "s"))]
    if graph:
        said = f"graph {_with_unit(graph, 'ms', 's')}"
        lines.append(element("span", said, class_="spread"))
    lines.append(element("span", _with_unit(row["peak_mb"], "MB", "GB"), class_="spread"))
    return element("div", *lines, class_="cell")


def _with_unit(value: float, unit: str, thousand: str) -> str:
    """Three digits, the unit being the larger one from a thousand on.

    >>> _with_unit(0.0091, "ms", "s"), _with_unit(17180.0, "MB", "GB")
    ('0.0091 ms', '17.2 GB')
    """
    return f"{value / 1000:.3g} {thousand}" if value >= 999.5 else f"{value:.3g} {unit}"
