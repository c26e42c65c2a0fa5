"""Records of ``setwise bench losses`` as ratios: how many times as fast as the fastest rival."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from setwise.outside import named, read_json
from setwise.report.records import NUMBER, require

Row = dict[str, Any]
Cell = tuple[str, str, str]  # loss, family, shape

OURS = "setwise"
# Of ours, and the modes of rivals that each is held against: those that cost the host as much.
AGAINST = {
    "eager": ("eager", "compiled"),
    "compiled": ("eager", "compiled"),
    "graph": ("graph", "compiled graph"),
}
ENOUGH = 0.95  # of the speed of the fastest rival counts as level with it


@dataclass(frozen=True)
class Compared:
    """Ours in a cell beside its fastest rival; either may have no time, and there may be none."""

    ours_ms: float | None
    rival: str | None = None  # what it is and how it was run
    rival_ms: float | None = None
    failed: str | None = None  # why ours has no time

    @property
    def ratio(self) -> float | None:
        """Above 1 where ours is faster; None if there is nothing to compare."""
        if self.ours_ms is None or self.rival_ms is None:
            return None
        return self.rival_ms / self.ours_ms


def read(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """The header and the rows of a record; one line where it is none."""
    record = read_json(path)
    with named(path, KeyError, TypeError):
        require(record, {"header": dict, "rows": list})
        for row in record["rows"]:
            required = {"error": str} if "error" in row else {"total_ms": NUMBER}
            cell = dict.fromkeys(("loss", "family", "shape", "impl", "mode"), str)
            require(row, {**cell, "sizes": list, **required})
            if row.get("total_ms", 1.0) <= 0:
                raise ValueError(f"total_ms: expected a number above 0, got {row['total_ms']}")
            if not all(type(size) is int for size in row["sizes"]):
                raise ValueError(f"sizes: expected whole numbers, got {row['sizes']}")
    return record["header"], record["rows"]


def compared(rows: Sequence[Row]) -> dict[str, dict[Cell, Compared]]:
    """By the mode of ours, every cell that was measured in it, in the order of the record."""
    by_cell: dict[Cell, list[Row]] = {}
    for row in rows:
        by_cell.setdefault((row["loss"], row["family"], row["shape"]), []).append(row)
    found: dict[str, dict[Cell, Compared]] = {}
    for mode, against in AGAINST.items():
        for cell, measured in by_cell.items():
            ours = [row for row in measured if row["impl"] == OURS and row["mode"] == mode]
            if ours:
                peers = [r for r in measured if r["impl"] != OURS and r["mode"] in against]
                found.setdefault(mode, {})[cell] = _compare(ours[0], peers)
    return found


def _compare(ours: Row, rivals: Sequence[Row]) -> Compared:
    timed = [row for row in rivals if "error" not in row]
    fastest = min(timed, key=lambda row: row["total_ms"], default=None)
    if fastest is None:
        failed = rivals[0] if rivals else None
        name = f"{_name(failed)}: {failed['error']}" if failed else None
        return Compared(ours.get("total_ms"), name, None, ours.get("error"))
    return Compared(
        ours.get("total_ms"), _name(fastest), float(fastest["total_ms"]), ours.get("error")
    )


def _name(row: Row) -> str:
    return row["impl"] if row["mode"] == "eager" else f"{row['impl']} ({row['mode']})"


def summary(found: Mapping[Cell, Compared]) -> str:
    """The geometric mean over the cells that have both times, and where ours is behind."""
    ratios = {cell: one.ratio for cell, one in found.items() if one.ratio is not None}
    if not ratios:
        return "Nothing was measured on both sides."
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    behind = sum(ratio < ENOUGH for ratio in ratios.values())
    return (
        f"{mean:.2f} times as fast as the fastest rival in the geometric mean of {len(ratios)} "
        f"cells; in {behind} of them below {ENOUGH} of its speed."
    )


def shapes_of(rows: Sequence[Row]) -> dict[str, str]:
    """The shapes of a record, with their sizes: sets x elements x features."""
    return {row["shape"]: " x ".join(f"{n:,}" for n in row["sizes"]) for row in rows}
