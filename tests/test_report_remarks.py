"""What is said beside the numbers of a table: settings that are not the paper's, and failures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from setwise.report import document, tables
from setwise.report.failures import failures
from setwise.report.paper import TABLES
from test_report import COMMITTED, make_records, write


def test_what_went_wrong_is_counted() -> None:
    """Over the networks of a cell, the commonest class first; each of them planned for itself."""
    records = COMMITTED["table5"]
    shown = failures(TABLES["table5"], records)
    assert list(shown) == list(TABLES["table5"].scenarios.values())
    for scenario, label in TABLES["table5"].scenarios.items():
        for loss, cell in zip(tables.losses(records), shown[label], strict=True):
            of_cell = [r for r in records if (r["scenario"], r["loss"]) == (scenario, loss)]
            problems = sum(r["metrics"]["problems"] for r in of_cell)
            failed = problems - sum(r["metrics"]["solved"] for r in of_cell)
            assert cell.startswith(f"{failed} of {problems}: ")
            counts = [
                int(number) for number in re.findall(r" (\d+)(?=,|$)", cell.partition(":")[2])
            ]
            assert sum(counts) == failed
            assert counts == sorted(counts, reverse=True)
            assert f"| {cell} |" in document.section("table5", records)
    assert failures(TABLES["table1"], make_records()) == {}


def test_problems_need_a_class_of_failure(tmp_path: Path) -> None:
    (record, *_) = make_records(seeds=[0])
    for problems, said in (
        ([{"failure": 3}], "failure: expected a text or null, got 3"),
        ([{}], "failure: is missing"),
        ({}, "problems: expected a list"),
    ):
        folder = write(tmp_path, [record | {"problems": problems}])
        with pytest.raises(ValueError, match=said):
            tables.read_tables(folder)


def test_recombined_sets_are_told() -> None:
    said = "The networks of the Blocksworld were trained on recombined sets, the paper's were not."
    assert said in tables.remarks(TABLES["table5"], COMMITTED["table5"])
    assert tables.said_of_recombination(make_records(seeds=[0])) == ""


def test_a_temperature_that_is_not_the_papers_is_told() -> None:
    soft = make_records("table4", seeds=[0], scenarios=["n3-2250-random"])
    said = "The temperature of SH falls in training, from 3 to the paper's 1. "
    assert tables.said_of_temperature(soft) == said + "The other losses have none."
    assert said in document.section("table4", soft)
    alone = [record for record in soft if record["loss"] == "SH"]
    assert tables.said_of_temperature(alone) == said.strip()
    plain = make_records("table1", seeds=[0])
    assert tables.said_of_temperature(plain) == ""
    assert "temperature" not in document.section("table1", plain)
