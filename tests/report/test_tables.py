"""Records become cells: of any experiment, from its sheet and its records alone."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from recorded import (
    A1H,
    H1H,
    PAPER,
    RESULTS,
    SH,
    SHEETS,
    H,
    committed_results,
    make_records,
    without_scale,
    write,
)
from setwise import cli
from setwise.experiments import store
from setwise.experiments.experiment import LossStyle
from setwise.report import tables

Captured = pytest.CaptureFixture[str]
TABLE1, TABLE2, TABLE3, TABLE4, TABLE5 = (SHEETS[name] for name in PAPER)


def test_the_paper_has_its_numbers() -> None:
    assert [TABLE1.published(H, s) for s in "1234"] == [1.0, 1.0, 0.0, 0.0]
    assert [TABLE2.published(SH, s) for s in "1234"] == [0.60, 0.65, 0.62, 0.62]
    assert (TABLE2.published(H, "2"), TABLE2.published(A1H, "3")) == (0.85, 0.58)
    assert (TABLE3.published(SH, "3"), TABLE3.published(H1H, "3")) == (0.07, 0.16)
    assert TABLE3.better == "lower"
    pairs = "0.96/0.94, 0.72/0.70, 0.38/0.36, 0.87/0.86, 0.17/0.15, 0.65/0.60"
    assert [TABLE4.published(SH, s) for s in TABLE4.scenarios] == [
        float(x) for x in pairs.replace("/", ", ").split(", ")
    ]
    assert TABLE4.published(A1H, "n5-9000-random") == 0.56
    assert TABLE4.published(H1H, "n4-2250-fixed") == 0.22
    assert [TABLE5.published(SH, f"blocks-{n}") for n in (3, 7, 14)] == [7, 5, 2]
    assert (TABLE5.published(A1H, "blocks-14"), TABLE5.published(A1H, "puzzle-14")) == (1, 20)
    assert TABLE5.published(H, "blocks-7") is None
    assert SHEETS["table1-quick"].published(SH, "1") is None


@pytest.mark.parametrize("name", PAPER)
def test_every_table_of_the_paper_is_whole(name: str) -> None:
    sheet = SHEETS[name]
    assert sheet.reference is not None
    assert sheet.reference.values.keys() == sheet.losses.keys()
    for numbers in sheet.reference.values.values():
        assert numbers.keys() == sheet.scenarios.keys()
    assert all([sheet.title, sheet.metric_label, sheet.command, sheet.reference.caption])
    assert sheet.reference.source == "the paper"


@pytest.mark.parametrize("better", ["higher", "lower"])
@pytest.mark.parametrize("sick", [[1], [0, 1, 2]], ids=["one", "all"])
def test_a_run_that_has_diverged_is_the_worst_of_its_cell(
    better: Literal["higher", "lower"], sick: list[int], tmp_path: Path, capsys: Captured
) -> None:
    """It has no number, which JSON does not know; the others are shown as ever."""
    sheet = replace(SHEETS["table1-quick"], better=better)
    records = make_records("table1-quick", scenarios=["1"], losses=[SH])
    for seed in sick:
        records[seed]["metrics"] |= {"success": None, "heldout": None}
    folder = write(tmp_path / "results", records, sheet)
    [found] = tables.read_experiments(folder).values()
    [cell] = tables.cells(sheet, found.records)
    assert cell.worst == sheet.worst == (-math.inf if better == "higher" else math.inf)
    assert sheet.format(cell.worst) == "diverged"
    assert tables.best_runs(sheet, records) == {
        "table1-quick-1-set_cross_entropy-0"
        if better == "higher" or len(sick) == 3
        else "table1-quick-1-set_cross_entropy-2"
    }
    results = ["--results", str(folder)]
    assert cli.main(["tables", "--json", *results]) == 0
    [written] = json.loads(capsys.readouterr().out)["table1-quick"]
    assert written["worst"] is None
    assert (written["best"] is None) == (len(sick) == 3)
    assert cli.main(["tables", *results, "--plot", str(tmp_path)]) == 0
    assert "diverged" in capsys.readouterr().out
    assert cli.main(["report", *results, "--output", str(tmp_path / "report.html")]) == 0
    assert "worst diverged" in (tmp_path / "report.html").read_text()


def test_what_reaches_the_paper() -> None:
    errors = without_scale(TABLE3)
    assert TABLE2.reaches(0.5951, 0.60)
    assert not TABLE2.reaches(0.594, 0.60)
    assert not TABLE2.reaches(0.0, 0.0)
    assert not TABLE2.reaches(1.0, 0.0)
    assert not TABLE2.reaches(1.0, 0.004)
    assert errors.reaches(0.0, 0.0)
    assert errors.reaches(0.074, 0.07)
    assert not errors.reaches(0.076, 0.07)
    assert not TABLE2.reaches(1.0, None)


def test_nothing_is_reached_without_a_reference_or_on_another_scale() -> None:
    """An empty picture would be ahead of all numbers of Table 3."""
    assert not TABLE3.reaches(0.0, 0.07)
    assert not SHEETS["table1-quick"].reaches(1.0, 0.5)


def test_small_errors_have_more_decimals_than_were_published() -> None:
    assert TABLE3.reference is not None
    assert (TABLE3.reference.format(0.1), TABLE3.format(0.00798)) == ("0.10", "0.0080")
    assert TABLE4.reference is not None
    assert (TABLE4.reference.format(0.1), TABLE4.format(0.00798)) == ("0.10", "0.01")


@pytest.mark.parametrize("name", ["table1", "table3"])
def test_four_scenarios_are_printed_side_by_side(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["tables", "--experiment", name, "--results", str(RESULTS)]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("│ SH "))
    assert line.count("(10)") == 4


def test_an_experiment_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tables", "--experiment", "table9", "--results", str(RESULTS)]) == 2
    assert "has no table9; it has table1, table2" in capsys.readouterr().err


def test_a_cell_is_best_median_worst_of_its_runs() -> None:
    found = tables.cells(TABLE1, make_records())
    order = [(loss, scenario) for loss in (H, SH, A1H, H1H) for scenario in "1234"]
    assert [(c.loss, c.scenario) for c in found] == order
    cell = next(c for c in found if (c.loss, c.scenario) == (SH, "3"))
    assert list(cell.as_json()) == [
        *("loss", "scenario", "reference", "best", "median", "worst", "runs"),
        *("heldout_best", "heldout_median"),
    ]
    assert cell.as_json() == {
        **{"loss": SH, "scenario": "3", "reference": 1.0, "runs": 3},
        **{"best": 1.0, "median": 0.9, "worst": 0.8},
        **{"heldout_best": 0.95, "heldout_median": 0.85},
    }


def test_without_a_held_out_set_nothing_is_said_of_it() -> None:
    records = make_records()
    for record in records:
        del record["metrics"]["heldout"]
    assert "heldout_best" not in tables.cells(TABLE1, records)[0].as_json()


def test_the_number_of_table_4_is_the_held_out_one() -> None:
    found = tables.cells(TABLE4, make_records("table4"))
    cell = next(c for c in found if (c.loss, c.scenario) == (SH, "n2-2250-fixed"))
    assert cell.best == cell.heldout_best == pytest.approx(0.91)
    with pytest.raises(ValueError, match=r"has no rmse among its metrics, success, heldout"):
        tables.cells(TABLE3, make_records())


def test_where_less_is_better_the_best_is_the_least() -> None:
    records = make_records(losses=[SH], scenarios=["1"])
    for record in records:
        record["metrics"]["rmse"] = 0.08 + 0.01 * record["seed"]
    (cell,) = tables.cells(TABLE3, records)
    assert (cell.best, cell.worst) == (0.08, 0.10)
    assert tables.best_runs(TABLE3, records) == {records[0]["run"]}


def test_the_best_run_of_each_cell() -> None:
    records = make_records(losses=[SH, H1H], scenarios=["3"])
    best = tables.best_runs(TABLE1, records[::-1])
    assert [r["run"] in best for r in records] == [True, False, False] * 2


def test_reading_a_folder(tmp_path: Path) -> None:
    """Experiments with a reference first, then others; files that are neither are left alone."""
    quick = make_records("table1-quick")
    write(tmp_path, make_records("table4") + make_records() + quick, "table3")
    (tmp_path / "notes.jsonl").write_text('{"anything": "else"}\n')
    (tmp_path / "broken.jsonl").write_text("{\n")
    (tmp_path / "notes.json").write_text('{"anything": "else"}')
    (tmp_path / "broken.json").write_text("{")
    repeated = quick[-1] | {"metrics": {"success": -1.0}}
    with (tmp_path / "table1-quick.jsonl").open("a") as file:
        file.write(json.dumps(repeated) + "\n")
    found = tables.read_experiments(tmp_path)
    assert list(found) == ["table1", "table3", "table4", "table1-quick"]
    assert found["table1-quick"].records == quick
    assert found["table3"].records == []
    assert found["table3"].sheet == TABLE3
    assert tables.read_experiments(tmp_path / "nowhere") == {}


def test_records_without_a_sheet_are_told(tmp_path: Path) -> None:
    write(tmp_path, make_records(seeds=[0]))
    (tmp_path / "table1.json").unlink()
    with pytest.raises(ValueError, match=r"table1.jsonl: has records of runs, but their sheet"):
        tables.read_experiments(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"better": "more"}, "better: expected one of higher, lower, got 'more'"),
        ({"decimals": "two"}, "decimals: expected a whole number, got two"),
        ({"metric": None}, "metric: expected a text, got None"),
        ({"name": "table9"}, "name: expected table1, as the file is named, got table9"),
        ({"scenarios": {"1": 1}}, "1: expected a text, got 1"),
        ({"losses": {SH: {"symbol": "SH", "label": "", "colour": "red"}}}, "colour: expected one"),
        ({"losses": {SH: {"symbol": "SH"}}}, "not the sheet of an experiment"),
        ({"reference": {"source": "a", "values": {SH: {"1": "x"}}}}, "1: expected a number, got x"),
        ({"surprise": 3}, "surprise"),
    ],
)
def test_a_sheet_that_is_none(changes: dict[str, object], said: str, tmp_path: Path) -> None:
    write(tmp_path, [], "table1")
    path = tmp_path / "table1.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ValueError, match=r"table1.json: not the sheet of an experiment") as error:
        tables.read_experiments(tmp_path)
    assert said in str(error.value)


def test_symbols_of_a_sheet_differ() -> None:
    style = LossStyle("SH", "one", "#000000")
    with pytest.raises(ValueError, match="symbols must differ, got SH, SH"):
        replace(TABLE1, losses={"one": style, "two": replace(style, label="two")})


def test_runs_of_different_settings_are_not_mixed(tmp_path: Path) -> None:
    records = make_records(losses=[SH], scenarios=["3"])
    records[1]["config"]["schedule"]["epochs"] = 7
    with pytest.raises(
        ValueError, match=r"set_cross_entropy in scenario 3 differ in schedule.epochs \(1500 and 7"
    ):
        tables.read_experiments(write(tmp_path, records))


def test_fields_that_came_later_stand_for_their_defaults(tmp_path: Path) -> None:
    """More seeds can be added to what was recorded before a field of a config was."""
    records = make_records(losses=[SH], scenarios=["3"], seeds=[0, 1])
    records[1]["config"]["schedule"] |= {"blur": 1.0, "warmup": 0.0}
    records[1]["config"]["network"] |= {"surplus": 0}
    assert len(tables.read_experiments(write(tmp_path / "same", records))["table1"].records) == 2
    records[1]["config"]["schedule"]["warmup"] = 0.5
    with pytest.raises(ValueError, match=r"differ in schedule.warmup \(0.0 and 0.5\)"):
        tables.read_experiments(write(tmp_path / "other", records))


def test_runs_trained_together_share_their_time() -> None:
    assert tables.seconds(make_records(seeds=[0])[:12]) == pytest.approx(6.0)


def test_records_of_the_first_release_go_on(tmp_path: Path) -> None:
    """More seeds can be added to what an older version recorded under other names."""
    old, new = make_records(seeds=[0]), make_records(seeds=[1])
    added = {"loss_temperature_until": 0.6, "recombined": 0.0, "donors": 32}
    for record in new:
        record["config"]["schedule"] |= added
        record["config"]["network"]["start_at_prototypes"] = False
    symbols = {H: "H", SH: "SH", A1H: "A1H", H1H: "H1H"}
    folder = write(tmp_path / "results", new)
    for record in old:
        del record["schema"]
        for part in (record, record["config"]):
            part["table"] = part.pop("experiment")
            part["loss"] = symbols[part["loss"]]
        record["config"]["schedule"] = {"epochs": 1500}
    store.append(folder / "table1.jsonl", old)
    found = tables.read_experiments(folder)["table1"]
    assert {cell.runs for cell in tables.cells(TABLE1, found.records)} == {2}


@pytest.mark.parametrize("name", committed_results())
def test_committed_records_are_of_cells_of_their_sheets(name: str) -> None:
    """And no run is recorded twice, under another name."""
    sheet, records = committed_results()[name].sheet, committed_results()[name].records
    assert {record["scenario"] for record in records} <= sheet.scenarios.keys()
    places = {(record["loss"], record["scenario"], record["seed"]) for record in records}
    assert len(places) == len(records) > 0
