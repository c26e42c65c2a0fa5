"""Write the numbers and pictures of docs/kernels.md and docs/lab-book.md from benchmark records.

python -m tools.kernels
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from setwise.bench import show
from setwise.bench.limits import limit_ms
from setwise.files import atomic_write_text
from setwise.report import heatmap
from tools.kernel_studies import (
    designs,
    likelihood,
    matrix,
    messages,
    on_a_cpu,
    precision,
    profile,
    skipping,
    some_of_matrix,
)
from tools.markdown import markdown, number, ratio, share, with_blocks, wrapped
from tools.plain_numbers import plain_numbers
from tools.solvers import matchings, points

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "benchmarks" / "records"

Record = dict[str, Any]
Row = dict[str, Any]

LOSSES, DESIGNS = "losses-h200.json", "designs-h200.json"
SKIPPING, PRECISION = "skipping-h200.json", "precision-h200.json"
PROFILE, MATRIX = "profile-h200.json", "matrix-h200.json"
# Some cells of the matrix once more, of a later commit.
NEAREST = "nearest-h200.json"
CPU_MATRICES, LIKELIHOOD = ("matrix-cpu.json", "matrix-cpu-threads.json"), "likelihood-h200.json"
PLAIN_NUMBERS = "plain-numbers-cpu.json"
SOLVERS = ("solvers-h200.json", "solvers-cpu.json")
PEERS = ("dense", "compiled", "cut-cross-entropy")
TF32, BF16, BOTH = "setwise-tf32", "setwise-bf16", "setwise-bf16-both"
OURS = (TF32, BF16, BOTH)

NOT_MEASURED = wrapped(
    f"The matrix is not recorded yet. `setwise bench losses --output benchmarks/records/{MATRIX}` "
    f"measures it, `make docs` draws it here. Until then the [lab book](lab-book.md#measured) has "
    f"what was measured of set cross entropy with Bernoulli features."
)

NO_LIKELIHOOD = wrapped(
    f"Not recorded yet: `python benchmarks/likelihood.py` writes `benchmarks/records/{LIKELIHOOD}`."
)

# The goals that were set before the kernels were written.
TIMES_COMPILED = {"puzzle": 4, "rules": 4, "blocks": 4, "detr": 4, "shapenet": 8, "mid": 8}
MOST_MS = {
    ("wide", TF32): 8,
    ("wide", BF16): 5,
    ("cloud100k", TF32): 15,
    ("cloud1M", TF32): 1500,
}
TIMES_CUT_CROSS_ENTROPY = 2
MOST_MB = 200
LARGE, LEAST_SHARE = ("wide", "cloud100k", "cloud1M"), 0.5

# What a pass consumes.
RESOURCES = ["products", "exponentials", "bytes"]


def main() -> None:
    """Update both pages, docs/figures/matrix.png and docs/figures/kernels.png."""
    docs = ROOT / "docs"
    for name in PAGES:
        atomic_write_text(docs / name, update(docs / name, RECORDS))
    record = json.loads((RECORDS / LOSSES).read_text())
    show.draw(record["header"], record["rows"], docs / "figures" / "kernels.png")
    if (record := measured_matrix(RECORDS)) is not None:
        heatmap.draw(record["header"], record["rows"], docs / "figures" / "matrix.png")


def update(document: Path, records: Path) -> str:
    """The text of a page with every block made anew from the records in a folder."""
    return with_blocks(document.read_text(), document.name, PAGES[document.name](records))


def guide(records: Path) -> dict[str, str]:
    """The blocks of docs/kernels.md."""
    record = measured_matrix(records)
    on_cpu = [json.loads((records / name).read_text()) for name in CPU_MATRICES]
    solved = [found for name in SOLVERS if (found := _if_there(records / name)) is not None]
    return {
        "matrix": NOT_MEASURED if record is None else matrix(record),
        "nearest": some_of_matrix(json.loads((records / NEAREST).read_text())),
        "cpu": on_a_cpu(*on_cpu),
        "matchings": matchings(solved),
        "points": points(solved),
    }


def measured_matrix(records: Path) -> Record | None:
    """The record of `setwise bench losses`, where there is one."""
    return _if_there(records / MATRIX)


def _if_there(path: Path) -> Record | None:
    return json.loads(path.read_text()) if path.exists() else None


def lab_book(records: Path) -> dict[str, str]:
    """The blocks of docs/lab-book.md."""
    losses, tried, skipped, precise, profiled, plain = (
        json.loads((records / name).read_text())
        for name in (LOSSES, DESIGNS, SKIPPING, PRECISION, PROFILE, PLAIN_NUMBERS)
    )
    likely = _if_there(records / LIKELIHOOD)
    return {
        "benchmark": table(losses),
        "bars": bars(losses),
        "bounds": bounds(losses),
        "mid": mid(losses),
        "sweep": sweep(losses),
        "host": host(losses),
        "designs": designs(tried),
        "skipping": skipping(skipped),
        "precision": precision(precise),
        "profile": profile(profiled),
        "likelihood": NO_LIKELIHOOD if likely is None else likelihood(likely),
        "messages": NO_LIKELIHOOD if likely is None else messages(likely),
        "plain": plain_numbers(plain),
    }


PAGES = {"kernels.md": guide, "lab-book.md": lab_book}


def table(record: Record) -> str:
    """Time and memory of a training step, for each shape and contender."""
    cells, shapes = _cells(record), _shapes(record)
    names = [name for name in (*PEERS, *OURS) if any(name == impl for _, impl in cells)]
    times, memory = [], []
    for shape, label in shapes.items():
        found = [cells.get((shape, name), {"error": "-"}) for name in names]
        times.append([label, *map(_time, found)])
        memory.append([label, *map(_memory, found)])
    header = record["header"]
    refused = {
        f"{row['impl']} {row['error']}"
        for row in record["rows"]
        if row.get("error", "out of memory") != "out of memory"
    }
    notes = [
        f"Measured on {header['device']}, torch {header['torch']}, commit "
        f"{str(header['commit'])[:12]}.",
        *(f'"-": {reason}.' for reason in sorted(refused)),
    ]
    return "\n".join(
        [
            "Milliseconds, forward and backward; after the slash from a CUDA graph:",
            "",
            *markdown(["(B, N, F)", *names], times),
            "",
            "Peak memory above the inputs, MB:",
            "",
            *markdown(["(B, N, F)", *names], memory),
            "",
            *notes,
            "",
        ]
    )


def bars(record: Record) -> str:
    """Each goal, what was reached in eager mode and from a CUDA graph, and the share of the limit.

    The shares are those of the contender that the goal is about.
    """
    cells, shapes = _cells(record), _shapes(record)
    lines: list[list[str]] = []
    for shape, goal in TIMES_COMPILED.items():
        ours, peer = cells[shape, TF32], cells[shape, "compiled"]
        lines.append(
            [
                shapes[shape],
                f"at least {goal}x compiled",
                *_against(ours, peer, goal),
                *_shares(ours),
            ]
        )
    for (shape, impl), most in MOST_MS.items():
        ours = cells[shape, impl]
        reached = [
            "" if ours[kind] is None else f"{number(ours[kind])} ms: {_yes(ours[kind] <= most)}"
            for kind in ("total_ms", "graph_ms")
        ]
        lines.append([shapes[shape], f"{impl}: at most {most} ms", *reached, *_shares(ours)])
    ours, peer = cells["wide", BOTH], cells["wide", "cut-cross-entropy"]
    goal = TIMES_CUT_CROSS_ENTROPY
    what = f"{BOTH}: at least {goal}x cut-cross-entropy, same gradients"
    lines.append([shapes["wide"], what, *_against(ours, peer, goal), *_shares(ours)])
    peaks = [cells["wide", impl]["peak_mb"] for impl in OURS]
    reached_mb = f"{', '.join(map(number, peaks))} MB: {_yes(max(peaks) < MOST_MB)}"
    what = f"{', '.join(OURS)}: peak below {MOST_MB} MB"
    lines.append([shapes["wide"], what, reached_mb, "", "", ""])
    able = [peer for peer in PEERS if "error" not in cells["cloud1M", peer]]
    times = [f"{peer} takes {number(cells['cloud1M', peer]['total_ms'])} ms" for peer in able]
    what = "no peer can run it"
    lines.append([shapes["cloud1M"], what, f"{', '.join(times)}: {_yes(not able)}", "", "", ""])
    for impl in OURS:
        found = [cells[shape, impl]["limit_fraction"] for shape in LARGE]
        shares = f"{', '.join(map(share, found))}: {_yes(min(found) >= LEAST_SHARE)}"
        what = f"{impl}: at least {LEAST_SHARE:.0%} of the limit"
        lines.append([", ".join(LARGE), what, shares, "", "", ""])
    titles = ["(B, N, F)", "goal", "reached, eager", "reached, CUDA graph"]
    return "\n".join(
        [
            *markdown([*titles, "of the limit, eager", "of the limit, CUDA graph"], lines),
            "",
            wrapped(
                f"The limit counts products at the rate of 16 bits, also for {TF32}: that is what "
                f"the kernels form where tf32 is allowed. Of points and of up to 8 elements they "
                f"form products of float32, which are slower."
            ),
        ]
    )


def bounds(record: Record) -> str:
    """What the device would need of each resource, and whether host or device bounds a step."""
    cells, lines = _cells(record), []
    for shape, label in _shapes(record).items():
        row = cells[shape, TF32]
        busy = None if row["graph_ms"] is None else row["graph_ms"] / row["total_ms"]
        needs = _needs(row, record["header"]["ceilings"]).values()
        alone = ["<0.001" if sum(both) < 1e-3 else number(sum(both)) for both in needs]
        times = [number(row[kind]) for kind in ("limit_ms", "graph_ms", "total_ms")]
        bound = "host" if busy is not None and busy < 0.5 else "device"
        lines.append([label, *alone, *times, share(busy), bound])
    titles = ["(B, N, F)", *RESOURCES, "limit", "CUDA graph", "eager"]
    titles += ["device's share", "eager bound by"]
    return "\n".join([*markdown(titles, lines), ""])


def mid(record: Record) -> str:
    """Whether the goal of `mid` lies within what the device can do."""
    cells, rates, goal = _cells(record), record["header"]["ceilings"], TIMES_COMPILED["mid"]
    ours, compiled = cells["mid", TF32], cells["mid", "compiled"]
    limit = ours["limit_ms"]
    needs = {name: sum(both) for name, both in _needs(ours, rates).items()}
    wanted = compiled["total_ms"] / goal

    def compared(least: float) -> str:
        return f"{number(least)} ms, {'more' if least > wanted else 'not more'} than that"

    return wrapped(
        f"The goal for `mid` is {goal} times the speed of the compiled dense loss, "
        f"which takes {number(compiled['total_ms'])} ms: a step of {number(wanted)} ms. The "
        f"limit of the device is {compared(limit)}. "
        f"From CUDA graphs compiled takes {number(compiled['graph_ms'])} ms and {TF32} "
        f"{number(ours['graph_ms'])} ms, {ratio(compiled['graph_ms'] / ours['graph_ms'])} as "
        f"fast and {share(limit / ours['graph_ms'])} of the limit; at the limit it would be "
        f"{ratio(compiled['graph_ms'] / limit)}. The limit takes products "
        f"({number(needs['products'])} ms) and exponentials ({number(needs['exponentials'])} ms) "
        f"to overlap entirely; one after the other they need "
        f"{compared(needs['products'] + needs['exponentials'])}."
    )


def sweep(record: Record) -> str:
    """Where in the sweep over N a compiled dense loss is at least as fast."""
    cells = _cells(record)
    found = []
    for kind in ("total_ms", "graph_ms"):
        sizes = [
            str(row["N"])
            for (shape, impl), row in cells.items()
            if shape.startswith("sweep") and impl == TF32 and row.get(kind)
            if (cells[shape, "compiled"].get(kind) or math.inf) <= row[kind]
        ]
        found.append(f"with {', '.join(sizes)} elements" if sizes else "nowhere")
    return wrapped(
        f"In the sweep over the size of one set, compiled is at least as fast as {TF32} "
        f"{found[0]} in eager mode, and {found[1]} from a CUDA graph."
    )


HOST = {
    "check": "checking the call",
    "start": "starting a Triton kernel",
    "sum": "`sum()` of the losses of the sets",
    "function": "an autograd `Function` that does nothing, forward and backward",
    "step": "a step with 10 sets of `puzzle`, all of the above and the rest",
    "one_thread": "the same inside `torch.autograd.set_multithreading_enabled(False)`",
    "native": "for comparison: PyTorch's own `sum()`, written in C++, forward and backward",
}


def host(record: Record) -> str:
    """What a step costs on the host before the device has anything to do."""
    found = record["header"]["host_us"]
    lines = [
        [what, *(f"{found[part][kind]:.0f}" for kind in ("median", "p90"))]
        for part, what in HOST.items()
    ]
    parts = sum(found[part]["median"] for part in ("check", "start", "sum", "function"))
    step = found["step"]["median"]
    return "\n".join(
        [
            *markdown(["host", "microseconds", "exceeded by 1 call in 10"], lines),
            "",
            wrapped(
                f"The first 4 add up to {parts:.0f} microseconds, {share(parts / step)} of the "
                f"step. A function in Python that does nothing takes "
                f"{share(found['function']['median'] / step)} of it under autograd."
            ),
        ]
    )


def _cells(record: Record) -> dict[tuple[str, str], Row]:
    return {(row["shape"], row["impl"]): row for row in record["rows"]}


def _shapes(record: Record) -> dict[str, str]:
    """Names of the shapes that are not of the sweep, with what stands for each in a table."""
    return {
        row["shape"]: f"{row['shape']} ({row['B']}, {row['N']}, {row['F']})"
        for row in record["rows"]
        if not row["shape"].startswith("sweep")
    }


def _needs(row: Row, rates: dict[str, float]) -> dict[str, tuple[float, float]]:
    """Milliseconds of the forward and the backward pass if one resource alone were scarce."""
    needs = {}
    for resource, name in zip(RESOURCES, (row["products"], "exps", "bytes"), strict=True):
        alone = dict.fromkeys(rates, math.inf) | {name: rates[name]}
        shape = row["B"], row["N"], row["F"]
        forward, total = limit_ms(*shape, 4, False, row["products"], alone)
        needs[resource] = forward, total - forward
    return needs


def _against(ours: Row, peer: Row, goal: float) -> list[str]:
    """Time, ratio to a peer and whether it reaches a goal, in eager mode and from a CUDA graph."""
    reached = []
    for kind in ("total_ms", "graph_ms"):
        if ours[kind] is None or peer[kind] is None:
            reached.append("")
            continue
        faster = peer[kind] / ours[kind]
        both = f"{number(ours[kind])} against {number(peer[kind])} ms"
        reached.append(f"{both}, {ratio(faster)}: {_yes(faster >= goal)}")
    return reached


def _shares(row: Row) -> list[str]:
    """Share of the limit in eager mode and from a CUDA graph."""
    graph = row["graph_ms"]
    return [share(row["limit_fraction"]), share(graph and row["limit_ms"] / graph)]


def _time(row: Row) -> str:
    if "error" in row:
        return "out of memory" if row["error"] == "out of memory" else "-"
    graph = row["graph_ms"]
    return number(row["total_ms"]) + ("" if graph is None else f" / {number(graph)}")


def _memory(row: Row) -> str:
    return _time(row) if "error" in row else number(row["peak_mb"])


def _yes(reached: bool) -> str:
    return "**yes**" if reached else "no"


if __name__ == "__main__":
    main()
