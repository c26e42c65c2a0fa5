"""A benchmark record as a table in the terminal and as a picture."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]

RED, LIGHT_RED, ORANGE = "crimson", "lightcoral", "tab:orange"
MARKS = {
    "dense": ("0.55", "s"),
    "compiled": ("tab:blue", "D"),
    "cut-cross-entropy": (ORANGE, "^"),
    "setwise": (RED, "o"),
    "setwise-chunked": ("tab:purple", "v"),
    "setwise-tf32": (RED, "o"),
    "setwise-bf16": ("tab:purple", "v"),
    "setwise-bf16-both": ("tab:green", "X"),
}
STYLE: Any = {"font.size": 11, "axes.titlelocation": "left", "axes.titleweight": "bold"}


def print_table(header: Row, rows: list[Row]) -> None:
    """Time, memory, ratio to each peer of the same shape, and share of the limit."""
    table = Table(title=f"set cross entropy on {header['device']}, torch {header['torch']}")
    for column in ("shape (B, N, F)", "impl"):
        table.add_column(column, no_wrap=True)
    for column in (
        "forward ms",
        "total ms",
        "x compiled",
        "graph ms",
        "x compiled",
        "peak MB",
        "of limit",
    ):
        table.add_column(column, justify="right")
    compiled = {row["shape"]: row for row in rows if _is(row, "compiled")}
    previous = None
    for row in rows:
        if previous not in (None, row["shape"]):
            table.add_section()
        previous = row["shape"]
        shape = f"{row['shape']} ({row['B']}, {row['N']}, {row['F']})"
        if "error" in row:
            table.add_row(shape, row["impl"], "", row["error"])
            continue
        peer = compiled.get(row["shape"], {})
        table.add_row(
            shape,
            row["impl"],
            _number(row["forward_ms"]),
            _number(row["total_ms"]),
            _ratio(peer, row, "total_ms"),
            _number(row["graph_ms"]),
            _ratio(peer, row, "graph_ms"),
            _number(row["peak_mb"]),
            f"{row['limit_fraction']:.0%}",
        )
    Console(width=120).print(table)


def draw(header: Row, rows: list[Row], path: Path) -> None:
    """Ratio to the compiled dense loss, memory, time beside the limit, and growth with a set."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.lines import Line2D

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(2, 2, figsize=(12, 11), layout="constrained")
        figure.suptitle(
            f"Set cross entropy, forward and backward, {header['device']}, torch {header['torch']}"
        )
        shapes = [row for row in rows if not row["shape"].startswith("sweep")]
        sweep = [row for row in rows if row["shape"].startswith("sweep") and "error" not in row]
        _draw_ratios(axes[0, 0], shapes)
        _draw_memory(axes[0, 1], shapes)
        _draw_times(axes[1, 0], shapes)
        _draw_growth(axes[1, 1], sweep)
        handles = [Line2D([], [], label=impl, **_mark(impl)) for impl in _impls(rows)]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(
            path,
            dpi=100,
            metadata={"Software": None, "Source": source(rows)},
            pil_kwargs={"optimize": True},
        )
        plt.close(figure)


def source(rows: list[Row]) -> str:
    """What a picture says of the rows it was drawn from."""
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def _draw_ratios(axes: Any, rows: list[Row]) -> None:
    """Bars to the right of 1 where we are faster, to the left where the peer is."""
    ours = next((row["impl"] for row in rows if row["impl"].startswith("setwise")), "")
    pairs = [
        ("compiled", ours, "total_ms", f"{ours} against compiled, eager", RED),
        ("compiled", ours, "graph_ms", f"{ours} against compiled, CUDA graphs", LIGHT_RED),
        (
            "cut-cross-entropy",
            "setwise-bf16-both",
            "total_ms",
            "setwise-bf16-both against cut-cross-entropy, eager",
            ORANGE,
        ),
    ]
    cells = {(row["shape"], row["impl"]): row for row in rows}
    names = _name_shapes(axes, rows)
    used, drawn = set(), []
    for at, shape in enumerate(names):
        bars = []
        for peer, impl, what, label, colour in pairs:
            left, right = cells.get((shape, peer), {}), cells.get((shape, impl), {})
            if left.get(what) and right.get(what):
                bars.append((left[what] / right[what], label, colour))
        for slot, (ratio, label, colour) in enumerate(bars):
            y = at + 0.26 * (slot - (len(bars) - 1) / 2)
            known = label in used
            used.add(label)
            drawn.append(ratio)
            axes.barh(
                y, ratio - 1, 0.24, left=1, color=colour, label=None if known else label, zorder=2
            )
            # On the right of a bar; of one that points to the left, on the free side of the line.
            axes.annotate(
                f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2f}",
                (max(ratio, 1.0), y),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=9.5,
            )
        if _is_full(cells.get((shape, "compiled"), {})):
            _remark(axes, at - 0.32, "out of memory: compiled")
    axes.axvline(1, color="black", linewidth=1.2, zorder=3)
    axes.set_xscale("log")
    low, high = min([0.5, *drawn]), 1.6 * max([2.0, *drawn])
    ticks = [2.0**k for k in range(-20, 21) if low <= 2.0**k <= high]
    axes.set_xlim(low, high)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.xaxis.minorticks_off()
    axes.set_xlabel("time of the peer / our time")
    axes.set_title("How many times faster (left of 1: slower)")
    if used:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False, fontsize=10)


