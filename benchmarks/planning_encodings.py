"""What the encodings of a planning task cost: the 8-puzzle with a distinct random code a state.

Run ``python benchmarks/planning_encodings.py``; it writes the record
``benchmarks/records/planning-encodings.json`` and the table of ``docs/planning.md``. The search is
the same for all encodings, but for how long it takes to read the task: what is measured is text.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from setwise import environment
from setwise.planning import (
    Encoding,
    latent_graph,
    random_problems,
    search,
    variables_of,
    write_operators,
    write_task,
)
from setwise.worlds import PuzzleWorld

ROOT = Path(__file__).parent.parent
RECORD = Path(__file__).parent / "records" / "planning-encodings.json"
PAGE = ROOT / "docs" / "planning.md"
BEGIN, END = "<!-- encodings: begin -->\n", "<!-- encodings: end -->\n"
ENCODINGS: tuple[Encoding, ...] = ("index", "bits", "full")
BITS, STEPS = 100, 14


def measure(puzzle: PuzzleWorld) -> dict[str, Any]:
    """Write and solve one problem in every encoding."""
    codes = np.random.default_rng(0).integers(0, 2, (puzzle.number_of_states, BITS)).astype(bool)
    graph = latent_graph(codes, puzzle.transitions().numpy())
    [problem] = random_problems(puzzle, STEPS, 1, seed=0, start=puzzle.goal())
    ranks = puzzle.rank(puzzle.configuration_of(torch.stack([problem.init, problem.goal])))
    init, goal = graph.node_of[ranks.numpy()].tolist()
    rows = []
    for encoding in ENCODINGS:
        variables = variables_of(graph, encoding)
        with tempfile.TemporaryDirectory() as name:
            operators, task = Path(name) / "operators", Path(name) / "task.sas"
            began = time.perf_counter()
            with operators.open("wb") as file:
                write_operators(file, variables, graph.edges)
            written = time.perf_counter() - began
            write_task(task, variables, operators, len(graph.edges), init, goal)
            found = search(task)
            size = task.stat().st_size
        rows.append(
            {
                "encoding": encoding,
                "variables": len(variables.names),
                "task_mb": round(size / 1e6, 1),
                "write_s": round(written, 2),
                "search_s": round(found.seconds, 2),
                "peak_mb": found.peak_mb,
                "outcome": str(found.outcome),
                "cost": found.cost,
            }
        )
    header = environment.describe(torch.device("cpu"))
    return {"domain": puzzle.name, "operators": len(graph.edges), "header": header, "rows": rows}


def table(record: dict[str, Any]) -> str:
    """The record as it stands on the page."""
    lines = [
        "| encoding | variables | task | operators written | read and searched | memory |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{row['encoding']}` | {row['variables']} | {row['task_mb']:.0f} MB "
        f"| {row['write_s']:.0f} s, once | {row['search_s']:.0f} s a problem "
        f"| {row['peak_mb']:.0f} MB |"
        for row in record["rows"]
    ]
    return "\n".join(lines) + "\n"


def page(record: dict[str, Any]) -> str:
    """The page with the table of a record."""
    before, rest = PAGE.read_text().split(BEGIN)
    return before + BEGIN + "\n" + table(record) + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    found = measure(PuzzleWorld())
    RECORD.write_text(json.dumps(found, indent=1) + "\n")
    PAGE.write_text(page(found))
    print(table(found))
