"""The measured numbers of docs/distributed.md, from benchmarks/records.

python -m tools.distributed    # writes them
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from setwise.files import atomic_write_text
from tools.markdown import markdown, number, ratio, with_blocks, wrapped

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "distributed.md"
RECORDS = ROOT / "benchmarks" / "records"
STREAMING, SHARDED = RECORDS / "streaming.json", RECORDS / "sharded.json"


def streaming(record: dict[str, Any]) -> str:
    """That every set came once, in the same order, and how fast."""
    header, epochs = record["header"], record["epochs"]
    least, most = header["elements"]
    missed = epochs["sets"] - epochs["seen once"]
    once = "every one came exactly once" if not missed else f"{missed:,} did not come exactly once"
    same = "the same" if epochs["same order again"] else "not the same"
    after = "as if nothing had happened" if epochs["same order after the kill"] else "differently"
    told = wrapped(
        f"{epochs['sets']:,} sets of {least} to {most} elements with {header['features']} features "
        f"({number(header['megabytes'])} MB of files) on {epochs['ranks']} processes with "
        f"{epochs['workers']} workers each: {once}. A second run had {same} order. Killed with -9 "
        f"after {epochs['sets before the kill']:,} sets and started again, the epoch ended {after}."
    )
    speeds = {(row["workers"], row["loader"]): row["sets_per_s"] for row in record["rows"]}
    lines = []
    for workers in sorted({workers for workers, _ in speeds}):
        ours, memory = (speeds[workers, loader] for loader in ("SetLoader", "in memory"))
        lines.append([str(workers), f"{ours:,.0f}", f"{memory:,.0f}", ratio(ours / memory)])
    titles = ["workers", "`SetLoader`, sets a second", "`DataLoader`, all in memory", ""]
    note = wrapped(
        f"Batches of {header['batch']} on one process ({header['hardware']}; the machine had some "
        f"{header['load']:.0f} others at work): compare the two, which took turns. The sets in "
        f"memory are tensors that `collate_sets` puts together one by one."
    )
    return "\n".join([told, *markdown(titles, lines), "", note]).rstrip() + "\n"


def sharded(record: dict[str, Any]) -> str:
    """Peak memory and processor time of a process, by the size of sets and the processes."""
    header = record["header"]
    found = {(row["elements"], row["ranks"]): row for row in record["rows"]}
    ranks = sorted({ranks for _, ranks in found})
    titles = ["elements of a set"]
    titles += [f"MB, {n} process{'es' * (n > 1)}" for n in ranks]
    titles += [f"s, {n} process{'es' * (n > 1)}" for n in ranks]
    lines = []
    for elements in sorted({elements for elements, _ in found}):
        rows = [found[elements, n] for n in ranks]
        memory = [number(row["peak_mb"]) for row in rows]
        lines.append([f"{elements:,}", *memory, *(number(row["seconds"]) for row in rows)])
    note = wrapped(
        f"The memory that a step of `set_cross_entropy` adds at its peak, inputs and gradients "
        f"included, and its processor time, of the process that has the most of it: "
        f"{header['sets']} sets with {header['features']} features, on the CPU by the chunked "
        f"engine and Gloo, one thread each."
    )
    return "\n".join([*markdown(titles, lines), "", note]).rstrip() + "\n"


def page(text: str) -> str:
    """The text of the page with the numbers of the records."""
    blocks = {
        "streaming": streaming(json.loads(STREAMING.read_text())),
        "sharded": sharded(json.loads(SHARDED.read_text())),
    }
    return with_blocks(text, PAGE.name, blocks)


if __name__ == "__main__":
    atomic_write_text(PAGE, page(PAGE.read_text()))