def _draw_memory(axes: Any, rows: list[Row]) -> None:
    """A dot for each contender; what ran out of memory is named at the end of its row."""
    names = _name_shapes(axes, rows)
    measured = [row for row in rows if row.get("peak_mb")]
    impls = _impls(measured)
    for row in measured:
        axes.plot(row["peak_mb"], _height(names, impls, row), **_mark(row["impl"]))
    for shape in names:
        failed = [row["impl"] for row in rows if row["shape"] == shape and _is_full(row)]
        if failed:
            _remark(axes, names.index(shape) + 0.28, f"out of memory: {', '.join(failed)}")
    axes.set_title("Peak memory above the inputs")
    axes.set_xlabel("MB")
    if measured:
        axes.set_xscale("log")
    else:
        axes.set_xticks([])
        axes.set_xlabel("not measured on this device")


def _draw_times(axes: Any, rows: list[Row]) -> None:
    """Filled: eager. Open: from a CUDA graph. The bar is the least the device would need."""
    names = _name_shapes(axes, rows)
    measured = [row for row in rows if "error" not in row]
    impls = _impls(measured)
    for row in measured:
        y, mark = _height(names, impls, row), _mark(row["impl"])
        if row["graph_ms"]:
            axes.plot([row["graph_ms"], row["total_ms"]], [y, y], color=mark["color"], lw=0.8)
            axes.plot(row["graph_ms"], y, **mark | {"markerfacecolor": "white"})
        axes.plot(row["total_ms"], y, **mark)
    for at, shape in enumerate(names):
        least = [row["limit_ms"] for row in measured if row["shape"] == shape and _ours(row)]
        if least:
            axes.vlines(least[0], at - 0.4, at + 0.4, color="black", linewidth=2.5)
    axes.set_xscale("log")
    axes.set_xlabel("ms; filled: eager, open: CUDA graph, black: limit (float32 inputs)")
    axes.set_title("Time, and the least the device would need")


def _draw_growth(axes: Any, rows: list[Row]) -> None:
    """Solid: eager. Dashed: from a CUDA graph, for the compiled loss and ours."""
    for impl in _impls(rows):
        found = [row for row in rows if row["impl"] == impl]
        mark = _mark(impl)
        axes.plot([row["N"] for row in found], [row["total_ms"] for row in found], **mark)
        graph = [row for row in found if row["graph_ms"]]
        if graph and impl in ("compiled", "setwise-tf32"):
            axes.plot(
                [row["N"] for row in graph],
                [row["graph_ms"] for row in graph],
                linestyle="--",
                **mark | {"markerfacecolor": "white"},
            )
    if rows:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        sizes = sorted({row["N"] for row in rows})
        axes.set_xticks(sizes, [str(n) for n in sizes], fontsize=10)
        axes.set_xlabel(f"N outputs and targets of one set, {rows[0]['F']} features")
    axes.set_ylabel("ms; solid: eager, dashed: CUDA graph")
    axes.grid(alpha=0.3)
    axes.set_title("Growth with the size of one set")


def _name_shapes(axes: Any, rows: list[Row]) -> list[str]:
    """Put the shapes on the vertical axis, the first on top; returns their names in order."""
    labels = {row["shape"]: f"{row['shape']}\n({row['B']}, {row['N']}, {row['F']})" for row in rows}
    axes.set_yticks(range(len(labels)), labels.values())
    axes.set_ylim(max(1, len(labels)) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3)
    for line in range(1, len(labels)):
        axes.axhline(line - 0.5, color="0.9", linewidth=0.8, zorder=0)
    return list(labels)


def _remark(axes: Any, height: float, text: str) -> None:
    """A few words at the right end of a row."""
    where = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "center"}
    axes.annotate(text, (0.985, height), fontsize=9.5, **where)


def _height(names: list[str], impls: list[str], row: Row) -> float:
    """Where a row of the record is drawn: side by side with the others of its shape."""
    return names.index(row["shape"]) + 0.7 * ((impls.index(row["impl"]) + 0.5) / len(impls) - 0.5)


def _impls(rows: list[Row]) -> list[str]:
    """Names of contenders, peers first."""
    names = dict.fromkeys(row["impl"] for row in rows)
    return sorted(names, key=lambda name: name.startswith("setwise"))


def _mark(impl: str) -> dict[str, Any]:
    colour, marker = MARKS.get(impl, ("tab:brown", "P"))
    return {"color": colour, "marker": marker, "markersize": 6.5}


def _is_full(row: Row) -> bool:
    return row.get("error") == "out of memory"


def _ours(row: Row) -> bool:
    return str(row["impl"]).startswith("setwise")


def _is(row: Row, impl: str) -> bool:
    return row["impl"] == impl and "error" not in row


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _ratio(peer: Row, row: Row, what: str) -> str:
    return f"{peer[what] / row[what]:.2f}" if peer.get(what) and row.get(what) else ""
