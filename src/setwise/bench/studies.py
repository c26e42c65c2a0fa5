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
    """A training step at PyTorch's default precision and in tf32: time, memory and error."""
    header, rows = record["header"], record["rows"]
    plain, soft, _ = header["data"]
    contenders = ("dense", "compiled", "setwise")
    cases = {
        '"highest"': ("highest", plain),
        '"highest" with soft targets': ("highest", soft),
        '"medium"': ("medium", plain),
    }
    erring = [("highest", name) for name in contenders]
    erring += [("medium", name) for name in contenders[1:]]
    errors: dict[str, list[list[str]]] = {"loss": [], "gradient": []}
    times, memory = [], []
    slower: dict[str, list[str]] = {case: [] for case in cases}
    for row in rows:
        shape, ran = f"({', '.join(map(str, row['shape']))})", row["ran"]
        line = [shape]
        for case, (setting, data) in cases.items():
            peer, ours = (ran[setting][name]["ms"][data] for name in contenders[1:])
            slower[case] += [shape] if peer < ours else []
            line.append(f"{number(peer)} / {number(ours)}: {ratio(peer / ours)}")
        times.append(line)
        memory.append([shape, *(number(ran["highest"][name]["peak_mb"]) for name in contenders)])
        for data in header["data"]:
            for what, table in errors.items():
                found = [ran[setting][name]["errors"][data][what] for setting, name in erring]
                table.append([shape, data, *(f"{error:.0e}" for error in found)])
    where = [f"at {case}, {', '.join(found)}" for case, found in slower.items() if found]
    titles = ["(B, N, F)", "outputs"]
    titles += [name if at == "highest" else f'{name}, "medium"' for at, name in erring]
    return "\n".join(
        [
            "Milliseconds, compiled / setwise, and how many times faster that is:",
            "",
            *markdown(["(B, N, F)", *cases], times),
            "",
            wrapped(f"The compiled dense loss is faster {'; '.join(where) or 'nowhere'}."),
            'Peak memory above the inputs at "highest", MB:',
            "",
            *markdown(["(B, N, F)", *contenders], memory),
            "",
            "Errors of the loss:",
            "",
            *markdown(titles, errors["loss"]),
            "",
            "Errors of the gradient:",
            "",
            *markdown(titles, errors["gradient"]),
            "",
            wrapped(
                f"Measured on {header['hardware']}, torch {header['torch']}, {header['date']}, "
                f"commit {str(header['commit'])[:12]}. {header['how']}"
            ),
        ]
    )


def _as_noted(time: float) -> str:
    return f"{time:.3f}" if time < 1 else f"{time}"
