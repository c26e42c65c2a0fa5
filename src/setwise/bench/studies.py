"""Blocks of docs/kernels.md on single questions, each from a record of its own."""

from __future__ import annotations

from typing import Any

from setwise.bench.markdown import markdown, number, ratio, share, wrapped

Record = dict[str, Any]


def designs(tried: Record) -> str:
    """Designs that were measured side by side."""
    lines, header = [], tried["header"]
    for row in tried["designs"]:
        times = [row["dropped_time"], row["kept_time"]]
        dropped, kept = ("" if t is None else f"{_as_noted(t)} {row['unit']}" for t in times)
        lines.append([row["where"], row["dropped"], dropped, row["kept"], kept, row["commit"]])
    titles = ["where", "dropped", "time", "kept", "time", "commit"]
    made = wrapped(f"{header['device']}; {header['how']}.")
    return "\n".join([*markdown(titles, lines), "", made])


def skipping(record: Record) -> str:
    """A training step with and without tiles that cannot matter, and how many were visited."""
    header, rows = record["header"], record["rows"]
    lines = []
    for row in rows:
        walks = ("logits", "target") if row["gradients"] == "both" else ("logits",)
        shares = ", ".join(share(row["visited"][walk]) for walk in walks)
        times = [number(row[kind]) for kind in ("off_ms", "on_ms")]
        faster = f"{row['off_ms'] / row['on_ms']:.2f}x"
        lines.append([row["data"], row["precision"], ", ".join(walks), *times, faster, shares])
    titles = ["outputs", "precision", "gradients to", "every tile, ms", "skipping, ms", "faster"]
    memory = max(row["peak_on_mb"] - row["peak_off_mb"] for row in rows)
    same = sum(row["equal"] for row in rows)
    in_vain = [row["on_ms"] / row["off_ms"] for row in rows if row["data"] == "random"]
    shape = ", ".join(map(str, header["shape"]))
    return "\n".join(
        [
            f"Forward and backward of (B, N, F) = ({shape}):",
            "",
            *markdown([*titles, "tiles visited"], lines),
            "",
            wrapped(
                f"Of random outputs nothing can be left out; to find that out makes a step take "
                f"{min(in_vain):.2f} to {max(in_vain):.2f} times as long. In {same} of {len(rows)} "
                f"rows, skipping leaves every bit of the gradients as it is. Peak memory grows by "
                f"{number(memory)} MB at most."
            ),
            wrapped(
                f"Measured on {header['hardware']}, torch {header['torch']}, {header['date']}, "
                f"commit {str(header['commit'])[:12]}. {header['how']}"
            ),
        ]
    )


def precision(record: Record) -> str:
    """A training step at PyTorch's default precision: time, memory and error."""
    header, contenders = record["header"], ("dense", "compiled", "setwise")
    times, errors, slower = [], [], []
    for row in record["rows"]:
        shape, ran = f"({', '.join(map(str, row['shape']))})", row["ran"]
        spent, used = (
            [number(ran[name][what]) for name in contenders] for what in ("ms", "peak_mb")
        )
        faster = ran["compiled"]["ms"] / ran["setwise"]["ms"]
        if faster < 1:
            slower.append(shape)
        times.append([shape, *spent, ratio(faster), number(ran["setwise-medium"]["ms"]), *used])
        for data in header["data"]:
            found = [
                f"{ran[name]['errors'][data][what]:.0e}"
                for what in ("loss", "gradient")
                for name in (*contenders, "setwise-medium")
            ]
            errors.append([shape, data, *found])
    measured = [f"{name}, {unit}" for unit in ("ms", "MB") for name in contenders]
    compared = ["compiled / setwise", 'setwise at "medium", ms']
    erring = [
        f"{what}: {name}"
        for what in ("loss", "gradient")
        for name in (*contenders, 'setwise at "medium"')
    ]
    where = f"at {', '.join(slower)}" if slower else "nowhere"
    return "\n".join(
        [
            *markdown(["(B, N, F)", *measured[:3], *compared, *measured[3:]], times),
            "",
            f"The compiled dense loss is faster {where}. Errors:",
            "",
            *markdown(["(B, N, F)", "outputs", *erring], errors),
            "",
            wrapped(
                f"Measured on {header['hardware']}, torch {header['torch']}, {header['date']}, "
                f"commit {str(header['commit'])[:12]}. {header['how']}"
            ),
        ]
    )


def _as_noted(time: float) -> str:
    return f"{time:.3f}" if time < 1 else f"{time}"
