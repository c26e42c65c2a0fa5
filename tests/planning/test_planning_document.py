"""The page on planning shows recorded plans and the record of its benchmark, which runs."""

from __future__ import annotations

import json
import runpy
import shutil
from collections import Counter
from pathlib import Path

import pytest

from pictures import differing_pixels
from repository import ROOT
from setwise.experiments import records
from setwise.losses.table import find_loss
from setwise.worlds import PuzzleWorld

FIGURES = runpy.run_path(str(ROOT / "docs" / "figures" / "plans.py"))
SCRIPT = ROOT / "benchmarks" / "planning_encodings.py"
NAMES = runpy.run_path(str(SCRIPT))


def test_the_page_shows_the_record() -> None:
    record = json.loads(NAMES["RECORD"].read_text())
    assert record["operators"] == 967680
    assert NAMES["PAGE"].read_text() == NAMES["page"](record), f"run python {SCRIPT.name}"
    assert {row["cost"] for row in record["rows"]} == {14}


def test_the_benchmark_on_a_small_puzzle() -> None:
    record = NAMES["measure"](PuzzleWorld(3, 2))
    assert [row["encoding"] for row in record["rows"]] == ["index", "bits", "full"]
    assert {row["outcome"] for row in record["rows"]} == {"solved"}
    assert len({row["cost"] for row in record["rows"]}) == 1
    sizes = [row["task_mb"] for row in record["rows"]]
    assert sizes == sorted(sizes)
    assert NAMES["table"](record).count("\n") == 5


@pytest.mark.parametrize("figure", FIGURES["FIGURES"])
def test_the_committed_strips_are_those_of_the_recorded_plans(figure: str, tmp_path: Path) -> None:
    plan = FIGURES["PLANS"] / FIGURES["FIGURES"][figure]
    FIGURES["draw"](plan, tmp_path / figure)
    assert differing_pixels(FIGURES["HERE"] / figure, tmp_path / figure) < 1e-4, "run make docs"
    # A caption or a state that is another would be noticed.
    for changed in ("captions", "states"):
        other = tmp_path / changed
        shutil.copytree(plan, other)
        if changed == "captions":
            text = (other / "plan.json").read_text()
            (other / "plan.json").write_text(text.replace("left", "back"))
        else:
            shutil.copy(other / "02.png", other / "03.png")
        FIGURES["draw"](other, tmp_path / f"{changed}.png")
        assert differing_pixels(FIGURES["HERE"] / figure, tmp_path / f"{changed}.png") > 1e-4


@pytest.mark.parametrize("figure", FIGURES["FIGURES"])
def test_no_other_seed_solves_more_than_those_shown(figure: str) -> None:
    """Of the first training of the tables, from which these networks are, as the page says."""
    shown = json.loads((FIGURES["PLANS"] / FIGURES["FIGURES"][figure] / "plan.json").read_text())
    assert shown["valid"] is True
    loss = find_loss(shown["network"]["loss"]).name
    solved: Counter[int] = Counter()
    for record in records.read(FIGURES["PLANS"].parent / "older" / "table5.jsonl"):
        same_domain = record["scenario"].split("-")[0] == shown["domain"].split("-")[0]
        if same_domain and record["loss"] == loss:
            solved[record["seed"]] += record["metrics"]["solved"]
    assert len(solved) == 10
    assert solved[shown["network"]["seed"]] == max(solved.values())
