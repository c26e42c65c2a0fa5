"""The page on planning shows the records of its benchmarks, and the benchmarks run."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
import torch

from setwise.experiments.recipes import table5
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


WORLDS = runpy.run_path(str(SCRIPT.with_name("worlds.py")))


def test_the_page_shows_the_worlds_that_were_looked_at() -> None:
    record = json.loads(WORLDS["RECORD"].read_text())
    assert WORLDS["PAGE"].read_text() == WORLDS["page"](record), "run python benchmarks/worlds.py"
    assert [row["seed"] for row in record["rows"]] == WORLDS["candidates"]()


def test_table_5_has_the_world_in_which_materials_are_farthest_apart() -> None:
    record = json.loads(WORLDS["RECORD"].read_text())
    best = max(record["rows"], key=lambda row: row["least"])["seed"]
    assert table5.BLOCKS.seed == best
    assert f"--states all --seed {best}" in " ".join(WORLDS["PAGE"].read_text().split())


def test_how_far_materials_are_apart() -> None:
    """Averages that are 6 apart, patches that are 1 or 2 from theirs."""
    patches = torch.tensor([[0.0, 1.0], [0.0, -1.0], [6.0, 2.0], [6.0, -2.0]])
    metal = torch.tensor([False, False, True, True])
    assert WORLDS["apart"](patches, metal) == pytest.approx(6 / 2.5**0.5)
    assert WORLDS["apart"](patches, ~metal) == pytest.approx(6 / 2.5**0.5)


def test_a_world_is_measured(tmp_path: Path) -> None:
    row = WORLDS["measure"](0, tmp_path, width=60, height=40, samples=8)
    assert row["least"] == min(block["apart"] for block in row["blocks"]) > 0
    assert [block["colour"] for block in row["blocks"]] == ["brown", "gray", "blue", "cyan"]
    assert WORLDS["table"]({"rows": [row]}).count("\n") == 3
