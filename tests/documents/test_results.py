"""docs/results.md and its pictures are made from records, those of the repository from its own."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from tools import results as document
from tools.markdown import with_blocks

from pictures import differing_pixels
from recorded import RESULTS, SH, SHEETS, committed_results, make_records, recorded, write
from repository import ROOT
from setwise.report import figures, tables

PAGE = ROOT / "docs" / "results.md"
PUBLISHED = tuple(name for name, one in committed_results().items() if one.sheet.reference)


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
    records = make_records("table4-best", scenarios=["n2-2250-fixed"])
    results = write(tmp_path / "results", records, *PUBLISHED)
    document.write(page, results)
    text = page.read_text()
    block = text.split("<!-- table4-best: begin -->")[1].split("<!-- table4-best: end -->")[0]
    assert "| n = 2, 2250 clauses, fixed order | 0.96: 0.91 / 0.81 / 0.71 (3) |" in block
    assert "3 runs in 2 s on a machine, torch 2, commit ffffffffffff." in block
    assert "](figures/table4-best-curves.png)" in block
    assert text.count(document.NOTHING) == len(PUBLISHED) - 1
    drawn = sorted(path.name for path in stale.parent.iterdir())
    assert drawn == ["table4-best-cells.png", "table4-best-curves.png"]
    document.write(page, results)
    assert page.read_text() == text


def test_what_is_not_behind_the_paper_is_bold() -> None:
    text = document.section(recorded(make_records(scenarios=["3"])))
    told = "| (3) input fixed, target random | 0.00: 0.00 / 0.00 / 0.00 (3) | 1.00: **1.00** / 0.90"
    assert told in text


def test_on_another_scale_nothing_is_bold() -> None:
    """An empty picture would be ahead of all numbers of Table 3."""
    three = committed_results()["table3"]
    records = [record for record in three.records if record["loss"] == SH]
    section = document.section(replace(three, records=records))
    assert "**" not in section
    assert three.sheet.reference is not None
    assert three.sheet.reference.other_scale in " ".join(section.split())


def test_what_training_together_saves(page: Path, tmp_path: Path) -> None:
    """Of the same table alone, and added up over its ensembles."""
    results = write(tmp_path / "results", make_records(), *PUBLISHED)
    alone = {"plain": 30.0, "compiled": 6.0}
    costs = [
        {"experiment": name, "networks": networks, "seconds": 60.0, "seconds_alone": alone}
        for name, networks in (("table1", 10), ("table1", 20), ("table9", 500))
    ]
    (results / "cost.jsonl").write_text("".join(json.dumps(cost) + "\n" for cost in costs))
    text = " ".join(document.update(page, results).split())
    assert "30 networks together took 120 s, compiling included." in text
    assert "180 s for one after the other, 1.5 times as long, and 900 s with its steps" in text
    assert "500 networks" not in text


def test_what_has_no_reference_is_not_published(page: Path, tmp_path: Path) -> None:
    """Quick experiments are of smaller tasks: no page shows them, no numbers are theirs."""
    records = make_records("table1-quick", scenarios=["3"])
    document.write(page, write(tmp_path / "results", records, *PUBLISHED))
    assert page.read_text() == document.update(PAGE, write(tmp_path / "nothing", [], *PUBLISHED))
    quick = SHEETS["table1-quick"]
    assert {cell.reference for cell in tables.cells(quick, records)} == {None}


def test_a_page_without_a_block_is_refused(page: Path) -> None:
    page.write_text(PAGE.read_text().replace("<!-- table3: begin -->\n", ""))
    with pytest.raises(ValueError, match="has blocks"):
        document.update(page, RESULTS)


def test_a_block_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match=r"page\.md: expected one marker <!-- x: end -->"):
        with_blocks("<!-- x: begin -->\n", "page.md", {"x": ""})


def test_another_record_is_noticed(page: Path, tmp_path: Path) -> None:
    records = make_records(seeds=[0])
    before = document.update(page, write(tmp_path / "results", records, *PUBLISHED))
    for change in ({"metrics": {"success": 0.5, "heldout": 0.0}}, {"seconds": 6000.0}):
        others = [records[0] | change, *records[1:]]
        assert document.update(page, write(tmp_path / "results", others)) != before


def test_the_documented_results_are_those_of_the_records() -> None:
    """`make docs` writes them."""
    assert document.update(PAGE, RESULTS) == PAGE.read_text(), "run make docs"
    assert document.stale_pictures(PAGE, RESULTS) == []


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_committed_pictures_name_the_records(name: str) -> None:
    sheet, records = committed_results()[name].sheet, committed_results()[name].records
    for picture in figures.pictures(sheet, records):
        with Image.open(PAGE.parent / "figures" / picture) as image:
            assert image.info["Source"] == figures.source(records), "run make docs"


@pytest.mark.parametrize(
    "name", [PUBLISHED[0], *(pytest.param(name, marks=pytest.mark.slow) for name in PUBLISHED[1:])]
)
def test_the_committed_pictures_are_current(name: str, tmp_path: Path) -> None:
    """One of each is drawn again, by the code as it is."""
    sheet, records = committed_results()[name].sheet, committed_results()[name].records
    again = tmp_path / "again.png"
    figures.draw_cells(sheet, records, again)
    ours = PAGE.parent / "figures" / f"{name}-cells.png"
    assert math.isclose(differing_pixels(ours, again), 0.0, abs_tol=0.01), "run make docs"


def test_commands_of_committed_plans_name_no_folder_of_one_machine() -> None:
    commands = [
        json.loads(path.read_text())["command"] for path in RESULTS.glob("plans/*/plan.json")
    ]
    words = [word for command in commands for word in shlex.split(command)]
    assert words
    assert not [word for word in words if Path(word.rpartition("=")[2]).is_absolute()]


def test_the_package_writes_no_documents() -> None:
    """What only this repository needs does not ship: blocks between markers are for tools."""
    writers = [p for p in (ROOT / "src").rglob("*.py") if ": begin -->" in p.read_text()]
    assert writers == []
