"""Tables of matchings and of clouds of points, from the records of benchmarks/solvers.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tools.markdown import markdown, number, ratio, wrapped

Record = dict[str, Any]
Row = dict[str, Any]

OURS, TREE = "setwise", "cKDTree"


def matchings(records: Iterable[Record]) -> str:
    """Solvers beside each other, of every device that was measured; where ours is not ahead."""
    return _of_each(records, _matchings)


def points(records: Iterable[Record]) -> str:
    """Steps of training on a surface, of every device that was measured."""
    return _of_each(records, _points)


def _of_each(records: Iterable[Record], tell: Callable[[Record], list[str]]) -> str:
    parts = []
    for record in records:
        parts += [*tell(record), _made(record["header"])]
        if not record["whole"]:
            parts.append("The run was cut short: what comes after these rows was not measured.\n")
    return "\n".join(parts)


def _matchings(record: Record) -> list[str]:
    rows = [row for row in record["rows"] if row["part"] == "matchings"]
    names = list(dict.fromkeys(row["impl"] for row in rows))
    problems: dict[str, dict[str, Row]] = {}
    for row in rows:
        problems.setdefault(_problems(row["sizes"]), {})[row["impl"]] = row
    lines, behind = [], []
    for problem, found in problems.items():
        times = {name: row["median_ms"] for name, row in found.items()}
        ours = times[OURS]
        rivals = [
            f"{number(ms)} ({ratio(ms / ours)}){'*' if found[name]['calls'] == 1 else ''}"
            for name, ms in times.items()
            if name != OURS
        ]
        lines.append([problem, number(ours), *rivals])
        fastest = min(times, key=lambda name: times[name])
        behind += [f"{problem} ({fastest})"] if fastest != OURS else []
    off = {name: max(abs(r["cost_error"]) for r in rows if r["impl"] == name) for name in names}
    errors = ", ".join(f"{name} {_part(off[name])}" for name in names if name != "SciPy")
    once = " * Called once." if any(row["calls"] == 1 for row in rows) else ""
    return [
        *markdown(["problems", *names], lines),
        "",
        wrapped(
            f"A rival is faster than `sw.assign` for {', '.join(behind) or 'none of these'}. The "
            f"part of SciPy's total cost that another one is off by, at most: {errors}.{once}"
        ),
    ]


def _points(record: Record) -> list[str]:
    rows = [row for row in record["rows"] if row["part"] == "points"]
    trees = {row["points"]: row["median_ms"] for row in rows if row["what"] == TREE}
    lines = []
    for row in rows:
        line = [f"{row['points']:,}", row["what"], number(row["median_ms"])]
        lines.append([*line, ratio(row["median_ms"] / trees[row["points"]])] if trees else line)
    titles = ["points", "step", "milliseconds"]
    return [*markdown([*titles, "times that of the tree"] if trees else titles, lines), ""]


def _problems(sizes: list[int]) -> str:
    many, rows, columns = sizes
    return f"{many:,} of {rows:,} x {columns:,}"


def _part(error: float) -> str:
    return f"{error:.0e}" if error else "0"


def _made(header: Row) -> str:
    versions = ", ".join(f"{name} {said}" for name, said in header["versions"].items() if said)
    return wrapped(
        f"Measured on {header['hardware']}, torch {header['torch']}, {versions}, {header['date']}, "
        f"commit {str(header['commit'])[:12]}."
    )
