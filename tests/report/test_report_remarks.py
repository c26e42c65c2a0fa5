"""What is said beside the numbers of a table: settings that are not the paper's, and failures."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import mannwhitneyu
from tools import results as document

from recorded import A1H, H1H, SH, SHEETS, committed_results, make_records, recorded, write
from setwise.experiments.records import Record
from setwise.report import tables
from setwise.report.page.cells import table_of_failures
from setwise.report.page.experiment import experiment_section
from setwise.report.remarks import (
    FAILURES,
    failures,
    remarks,
    said_of_recombination,
    said_of_temperature,
)
from setwise.report.tables import Recorded

TABLE1, TABLE4, TABLE5 = SHEETS["table1"], SHEETS["table4"], SHEETS["table5"]
PLANNED = committed_results()["table5"].records


def planned(loss: str, scenario: str, found: list[str | None]) -> Record:
    """A record of planning whose problems ended like this."""
    return {"loss": loss, "scenario": scenario, "problems": [{"failure": one} for one in found]}


def test_failures_are_counted_over_networks_the_commonest_first() -> None:
    bad, none = "illegal step", None
    records = [
        planned(SH, "blocks-3", [none, bad, "collision"]),
        planned(SH, "blocks-3", [bad, none, none]),
        planned(SH, "puzzle-7", [none, none]),
        planned(A1H, "puzzle-7", ["no plan"]),
    ]
    assert failures(TABLE5, records) == {
        "puzzle, 7 random steps": ["none of 2", "1 of 1: no plan 1"],
        "Blocksworld, 3 random steps": ["3 of 6: illegal step 2, collision 1", ""],
    }
    shown = str(table_of_failures(TABLE5, records))
    assert f"Table 5: {FAILURES[0].lower()}{FAILURES[1:]}" in shown
    assert '<td role="cell" data-label="A1H">1 of 1: no plan 1</td>' in shown
    assert failures(TABLE1, make_records()) == {}
    assert table_of_failures(TABLE1, make_records()) == ""


def test_no_failure_of_the_records_is_left_out() -> None:
    records = PLANNED
    text = document.section(committed_results()["table5"])
    for label, cells in failures(TABLE5, records).items():
        assert f"| {label} | {' | '.join(cells)} |" in text
    counted = [int(n) for n in re.findall(r"(\d+) of \d+:", str(failures(TABLE5, records)))]
    metrics = [record["metrics"] for record in records]
    assert sum(counted) == sum(each["problems"] - each["solved"] for each in metrics)


def test_illegal_steps_in_the_blocksworld_are_materials_that_change() -> None:
    """Nearly all of them, and neither loss does better: as docs/planning.md says."""
    steps = [
        problem["faults"]
        for record in PLANNED
        if record["scenario"].startswith("blocks")
        for problem in record["problems"]
        if problem["failure"] == "illegal step"
    ]
    changed = [faults for faults in steps if all("became" in fault for fault in faults)]
    assert len(changed) > 0.95 * len(steps) > 0
    blocks = [r for r in PLANNED if r["scenario"].startswith("blocks")]
    solved = {x: [r["metrics"]["solved"] for r in blocks if r["loss"] == x] for x in (SH, A1H)}
    # Of ten networks in three scenarios each: no more than what chance brings one time in twenty.
    assert mannwhitneyu(*solved.values()).pvalue > 0.05


def test_problems_need_a_class_of_failure(tmp_path: Path) -> None:
    record = PLANNED[0]
    for problems, said in (
        ([{"failure": 3}], "failure: expected a text or null, got 3"),
        ([{}], "failure: is missing"),
        ({}, "problems: expected a list"),
    ):
        folder = write(tmp_path, [record | {"problems": problems}])
        with pytest.raises(ValueError, match=said):
            tables.read_experiments(folder)
    unplanned = record | {"config": {**record["config"], "planning": 3}}
    with pytest.raises(ValueError, match="planning: expected an object, got 3"):
        tables.read_experiments(write(tmp_path, [unplanned]))
    folder = write(tmp_path, [{k: v for k, v in record.items() if k != "problems"}])
    with pytest.raises(ValueError, match="problems: is missing"):
        tables.read_experiments(folder)


def test_recombined_sets_are_told() -> None:
    said = said_of_recombination(TABLE5, PLANNED)
    assert said == "Networks were trained on recombined sets (Blocksworld only)."
    assert said in remarks(TABLE5, PLANNED)
    blocks = [r for r in PLANNED if r["scenario"].startswith("blocks")]
    assert "only" not in said_of_recombination(TABLE5, blocks)
    assert said_of_recombination(TABLE1, make_records(seeds=[0])) == ""


def test_what_an_experiment_has_to_say_itself_comes_last() -> None:
    *_, last = remarks(TABLE5, PLANNED)
    assert last == TABLE5.remark
    assert last.startswith("Recombined sets are not the paper's. ")
    own = replace(SHEETS["table1-quick"], remark="It was a rainy day.")
    quick = make_records("table1-quick", seeds=[0])
    assert remarks(own, quick) == ["It was a rainy day."]
    assert "It was a rainy day." in experiment_section(Recorded(own, quick, [])).body


def test_any_loss_may_have_a_temperature() -> None:
    """Whether it has is said by the sheet, not by the name of the loss."""
    soft = make_records("table4", [0], ["n3-2250-random"], losses=[SH, A1H], temperature=3.0)
    both = dict(TABLE4.losses)
    both[A1H] = replace(both[A1H], tempered=True)
    said = said_of_temperature(replace(TABLE4, losses=both), soft)
    assert said == "The temperature of SH and A1H falls in training, from 3 to 1."
    both[SH] = replace(both[SH], tempered=False)
    said = said_of_temperature(replace(TABLE4, losses=both), soft)
    assert said.startswith("The temperature of A1H falls in training, from 3 to 1. The other")


def test_a_loss_whose_temperature_stays_has_one() -> None:
    """One experiment may train a loss with annealing, and its like without."""
    both = dict(TABLE4.losses)
    both[A1H] = replace(both[A1H], tempered=True)
    soft = make_records("table4", [0], ["n3-2250-random"], losses=[SH], temperature=3.0)
    steady = make_records("table4", [0], ["n3-2250-random"], losses=[A1H, H1H])
    said = said_of_temperature(replace(TABLE4, losses=both), soft + steady)
    falls = "The temperature of SH falls in training, from 3 to 1."
    assert said == f"{falls} That of A1H is 1. The other losses have none."


def test_a_temperature_that_is_not_the_papers_is_told() -> None:
    soft = make_records("table4", [0], ["n3-2250-random"], temperature=3.0)
    said = "The temperature of SH falls in training, from 3 to 1. "
    assert said_of_temperature(TABLE4, soft) == said + "The other losses have none."
    assert said in document.section(recorded(soft))
    alone = [record for record in soft if record["loss"] == SH]
    assert said_of_temperature(TABLE4, alone) == said.strip()
    plain = make_records("table1", seeds=[0])
    assert said_of_temperature(TABLE1, plain) == ""
    assert "temperature" not in document.section(recorded(plain))


def test_without_a_reference_nothing_is_said_of_one() -> None:
    """What is not the paper's is not held against it."""
    quick = make_records("table1-quick", seeds=[0], temperature=2.0)
    for record in quick:
        record["config"]["schedule"]["recombined"] = 0.5
    assert remarks(SHEETS["table1-quick"], quick) == [
        "The temperature of SH falls in training, from 2 to 1. The other losses have none.",
        "Networks were trained on recombined sets.",
    ]
    told = experiment_section(recorded(quick)).body
    assert "Networks were trained on recombined sets." in told
    assert "the paper" not in told


def test_a_temperature_of_some_scenarios_is_not_said_of_all() -> None:
    """The puzzle of Table 5 is planned with networks of Table 1, which have none."""
    said = said_of_temperature(TABLE5, PLANNED)
    assert said.startswith(
        "The temperature of SH falls in training, from 3 to 1 (Blocksworld only)."
    )


def test_a_task_stands_for_its_scenarios_only_if_all_of_them_are_meant() -> None:
    records = make_records("table4", seeds=[0], losses=[SH])
    chosen = "n4-2250-random"
    for record in records:
        record["config"]["schedule"]["loss_temperature"] = (
            3.0 if record["scenario"] == chosen else 1.0
        )
    said = said_of_temperature(TABLE4, records)
    assert "(n = 4, 2250 clauses, random order only)" in said
    for record in records:
        four = record["scenario"].startswith("n4")
        record["config"]["schedule"]["loss_temperature"] = 3.0 if four else 1.0
    assert "(n = 4 only)" in said_of_temperature(TABLE4, records)


def test_a_median_between_two_counts_is_not_rounded() -> None:
    assert [TABLE5.format(value) for value in (8.0, 8.5, 9.5)] == ["8", "8.5", "9.5"]
    assert TABLE1.format(0.125) == "0.12"
