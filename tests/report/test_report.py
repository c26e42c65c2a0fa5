"""Records become cells, pictures and a page; the committed page is that of committed records."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pictures import differing_pixels
from repository import ROOT
from setwise import cli
from setwise.experiments.config import LOSSES, config_from
from setwise.experiments.recipes import RECIPES
from setwise.report import document, figures, tables
from setwise.report.labels import apart
from setwise.report.paper import TABLES, heading, paper_table

RESULTS = ROOT / "results"
PAGE = ROOT / "docs" / "results.md"
COMMITTED = tables.read_tables(RESULTS)


def make_records(
    table: str = "table1", preset: str = "paper", seeds: Sequence[int] = (0, 1, 2), **only: Any
) -> list[tables.Record]:
    """As training would write them; seed k is 0.1 k behind the paper, held out 0.05 more."""
    records = []
    for config in RECIPES[table][preset].configs(seeds=seeds, **only):
        paper = TABLES[table].value(config.loss, config.scenario)
        assert paper is not None
        end = max(0.0, paper - 0.1 * config.seed)
        epochs = [config.schedule.epochs // 2, config.schedule.epochs]
        records.append(
            {
                "run": config.identity,
                "table": config.table,
                "scenario": config.scenario,
                "loss": config.loss,
                "seed": config.seed,
                "metrics": {"success": end, "heldout": max(0.0, end - 0.05), "loss": 1.0},
                "history": {"epoch": epochs, "success": [end / 2, end], "heldout": [0.0, end]},
                "config": asdict(config),
                "members": 12,
                "seconds": 6.0,
                "finished": "2026-01-02T10:00:00+00:00",
                "environment": {"commit": "f" * 40, "torch": "2", "hardware": "a machine"},
            }
        )
    return records


def write(folder: Path, records: Sequence[tables.Record]) -> Path:
    folder.mkdir(exist_ok=True)
    for table in {record["table"] for record in records}:
        lines = [json.dumps(record) for record in records if record["table"] == table]
        (folder / f"{table}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_the_paper_has_its_numbers() -> None:
    one, two, three, four, five = TABLES.values()
    assert [one.value("H", s) for s in "1234"] == [1.0, 1.0, 0.0, 0.0]
    assert [two.value("SH", s) for s in "1234"] == [0.60, 0.65, 0.62, 0.62]
    assert (two.value("H", "2"), two.value("A1H", "3")) == (0.85, 0.58)
    assert (three.value("SH", "3"), three.value("H1H", "3"), three.better) == (0.07, 0.16, "lower")
    pairs = "0.96/0.94, 0.72/0.70, 0.38/0.36, 0.87/0.86, 0.17/0.15, 0.65/0.60"
    assert four.values["SH"] == tuple(float(x) for x in pairs.replace("/", ", ").split(", "))
    assert four.value("A1H", "n5-9000-random") == 0.56
    assert four.value("H1H", "n4-2250-fixed") == 0.22
    assert [five.value("SH", f"blocks-{n}") for n in (3, 7, 14)] == [7, 5, 2]
    assert (five.value("A1H", "blocks-14"), five.value("A1H", "puzzle-14")) == (1, 20)
    assert five.value("H", "blocks-7") is None


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_table_of_the_paper_is_whole(table: Any) -> None:
    assert all(len(values) == len(table.scenarios) for values in table.values.values())
    assert set(table.values) <= set(LOSSES)
    assert all([table.caption, table.place, table.title, table.metric_name])


def test_recipes_belong_to_tables_of_the_paper() -> None:
    for name, presets in RECIPES.items():
        for preset, recipe in presets.items():
            assert set(recipe.scenarios) <= set(TABLES[name].scenarios)
            table = recipe.configs(seeds=[0])[0].table
            assert table == (name if preset == "paper" else f"{name}-{preset}")


def test_what_reaches_the_paper() -> None:
    two = TABLES["table2"]
    errors = replace(TABLES["table3"], other_scale="")
    assert two.reaches(0.5951, 0.60)
    assert not two.reaches(0.594, 0.60)
    assert not two.reaches(0.0, 0.0)
    assert not two.reaches(1.0, 0.0)
    assert not two.reaches(1.0, 0.004)
    assert errors.reaches(0.0, 0.0)
    assert errors.reaches(0.074, 0.07)
    assert not errors.reaches(0.076, 0.07)
    assert not two.reaches(1.0, None)


def test_on_another_scale_nothing_reaches_the_paper() -> None:
    """An empty picture would be ahead of all numbers of Table 3."""
    three = TABLES["table3"]
    assert not three.reaches(0.0, 0.07)
    records = [record for record in COMMITTED["table3"] if record["loss"] == "SH"]
    section = document.section("table3", records)
    assert "**" not in section
    assert three.other_scale in " ".join(section.split())


def test_small_errors_have_more_decimals_than_the_paper_prints() -> None:
    three, four = TABLES["table3"], TABLES["table4"]
    assert (three.format_paper(0.1), three.format_ours(0.00798)) == ("0.10", "0.0080")
    assert (four.format_paper(0.1), four.format_ours(0.00798)) == ("0.10", "0.01")


@pytest.mark.parametrize("name", ["table1", "table3"])
def test_four_scenarios_are_printed_side_by_side(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["tables", "--table", name, "--results", str(RESULTS)]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("│ SH "))
    assert line.count("(10)") == 4


def test_a_cell_is_best_median_worst_of_its_runs() -> None:
    found = tables.cells(TABLES["table1"], make_records())
    assert [(c.loss, c.scenario) for c in found] == [(x, s) for x in LOSSES for s in "1234"]
    cell = next(c for c in found if (c.loss, c.scenario) == ("SH", "3"))
    assert list(cell.as_json()) == [
        *("loss", "scenario", "paper", "best", "median", "worst", "runs"),
        *("heldout_best", "heldout_median"),
    ]
    assert cell.as_json() == {
        **{"loss": "SH", "scenario": "3", "paper": 1.0, "runs": 3},
        **{"best": 1.0, "median": 0.9, "worst": 0.8},
        **{"heldout_best": 0.95, "heldout_median": 0.85},
    }


def test_without_a_held_out_set_nothing_is_said_of_it() -> None:
    records = make_records()
    for record in records:
        del record["metrics"]["heldout"]
    assert "heldout_best" not in tables.cells(TABLES["table1"], records)[0].as_json()


def test_the_number_of_table_4_is_the_held_out_one() -> None:
    found = tables.cells(TABLES["table4"], make_records("table4"))
    cell = next(c for c in found if (c.loss, c.scenario) == ("SH", "n2-2250-fixed"))
    assert cell.best == cell.heldout_best == pytest.approx(0.91)
    with pytest.raises(ValueError, match=r"has no rmse among its metrics, success, heldout"):
        tables.cells(TABLES["table3"], make_records())


def test_where_less_is_better_the_best_is_the_least() -> None:
    records = make_records(losses=["SH"], scenarios=["1"])
    for record in records:
        record["metrics"]["rmse"] = 0.08 + 0.01 * record["seed"]
    (cell,) = tables.cells(TABLES["table3"], records)
    assert (cell.best, cell.worst) == (0.08, 0.10)
    assert tables.best_runs(TABLES["table3"], records) == {records[0]["run"]}


def test_the_best_run_of_each_cell() -> None:
    records = make_records(losses=["SH", "H1H"], scenarios=["3"])
    best = tables.best_runs(TABLES["table1"], records[::-1])
    assert [r["run"] in best for r in records] == [True, False, False] * 2


def test_reading_a_folder(tmp_path: Path) -> None:
    records = make_records("table4") + make_records() + make_records(preset="quick")
    write(tmp_path, records)
    (tmp_path / "notes.jsonl").write_text('{"anything": "else"}\n')
    repeated = records[-1] | {"metrics": {"success": -1.0}}
    with (tmp_path / "table1-quick.jsonl").open("a") as file:
        file.write(json.dumps(repeated) + "\n")
    found = tables.read_tables(tmp_path)
    assert list(found) == ["table1", "table1-quick", "table4"]
    quick = [r for r in records if r["table"] == "table1-quick"]
    assert [(r["run"], r["metrics"]) for r in found["table1-quick"]] == [
        (r["run"], r["metrics"]) for r in quick
    ]
    assert tables.read_tables(tmp_path / "nowhere") == {}


def test_runs_of_different_settings_are_not_mixed(tmp_path: Path) -> None:
    records = make_records(losses=["SH"], scenarios=["3"])
    records[1]["config"]["schedule"]["epochs"] = 7
    with pytest.raises(
        ValueError, match=r"SH in scenario 3 differ in schedule.epochs \(1500 and 7"
    ):
        tables.read_tables(write(tmp_path, records))


def test_runs_trained_together_share_their_time() -> None:
    assert tables.seconds(make_records(seeds=[0])[:12]) == pytest.approx(6.0)


def test_headings_tell_other_settings_apart() -> None:
    assert heading("table1") == "Table 1: reconstruction of 8-puzzle states"
    assert "not the paper's setting" in heading("table1-quick")
    with pytest.raises(ValueError, match="it has table1, table2"):
        heading("table9")


@pytest.mark.parametrize(("table", "scenarios"), [("table1", 1), ("table4", 5)])
def test_pictures_render(table: str, scenarios: int, tmp_path: Path) -> None:
    some = list(TABLES[table].scenarios)[-scenarios:]
    records = make_records(table, scenarios=some, losses=["SH", "H1H"])
    document.draw(table, records, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{table}-cells.png",
        f"{table}-curves.png",
    ]
    for path in tmp_path.iterdir():
        with Image.open(path) as picture:
            assert picture.info["Source"] == figures.source(records)
            colours = np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0)
        crimson = np.array([220, 20, 60])
        assert np.abs(colours.astype(int) - crimson).max(axis=1).min() < 20, "SH is not drawn"
        assert path.stat().st_size < 300_000


def test_a_table_that_was_not_measured_while_training_has_no_curves() -> None:
    records = make_records()
    records[0]["history"]["success"] = []
    assert list(document.pictures("table1", records)) == ["table1-cells.png"]


def test_labels_move_apart_and_stay_inside() -> None:
    for heights in ([0.0, 0.0, 0.01, 0.02], [0.9, 0.95, 1.0, 1.0], [0.0, 0.5, 0.55, 1.0]):
        moved = apart(heights, 0.1, 1.0)
        gaps = np.diff(moved)
        assert (gaps > 0.1 - 1e-9).all()
        assert max(moved) <= 1.0
        assert max(abs(np.array(moved) - heights)) <= 0.3 + 1e-9


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A copy of the committed page."""
    copy = tmp_path / "docs" / "results.md"
    copy.parent.mkdir()
    copy.write_text(PAGE.read_text())
    return copy


