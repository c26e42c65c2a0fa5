"""A table of solvers on a CPU, from the record of benchmarks/plain_numbers.py."""

from __future__ import annotations

from typing import Any

from tools.markdown import markdown, number, ratio, wrapped

Record = dict[str, Any]


def plain_numbers(record: Record) -> str:
    """Milliseconds by logarithms and by plain numbers, for random outputs and confident ones."""
    header = record["header"]
    cells: dict[tuple[str, str], dict[bool, dict[str, Any]]] = {}
    for row in record["rows"]:
        key = str(tuple(row["shape"])), row["solver"]
        cells.setdefault(key, {})[row["confident"]] = row
    lines = [
        [shape, solver, *(_times(found[confident]) for confident in (False, True))]
        for (shape, solver), found in cells.items()
    ]
    apart = max(row["apart"] for row in record["rows"] if row["apart"] is not None)
    return "\n".join(
        [
            wrapped(
                "Milliseconds by logarithms / by plain numbers, and how many times as fast that "
                "is; of scores alone, without what comes before and behind."
            ),
            *markdown(["(B, M, N)", "solver", "random outputs", "confident outputs"], lines),
            "",
            wrapped(
                f"Values differ by {apart:.0e} of themselves at most, where both have settled. "
                f"Measured on {header['hardware']}, torch {header['torch']}, commit "
                f"{str(header['commit'])[:12]}, by `python benchmarks/plain_numbers.py`."
            ),
        ]
    )


def _times(row: dict[str, Any]) -> str:
    before, now = row["logarithms_ms"], row["plain_ms"]
    return f"{number(before)} / {number(now)}: {ratio(before / now)}"
