"""docs/picture-losses.md is made from the records of studies/detection.py."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tools import pictures

from pictures import differing_pixels
from recorded import RESULTS
from setwise.experiments.experiment import LossStyle, Sheet
from setwise.report.tables import Recorded

AH, LH = "assignment_cross_entropy", "bethe_likelihood"
SHEET = Sheet(
    name="pictures",
    title="A small study",
    scenarios={"queries": "queries, 5 outputs", "slots": "slots, 5 outputs"},
    losses={
        AH: LossStyle("AH", "best assignment", "#2ca02c"),
        LH: LossStyle("LH", "set likelihood", "#9467bd"),
    },
    metric="ap_0.1",
    metric_label="average precision",
)


def run(scenario: str, loss: str, seed: int, curve: list[float | None]) -> dict[str, Any]:
    final = curve[-1]
    return {
        "run": f"{scenario}-{loss}-{seed}",
        "ensemble": f"{scenario}-{loss}",
        **{"scenario": scenario, "loss": loss, "seed": seed, "members": 2, "seconds": 3.0},
        "metrics": {"ap_0.1": final, "heldout": final} | dict.fromkeys(pictures.LIMITS, final),
        "history": {"epoch": [1, 2, 3, 4], "heldout": curve},
        "config": {"data": {"train": 40, "pictures": 50}, "schedule": {"batch": 4}},
        "environment": {"hardware": "a machine"},
    }


CURVES: dict[tuple[str, str], list[list[float | None]]] = {
    ("queries", AH): [[0.0, 0.4, 0.6, 0.8], [0.0, 0.3, 0.4, 0.7], [0.0, 0.5, 0.6, 0.7]],
    ("queries", LH): [[0.2, 0.5, 0.8, 0.9], [0.2, 0.5, 0.8, 0.9], [0.2, 0.5, 0.8, 0.9]],
    ("slots", AH): [[0.1, 0.2, 0.3, 0.4], [0.0, None, None, None], [0.0, 0.1, 0.2, 0.6]],
}
SMALL = Recorded(
    SHEET,
    [run(*cell, seed, curve) for cell, runs in CURVES.items() for seed, curve in enumerate(runs)],
    [],
)
TIMES = {("pictures", "queries", AH): 0.1, ("pictures", "queries", LH): 0.2}


def test_the_committed_page_is_that_of_the_records() -> None:
    assert pictures.update(pictures.PAGE, RESULTS) == pictures.PAGE.read_text(), "run make docs"


# Slow: a dozen panels are drawn. The page, from the same records, is in the first tier.
@pytest.mark.slow
def test_the_figure_is_that_of_the_records(tmp_path: Path) -> None:
    again, committed = (
        folder / pictures.FIGURE for folder in (tmp_path, pictures.PAGE.parent / "figures")
    )
    pictures.draw(RESULTS, again)
    assert again.exists() == committed.exists()
    if again.exists():
        assert differing_pixels(again, committed) < 0.01, "run make docs"


def test_steps_are_counted_between_evaluations() -> None:
    """Of ten steps an epoch; on the line from 0.4 to 0.6 a half lies in the middle."""
    first, second, third = (run("queries", AH, 0, curve) for curve in CURVES["queries", AH])
    assert pictures.steps_to(first) == pytest.approx(25)
    assert pictures.steps_to(second) == pytest.approx(30 + 10 / 3)
    assert pictures.steps_to(third) == pytest.approx(20)
    assert pictures.steps_to(run("slots", AH, 1, [0.0, None, None, None])) == math.inf


def test_tables() -> None:
    steps = pictures.effort(SMALL)
    assert "|  | AH | LH |\n" in steps
    assert "| queries, 5 outputs | 25 | **20** |\n" in steps
    assert "| slots, 5 outputs | never (1 of 3) |  |\n" in steps
    assert "| queries, 5 outputs | **2.50** | 4.00 |\n" in pictures.effort(SMALL, TIMES)
    one = {("pictures", "queries", LH): 0.2}  # the other was not timed
    assert "| queries, 5 outputs |  | **4.00** |\n" in pictures.effort(SMALL, one)
    assert pictures.effort(SMALL, {("picture-recipes", "detr", LH): 0.2}) == pictures.NOTHING
    end = pictures.end(SMALL)
    assert "| queries, 5 outputs | 0.700 (0.70-0.80) | **0.900** (0.90-0.90) |\n" in end
    assert "| slots, 5 outputs | **0.400** (0.00-0.60) |  |\n" in end
    assert "| AH | queries, 5 outputs | 70.0 | 70.0 |" in pictures.limits(SMALL)


def test_equal_steps_and_equal_time_are_not_the_same() -> None:
    """AH ends after 4 s; LH has done half of its steps by then."""
    text = pictures.best(SMALL, TIMES)
    assert "| queries, 5 outputs | LH 0.90 | AH 0.70 | LH, 20 steps |\n" in text
    assert "| slots, 5 outputs | AH 0.40 |  | none |\n" in text
    low = [run("slots", AH, 0, [0.0, 0.0, 0.01, 0.02])]
    times = {("pictures", "slots", AH): 1.0}
    assert "| none | none | none |\n" in pictures.best(Recorded(SHEET, low, []), times)


def test_times_are_of_one_network(tmp_path: Path) -> None:
    line = {"experiment": "pictures", "scenario": "queries", "loss": AH}
    line |= {"milliseconds": 50.0, "members": 5}
    (tmp_path / "studies").mkdir()
    (tmp_path / pictures.STEPS).write_text(json.dumps(line) + "\n")
    assert pictures.step_times(tmp_path) == {("pictures", "queries", AH): pytest.approx(0.01)}
    found = pictures.step_times(tmp_path, SMALL, None)  # of others 3 s, two networks, 40 steps
    assert found["pictures", "queries", AH] == pytest.approx(0.01)
    assert found["pictures", "queries", LH] == pytest.approx(3 / 2 / 40)
    mixed = Recorded(SHEET, [one | {"ensemble": "all"} for one in SMALL.records], [])
    assert pictures.step_times(tmp_path, mixed).keys() == {("pictures", "queries", AH)}


def test_rates(tmp_path: Path) -> None:
    tried = [("queries", 0.001, [3, 5]), ("queries", 0.002, [2, None]), ("slots", 0.002, [7])]
    lines = [dict(zip(("name", "rate", "losses"), one, strict=True)) for one in tried]
    (tmp_path / "studies").mkdir()
    (tmp_path / pictures.RATES).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert pictures.rates(tmp_path) == (
        "|  | 0.001 | 0.002 |\n| --- | --- | --- |\n"
        "| queries | **4.00** | inf |\n| slots |  | **7.00** |\n"
    )


def test_what_is_recorded_is_said(tmp_path: Path) -> None:
    assert pictures.recorded([SMALL, None]) == (
        "9 runs of 3 cells, of 4; 3 seeds, 40 steps each, in 14 s of networks trained together on "
        "a machine;\n40 pictures to train on, 10 held out.\n"
    )
    fewer = Recorded(SHEET, [r for r in SMALL.records if r["scenario"] == "queries"], [])
    assert "No runs yet: slots, 5 outputs." in pictures.recorded([fewer]).replace("\n", " ")
    assert pictures.NOTHING in pictures.update(pictures.PAGE, tmp_path)