def test_a_page_is_written_from_records(page: Path, tmp_path: Path) -> None:
    stale = page.parent / "figures" / "table5-cells.png"
    stale.parent.mkdir()
    stale.touch()
    records = [record | {"table": "table1-best"} for record in make_records(scenarios=["3"])]
    results = write(tmp_path / "results", records)
    document.write(page, results)
    text = page.read_text()
    block = text.split("<!-- table1: begin -->")[1].split("<!-- table1: end -->")[0]
    assert document.NOTHING in block
    assert (
        "| (3) input fixed, target random | 0.00: 0.00 / 0.00 / 0.00 (3) | 1.00: **1.00** / 0.90"
        in block
    )
    assert "12 runs in 6 s on a machine, torch 2, commit ffffffffffff." in block
    assert "](figures/table1-best-curves.png)" in block
    assert text.count(document.NOTHING) == 5
    drawn = sorted(path.name for path in stale.parent.iterdir())
    assert drawn == ["table1-best-cells.png", "table1-best-curves.png"]
    document.write(page, results)
    assert page.read_text() == text


def test_what_training_together_saves(page: Path, tmp_path: Path) -> None:
    """Of the same table alone, and added up over its ensembles."""
    results = write(tmp_path / "results", make_records())
    alone = {"plain": 30.0, "compiled": 6.0}
    costs = [
        {"table": table, "networks": networks, "seconds": 60.0, "seconds_alone": alone}
        for table, networks in (("table1", 10), ("table1", 20), ("table2", 500))
    ]
    (results / "cost.jsonl").write_text("".join(json.dumps(cost) + "\n" for cost in costs))
    text = " ".join(document.update(page, results).split())
    assert "30 networks together took 120 s, compiling included." in text
    assert "180 s for one after the other, 1.5 times as long, and 900 s with its steps" in text
    assert "500 networks" not in text


