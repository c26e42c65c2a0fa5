"""docs/picture-losses.md is made from the records of studies/detection.py."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tools import pictures

from pictures import differing_pixels
from recorded import RESULTS
from repository import ROOT
from setwise.cli.user_file import run_file
from setwise.experiments import store
from setwise.experiments.experiment import LossStyle, Sheet
from setwise.report.effort import NEAR, said_of_best, steps_to, value_of
from setwise.report.page.effort import effort_of
from setwise.report.step_times import file_of, said_of_times, step_times
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
    level=0.5,
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
@pytest.mark.parametrize("name", pictures.FIGURES)
def test_the_figures_are_those_of_the_records(name: str, tmp_path: Path) -> None:
    again, committed = (
        folder / pictures.FIGURES[name] for folder in (tmp_path, pictures.PAGE.parent / "figures")
    )
    pictures.draw(RESULTS, name, again)
    assert again.exists() == committed.exists()
    if again.exists():
        assert differing_pixels(again, committed) < 0.01, "run make docs"


def test_steps_are_counted_between_evaluations() -> None:
    """Of ten steps an epoch; on the line from 0.4 to 0.6 a half lies in the middle."""
    first, second, third = (run("queries", AH, 0, curve) for curve in CURVES["queries", AH])
    assert steps_to(SMALL, first) == pytest.approx(25)
    assert steps_to(SMALL, second) == pytest.approx(30 + 10 / 3)
    assert steps_to(SMALL, third) == pytest.approx(20)
    assert steps_to(SMALL, run("slots", AH, 1, [0.0, None, None, None])) == math.inf


def test_tables(tmp_path: Path) -> None:
    steps = pictures.steps(SMALL)
    assert "|  | AH | LH |\n" in steps
    assert "| queries, 5 outputs | 25 | **20** |\n" in steps
    assert "| slots, 5 outputs | never (1 of 3) |  |\n" in steps
    assert "| queries, 5 outputs | **2.50** | 4.00 |\n" in pictures.seconds(SMALL, TIMES, tmp_path)
    one = {("pictures", "queries", LH): 0.2}  # the other was not timed
    assert "| queries, 5 outputs |  | **4.00** |\n" in pictures.seconds(SMALL, one, tmp_path)
    none = pictures.seconds(SMALL, {("picture-recipes", "detr", LH): 0.2}, tmp_path)
    assert "not known, for several losses were trained together" in none.replace("\n", " ")
    assert "|" not in none
    end = pictures.end(SMALL)
    assert "| queries, 5 outputs | 0.700 (0.70-0.80) | **0.900** (0.90-0.90) |\n" in end
    assert "| slots, 5 outputs | **0.400** (0.00-0.60) |  |\n" in end
    best, every = (
        [line.split(" | ")[:3] for line in pictures.limits(SMALL, cells(SMALL)).splitlines()[2:]]
        for cells in (pictures._best_cells, pictures._cells)
    )
    ah, lh = (["| AH", "queries, 5 outputs", "70.0"], ["| LH", "queries, 5 outputs", "90.0"])
    assert best == [ah, lh]
    assert every == [ah, lh, ["| AH", "slots, 5 outputs", "40.0"]]


def test_equal_steps_and_equal_time_are_not_the_same() -> None:
    """AH ends after 4 s; LH has done half of its steps by then."""
    text = pictures.best(SMALL, TIMES)
    assert "| queries, 5 outputs | LH 0.90 | AH 0.70 | LH, 20 steps |\n" in text
    assert "| slots, 5 outputs | AH 0.40 |  | none |\n" in text
    low = [run("slots", AH, 0, [0.0, 0.0, 0.01, 0.02])]
    times = {("pictures", "slots", AH): 1.0}
    assert "| none | none | none |\n" in pictures.best(Recorded(SHEET, low, []), times)


def test_how_often_a_loss_is_best() -> None:
    """With a second loss in the second row, which nobody has timed."""
    assert said_of_best(SMALL, TIMES) == ""  # one row has two losses to compare
    more = [run("slots", LH, seed, [0.1, 0.2, 0.3, 0.395]) for seed in range(3)]
    both = Recorded(SHEET, SMALL.records + more, [])
    assert said_of_best(both, TIMES) == (
        "Best, or level with the best. At equal steps, of 2 rows: LH 2; AH 1."
    )


def test_our_losses_stand_beside_the_recipes() -> None:
    """Where each ends best; of recipes with the loss of their authors alone."""
    sheet = Sheet(
        **vars(SHEET)
        | {"name": pictures.RECIPES, "scenarios": {"idspn": "iDSPN, 5 outputs"}}
        | {"losses": {"huber_loss": LossStyle("Huber", "Huber's", "#17becf"), **SHEET.losses}}
    )
    runs = [run("idspn", "huber_loss", 0, [0.0, 0.0, 1.0, 0.8]), run("idspn", LH, 0, [1.0] * 4)]
    text = pictures.beside(SMALL, Recorded(sheet, runs, []), TIMES)
    assert text.splitlines()[2:] == [
        "| LH | queries, 5 outputs | 0.900 | 20 | 4.00 |",
        "| Huber | the recipe of iDSPN, 5 outputs | 0.800 | 25 |  |",
        "| AH | queries, 5 outputs | 0.700 | 25 | 2.50 |",
    ]
    assert pictures.beside(None, None, {}) == pictures.NOTHING


def test_longer_trainings_stand_beside_the_shorter() -> None:
    runs = [
        run("slots", AH, seed, [0.1, 0.2, 0.3, end]) for seed, end in enumerate((0.7, 0.8, 0.95))
    ]
    for one in runs:
        one["history"]["epoch"] = [8, 16, 24, 32]
    more = Recorded(Sheet(**vars(SHEET) | {"name": pictures.LONGER}), runs, [])
    *_, found, _, missing = pictures.longer(more, [SMALL]).splitlines()
    assert found == "| AH | slots, 5 outputs | 320 | 0.800 (0.70-0.95) | 0.400 |"
    assert missing == "No runs yet: queries, 5 outputs."


def test_times_are_of_one_network(tmp_path: Path) -> None:
    line = {"experiment": "pictures", "scenario": "queries", "loss": AH, "members": 5}
    line |= {"milliseconds": 50.0, "environment": {"hardware": "a machine"}}
    path = file_of(tmp_path, "pictures")
    path.parent.mkdir()
    path.write_text(json.dumps(line) + "\n")
    assert step_times(tmp_path, []) == {}
    found = step_times(tmp_path, [SMALL])  # of others 3 s, two networks, 40 steps
    assert found["pictures", "queries", AH] == pytest.approx(0.01)
    assert found["pictures", "queries", LH] == pytest.approx(3 / 2 / 40)
    assert said_of_times(tmp_path, SMALL, found) == (
        "Seconds are those of one network: measured on steps alone, where 5 with the same loss "
        "take them together on a machine; in 2 of 3 cells shares of the time of whole trainings, "
        "evaluations and whatever else the machine did included, which is rough."
    )
    for told in ({"ensemble": "all"}, {"seconds": 0}):  # losses together, and no time at all
        other = Recorded(SHEET, [one | told for one in SMALL.records], [])
        assert step_times(tmp_path, [other]).keys() == {("pictures", "queries", AH)}
    for name, told in (
        ("members", {"members": 0}),
        ("experiment", {"experiment": "others"}),
        ("loss", {"loss": "no_loss"}),
        ("hardware", {"environment": {}}),
    ):
        path.write_text(json.dumps(line | told) + "\n")
        with pytest.raises(ValueError, match=rf"pictures.jsonl, line 1: .*{name}"):
            step_times(tmp_path, [SMALL])


def test_any_experiment_may_have_its_steps_timed(tmp_path: Path) -> None:
    own = Recorded(Sheet(**vars(SHEET) | {"name": "bags"}), SMALL.records, [])
    line = {"experiment": "bags", "scenario": "slots", "loss": AH, "members": 4}
    line |= {"milliseconds": 8.0, "environment": {"hardware": "a machine"}}
    path = file_of(tmp_path, "bags")
    path.parent.mkdir()
    path.write_text(json.dumps(line) + "\n")
    assert step_times(tmp_path, [own])["bags", "slots", AH] == pytest.approx(0.002)
    assert "where 4 with the same loss" in str(effort_of(tmp_path, own))
    assert "where 4 with the same loss" not in str(effort_of(tmp_path, SMALL))


def test_the_report_has_the_same_tables(tmp_path: Path) -> None:
    text = str(effort_of(tmp_path, SMALL))
    assert "A small study: steps to 0.5, average precision" in text
    assert ">25</td>" in text
    assert "<strong>20</strong>" in text
    assert ">LH 0.90</td>" in text
    without = Sheet(**vars(SHEET) | {"level": None})
    assert effort_of(tmp_path, Recorded(without, SMALL.records, [])) == ""


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"config": {"data": {}, "schedule": {"batch": 4}}}, "need a config with data.train"),
        ({"history": {"epoch": [1]}}, "need a history of ap_0.1"),
        ({"history": {"epoch": [0], "heldout": [1]}}, "epochs that rise from 1"),
    ],
)
def test_runs_whose_steps_cannot_be_counted(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        steps_to(SMALL, SMALL.records[0] | changed)


def test_a_metric_of_examples_trained_on_is_looked_at_itself() -> None:
    """What is held out has its place in the records as well."""
    study = Recorded(Sheet(**vars(SHEET) | {"metric": "train"}), [], [])
    one = run("queries", AH, 0, [0.1, 0.2, 0.3, 0.4])
    for numbers, own in ((one["history"], [0.2, 0.4, 0.6, 0.8]), (one["metrics"], 0.8)):
        numbers["train"] = own
    assert steps_to(study, one) == pytest.approx(25)
    assert value_of(study, one) == 0.8


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"level": "0.5"}, "level: expected a positive number"),
        ({"level": 0}, "level: expected a positive number"),
        ({"better": "lower"}, r"level: .* got 0\.5 of what is better lower"),
        ({"better": "best"}, "better: expected one of"),
    ],
)
def test_levels_that_cannot_be(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sheet(**vars(SHEET) | wrong)


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
    assert pictures.recorded([SMALL]) == (
        "9 runs of 3 cells, of 4; 3 seeds, 40 steps each, in 14 s of networks trained together on "
        "a machine;\n40 pictures to train on, 10 held out. No runs yet: slots, 5 outputs (LH).\n"
    )
    fewer = Recorded(SHEET, [r for r in SMALL.records if r["scenario"] == "queries"], [])
    assert "No runs yet: slots, 5 outputs." in pictures.recorded([fewer]).replace("\n", " ")
    more = [run("slots", LH, 0, [0.1, 0.2, 0.3, 0.4])]
    assert "yet" not in pictures.recorded([Recorded(SHEET, SMALL.records + more, [])])
    assert pictures.NOTHING in pictures.update(pictures.PAGE, tmp_path)


def test_what_the_page_says_of_the_study_is_so() -> None:
    study = run_file("experiment", ROOT / "studies" / "detection.py")
    [config] = study.EXPERIMENT.configs([0], ["queries-20"], ["plain_cross_entropy"])
    data, schedule, network = config.data, config.schedule, config.network
    text = " ".join(pictures.PAGE.read_text().split())
    assert f"Sprites on {data.side} x {data.side} pixels" in text
    assert f"so is the width of {network.width}" in text
    assert len(network.convolutions) == 3, "three layers of them"
    assert f"with a scale of {data.scale} for places" in text
    share = f"over {100 * schedule.loss_temperature_until:.0f} %"
    assert f"from {schedule.loss_temperature:g} to 1 {share}" in text
    assert f"from 0 to 1 over {100 * schedule.exclusivity_until:.0f} %" in text
    assert f"How long to an average precision of {study.EXPERIMENT.level}" in text
    assert f"Losses within {NEAR} of the best are named with it" in text
    assert set(study.RECIPES.scenarios) == set(pictures.OWN)
    tried = Counter(one["name"] for one in store.read(RESULTS / pictures.RATES))
    mended = {tried.pop("idspn"), tried.pop("implicit")}
    assert mended == {count + 1 for count in tried.values()}, "one rate more to choose from"
    decoder = study.DECODERS["idspn"](network.width, 10)
    assert f"{decoder.steps} steps of the inner optimisation" in text
    assert f"one vector of {decoder.target.out_features} numbers" in text
    assert decoder.differentiated == 4
    assert "four more of them are differentiated" in text
