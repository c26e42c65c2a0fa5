"""Blocks of the pages on the kernels on single questions, each from a record of its own."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import geometric_mean
from typing import Any

from setwise.bench.cells import SHAPES
from setwise.report.heatmap import axes_of, said
from setwise.report.matrix import Cell, Compared, compared, shapes_of, summary
from tools.markdown import markdown, number, ratio, share, wrapped

Record = dict[str, Any]


HEAT_MAP = (
    "![Heat maps: how many times as fast as its fastest rival each loss is, for every family of "
    "elements and shape](figures/matrix.png)"
)


def matrix(record: Record) -> str:
    """Every loss beside its fastest rival, and a picture of it."""
    return "\n".join([HEAT_MAP, "", *_tables(record["rows"]), _measured(record["header"])])


def some_of_matrix(record: Record) -> str:
    """Cells that were chosen; what they come to together would say nothing."""
    parts = _tables(record["rows"], together=False)
    return "\n".join([*parts, _measured(record["header"])])


def _measured(header: Record) -> str:
    versions = f"torch {header['torch']}, Triton {header['triton']}"
    return wrapped(
        f"Measured on {header['hardware']}, {versions}, commit {str(header['commit'])[:12]}, with "
        f"tf32 allowed: medians of wall time around a step, the device waited for, with contenders "
        f"taking turns. A cell has the ratio and, in brackets, milliseconds of ours."
    )


def on_a_cpu(record: Record, in_threads: Record) -> str:
    """The same of batches as one trains with on a CPU; what it comes to in several threads, too."""
    header = record["header"]
    made = wrapped(
        f"Measured on {header['hardware']}, torch {header['torch']}, NumPy {header['numpy']}, "
        f"commit {str(header['commit'])[:12]}: medians of processor time, with contenders taking "
        f"turns. A cell has the ratio and, in brackets, milliseconds of ours."
    )
    several = in_threads["header"]
    also = wrapped(
        f"The same by batches, ratios in the geometric mean and the least of them; and on "
        f"{several['hardware']}, by the clock, commit {str(several['commit'])[:12]}:"
    )
    compared_by = [compared(one["rows"])["eager"] for one in (record, in_threads)]
    lines = []
    for shape, sizes in shapes_of(record["rows"]).items():
        ratios = [_ratios(found, shape) for found in compared_by]
        lines.append([f"{shape} ({sizes})", *(each for one in ratios for each in one)])
    titles = ["batch", "mean", "least", "mean, threads", "least, threads"]
    table, threads = markdown(titles, lines), wrapped(f"In threads: {summary(compared_by[1])}")
    return "\n".join([*_tables(record["rows"]), made, also, *table, "", threads])


def _ratios(found: Mapping[Cell, Compared], shape: str) -> tuple[str, str]:
    """The geometric mean of those of a shape, and the least."""
    ratios = [one.ratio for cell, one in found.items() if cell[2] == shape and one.ratio]
    return f"{geometric_mean(ratios):.2f}", f"{min(ratios):.2f}"


def _tables(rows: list[Any], together: bool = True) -> list[str]:
    """One for each mode, and what its cells come to ``together``."""
    sizes, parts = shapes_of(rows), []
    for mode, found in compared(rows).items():
        names, shapes = axes_of(found)
        lines = [
            [loss, family, *(_beside(found.get((loss, family, shape))) for shape in shapes)]
            for loss, family in names
        ]
        titles = ["loss", "family", *(f"{shape} ({sizes[shape]})" for shape in shapes)]
        parts += [
            f"{mode.capitalize()}:",
            "",
            *markdown(titles, lines),
            "",
        ]
        parts += [wrapped(summary(found))] if together else []
    return parts


def _beside(one: Compared | None) -> str:
    """The ratio and the time of ours, or what there is of them."""
    if one is None or one.ours_ms is None or one.ratio is None:
        return said(one)
    return f"{said(one)} ({number(one.ours_ms)})"


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


def likelihood(record: Record) -> str:
    """Likelihoods beside set cross entropy, and transport beside libraries for it."""
    header, rows = record["header"], record["rows"]
    cells = {(r["shape"], r["family"], r["loss"]): r for r in rows if r["part"] == "losses"}
    times, errors = [], []
    for (shape, family, loss), row in cells.items():
        base = cells[shape, family, "SH"]
        if row is base:
            continue
        pairs = [(row[kind], base[kind]) for kind in ("median_ms", "min_ms", "graph_ms")]
        told = [
            ""
            if ours is None or sh is None
            else f"{number(ours)} / {number(sh)}: {ratio(ours / sh)}"
            for ours, sh in pairs
        ]
        times.append([shape, loss, family, *told])
        errors += [row["value_error"], row["gradient_error"]] if "value_error" in row else []
    plans: dict[str, list[str]] = {}
    for row in (row for row in rows if row["part"] == "transport"):
        found = row.get("error") or f"{number(row['median_ms'])} (least {number(row['min_ms'])})"
        if "value_error" in row:
            found += f", off by {row['value_error']:.0e}"
        plans.setdefault(row["impl"], []).append(found)
    each = list(dict.fromkeys(r["temperature"] for r in rows if r["part"] == "transport"))
    judged = any(r["part"] == "transport" and "value_error" in r for r in rows)
    off = ", and by which part values are off" if judged else ""
    lines = [
        wrapped(
            f"Milliseconds, likelihood / SH, and how many times as long that is. Measured on "
            f"{header['hardware']}, torch {header['torch']}, commit {str(header['commit'])[:12]}."
        ),
        *markdown(["shape", "loss", "elements", "median", "least", "from a CUDA graph"], times),
        "",
        wrapped(f"The exact ones are off float64 by {max(errors):.0e} at most, value or gradient."),
        f"Milliseconds of transport of points, {SHAPES['detr']}{off}:",
        "",
        *markdown(
            ["library", *(f"t = {t:g}" for t in each)],
            [[name, *found] for name, found in plans.items()],
        ),
    ]
    if not record.get("whole", False):
        lines += ["", "The run was cut short: what comes after these rows was not measured."]
    return "\n".join([*lines, ""])


def messages(record: Record) -> str:
    """Bethe's messages in one launch, beside the same by compiled PyTorch."""
    found = {row["impl"]: row for row in record["rows"] if row["part"] == "messages"}
    if len(found) < 3:
        return "The run was cut short before all three had been measured.\n"
    B, N, _ = SHAPES["detr"]
    median = found["setwise"]["median_ms"]
    ours, alone, with_looks = (
        f"{number(found[name]['median_ms'])} ms (least {number(found[name]['min_ms'])})"
        + ("" if name == "setwise" else f", {found[name]['median_ms'] / median:.1f} times as long")
        for name in ("setwise", "compiled", "compiled, with looks and beliefs")
    )
    return wrapped(
        f"{found['setwise']['rounds']} rounds of the messages of {B} sets of {N} targets and {N} "
        f"outputs take {ours} in one launch, with looks at whether they have settled and the "
        f"probabilities that come out. By compiled PyTorch the rounds alone take {alone}; with the "
        f"same looks and probabilities {with_looks}."
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


# Shares of what the device could do in the time of a kernel.
PROFILED = ["instructions", "exponentials", "products", "memory"]
# What a warp of a kernel waits for, in other words than those of Nsight Compute.
WAITS = {
    "barrier": "other warps",
    "branch_resolving": "a branch",
    "dispatch_stall": "a free unit",
    "drain": "stores",
    "gmma": "tensor cores",
    "imc_miss": "constants",
    "lg_throttle": "loads",
    "long_scoreboard": "loads",
    "math_pipe_throttle": "a free unit",
    "membar": "stores",
    "mio_throttle": "shared memory or exponentials",
    "misc": "something else",
    "no_instruction": "instructions",
    "not_selected": "its turn",
    "short_scoreboard": "shared memory or exponentials",
    "sleeping": "something else",
    "tex_throttle": "loads",
    "wait": "its last instruction",
}


def profile(record: Record) -> str:
    """The kernels of a step, and what each of them makes of the device."""
    header, lines = record["header"], []
    for at, row in enumerate(record["rows"]):
        first = at == 0 or record["rows"][at - 1]["shape"] != row["shape"]
        sizes = ", ".join(map(str, row["sizes"]))
        shares = [f"{row[what]:.0f}%" for what in PROFILED]
        counts = [number(row["us"]), f"{row['registers']:.0f}", f"{row['warps']:.0f}"]
        label = f"{row['shape']} ({sizes})" if first else ""
        lines.append([label, _kernel(row["kernel"]), *counts, *shares, _waits(row["stalls"])])
    titles = ["(B, N, F)", "kernel", "microseconds", "registers", "warps", *PROFILED, "waits for"]
    made = wrapped(
        f"Measured on {header['hardware']}, torch {header['torch']}, {header['date']}, commit "
        f"{str(header['commit'])[:12]}. {header['how']}"
    )
    return "\n".join([*markdown(titles, lines), "", made])


def _kernel(name: str) -> str:
    """A kernel of ours by its own name, one of PyTorch's by what it does."""
    if "at::" not in name:
        return f"`{name}`"
    kinds = {"reduce_kernel": "sum", "FillFunctor": "filling", "MulFunctor": "multiplication"}
    return f"PyTorch's {next(said for kind, said in kinds.items() if kind in name)}"


def _waits(stalls: dict[str, float]) -> str:
    """The two things that a warp spends most cycles waiting for, and their share of all waiting."""
    cycles: dict[str, float] = {}
    for reason, spent in stalls.items():
        cycles[WAITS[reason]] = cycles.get(WAITS[reason], 0.0) + spent
    most = sorted(cycles, key=lambda wait: -cycles[wait])[:2]
    total = sum(cycles.values())
    return ", ".join(f"{wait} {cycles[wait] / total:.0%}" for wait in most)


def _as_noted(time: float) -> str:
    return f"{time:.3f}" if time < 1 else f"{time}"