def test_quick_tables_are_not_published(page: Path, tmp_path: Path) -> None:
    """They are of smaller tasks: no page shows them, and the paper's numbers are not theirs."""
    records = make_records(preset="quick", scenarios=["3"])
    document.write(page, write(tmp_path / "results", records))
    assert page.read_text() == document.update(PAGE, tmp_path / "nothing")
    assert {cell.paper for cell in tables.cells(paper_table("table1-quick"), records)} == {None}


def test_a_page_without_a_block_is_refused(page: Path, tmp_path: Path) -> None:
    page.write_text(PAGE.read_text().replace("<!-- table3: begin -->\n", ""))
    with pytest.raises(ValueError, match="has blocks"):
        document.update(page, tmp_path)


def test_another_record_is_noticed(page: Path, tmp_path: Path) -> None:
    records = make_records(seeds=[0])
    before = document.update(page, write(tmp_path / "results", records))
    for change in ({"metrics": {"success": 0.5, "heldout": 0.0}}, {"seconds": 6000.0}):
        others = [records[0] | change, *records[1:]]
        assert document.update(page, write(tmp_path / "results", others)) != before


def test_records_that_lack_a_later_field_go_on(tmp_path: Path) -> None:
    """More seeds can be added to a table that an older version recorded."""
    old, new = make_records(seeds=[0]), make_records(seeds=[1])
    for record in old:
        for name in ("softness", "softness_until"):
            del record["config"]["schedule"][name]
    found = tables.read_tables(write(tmp_path / "results", [*old, *new]))
    assert {cell.runs for cell in tables.cells(TABLES["table1"], found["table1"])} == {2}


