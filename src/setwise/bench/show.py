"""A benchmark record as a table in the terminal and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]


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
    """Time per shape and contender, and how time grows with the size of one set."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    rows = [row for row in rows if "error" not in row]
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
    shapes = list(dict.fromkeys(r["shape"] for r in rows if not r["shape"].startswith("sweep")))
    impls = list(dict.fromkeys(row["impl"] for row in rows))
    colours = dict(zip(impls, plt.get_cmap("tab10").colors, strict=False))  # type: ignore[attr-defined]
    for offset, impl in enumerate(impls):
        times = {row["shape"]: row["total_ms"] for row in rows if row["impl"] == impl}
        at = [i + 0.8 * (offset / len(impls) - 0.4) for i, s in enumerate(shapes) if s in times]
        heights = [times[s] for s in shapes if s in times]
        left.bar(at, heights, 0.8 / len(impls), label=impl, color=colours[impl], align="edge")
    left.set_yscale("log")
    left.set_xticks(range(len(shapes)), shapes, rotation=30, ha="right")
    left.set_ylabel("forward and backward, ms")
    left.set_title(f"One training step of the loss on {header['device']}")
    left.legend(fontsize=8)
    for impl in impls:
        sweep = [r for r in rows if r["shape"].startswith("sweep") and r["impl"] == impl]
        if not sweep:
            continue
        sizes, times_ = [r["N"] for r in sweep], [r["total_ms"] for r in sweep]
        right.plot(sizes, times_, marker="o", label=impl, color=colours[impl])
    if right.lines:
        right.set_xscale("log", base=2)
        right.set_yscale("log")
    right.set_xlabel("N outputs and targets of one set, 64 features")
    right.set_title("Growth with the size of a set; lines end where memory does")
    right.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(figure)


def _is(row: Row, impl: str) -> bool:
    return row["impl"] == impl and "error" not in row


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _ratio(peer: Row, row: Row, what: str) -> str:
    return f"{peer[what] / row[what]:.2f}" if peer.get(what) and row.get(what) else ""
