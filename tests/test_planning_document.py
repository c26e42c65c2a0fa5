"""The page on planning shows the record of its benchmark, and the benchmark runs."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

from setwise.planning import PuzzleDomain

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "planning_encodings.py"
NAMES = runpy.run_path(str(SCRIPT))


def test_the_page_shows_the_record() -> None:
    record = json.loads(NAMES["RECORD"].read_text())
    assert record["operators"] == 967680
    assert NAMES["PAGE"].read_text() == NAMES["page"](record), f"run python {SCRIPT.name}"
    assert {row["cost"] for row in record["rows"]} == {14}


def test_the_benchmark_on_a_small_puzzle() -> None:
    record = NAMES["measure"](PuzzleDomain(3, 2))
    assert [row["encoding"] for row in record["rows"]] == ["index", "bits", "full"]
    assert {row["outcome"] for row in record["rows"]} == {"solved"}
    assert len({row["cost"] for row in record["rows"]}) == 1
    sizes = [row["task_mb"] for row in record["rows"]]
    assert sizes == sorted(sizes)
    assert NAMES["table"](record).count("\n") == 5