@pytest.mark.parametrize(
    "table", [name for name in COMMITTED if paper_table(name).metric != "solved"]
)
def test_committed_records_are_named_after_their_configs(table: str) -> None:
    """Noise is drawn from the name: with another one, a run could not be had again."""
    for record in COMMITTED[table]:
        assert config_from(record["config"]).identity == record["run"]


def test_the_documented_results_are_those_of_the_records() -> None:
    """`make docs` writes them."""
    assert document.update(PAGE, RESULTS) == PAGE.read_text(), "run make docs"
    assert document.stale_pictures(PAGE, RESULTS) == []


@pytest.mark.parametrize("table", COMMITTED)
def test_the_committed_pictures_are_current(table: str, tmp_path: Path) -> None:
    """Drawn from the records, which they name; one is drawn again, by the code as it is."""
    records = COMMITTED[table]
    for picture in document.pictures(table, records):
        with Image.open(PAGE.parent / "figures" / picture) as image:
            assert image.info["Source"] == figures.source(records), "run make docs"
    again = tmp_path / "again.png"
    figures.draw_cells(table, paper_table(table), records, again)
    committed = PAGE.parent / "figures" / f"{table}-cells.png"
    assert math.isclose(differing_pixels(committed, again), 0.0, abs_tol=0.01), "run make docs"
