"""The Markdown table of a benchmark record, written into a document between two markers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- benchmark: begin -->", "<!-- benchmark: end -->"
PEERS = ("dense", "compiled", "cut-cross-entropy", "setwise-tf32", "setwise-bf16")


def update(document: Path, record: Path) -> str:
    """The text of the document with its table made anew; empty while there is no record."""
    before, rest = document.read_text().split(BEGIN)
    _, after = rest.split(END)
    made = table(json.loads(record.read_text())) if record.exists() else ""
    return f"{before}{BEGIN}\n{made}{END}{after}"


def table(record: dict[str, Any]) -> str:
    """Milliseconds forward and backward of each shape and contender, ratios, share of the limit."""
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    shapes: dict[str, str] = {}
    for row in record["rows"]:
        cells[row["shape"], row["impl"]] = row
        shapes[row["shape"]] = f"{row['shape']} ({row['B']}, {row['N']}, {row['F']})"
    lines = [
        f"| (B, N, F) | {' | '.join(PEERS)} | tf32 against compiled | of the limit | peak MB |",
        "|---" * (len(PEERS) + 4) + "|",
    ]
    for shape, label in shapes.items():
        if shape.startswith("sweep"):
            continue
        ours, compiled = cells[shape, "setwise-tf32"], cells[shape, "compiled"]
        times = [_time(cells.get((shape, peer), {"error": "-"})) for peer in PEERS]
        ratio = "" if "error" in compiled else f"{compiled['total_ms'] / ours['total_ms']:.1f}x"
        share, peak = f"{ours['limit_fraction']:.0%}", f"{ours['peak_mb']:.0f}"
        lines.append(f"| {label} | {' | '.join(times)} | {ratio} | {share} | {peak} |")
    header = record["header"]
    made = f"{header['device']}, torch {header['torch']}, commit {str(header['commit'])[:12]}"
    return "\n".join([*lines, "", f"Measured on {made}; milliseconds, forward and backward.", ""])


def _time(row: dict[str, Any]) -> str:
    return row["error"] if "error" in row else f"{row['total_ms']:.2f}"
