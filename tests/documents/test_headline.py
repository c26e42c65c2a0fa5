"""The numbers beside the paper's are those of the records, none left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import headline

from recorded import RESULTS, SH, H, make_records, write
from repository import ROOT

PAGE = ROOT / "docs" / "reproduction.md"


def test_its_numbers_are_those_of_the_records() -> None:
    """`make docs` writes them."""
    assert headline.update(PAGE, RESULTS) == PAGE.read_text(), "run make docs"


def test_a_number_that_was_edited_is_noticed(tmp_path: Path) -> None:
    text = PAGE.read_text()
    copy = tmp_path / "page.md"
    copy.write_text(re.sub(r"0\.62: \*\*\d\.\d\d", "0.62: **0.12", text))
    assert copy.read_text() != text
    assert headline.update(copy, RESULTS) == text


def test_a_row_says_the_paper_then_ours(tmp_path: Path) -> None:
    some = {"scenarios": ["n5-9000-random"], "losses": [SH]}
    ten = make_records(scenarios=["4"], seeds=range(10))
    write(tmp_path, [*ten, *make_records("table4", temperature=1.0, **some)])
    lines = headline.headline(tmp_path).splitlines()
    assert lines[2] == (
        "| Table 1: reconstruction of 8-puzzle states | 0.00: 0.00 / 0.00 | "
        "1.00: **1.00** / 0.55 | 1.00: **1.00** / 0.55 | 0.00: 0.00 / 0.00 |"
    )
    assert lines[3].startswith("| Table 4: bodies of Horn clauses from their heads (n = 5, 9000")
    assert lines[3].endswith("|  | 0.60: 0.55 / 0.45 (3 of 10 runs) |  |  |")
    assert lines[-1] == "Tables that are not or not wholly recorded yet: 1, 2, 3, 4, 5."


def test_a_page_without_markers_is_refused(tmp_path: Path) -> None:
    copy = tmp_path / "page.md"
    copy.write_text("# setwise\n")
    with pytest.raises(ValueError, match=r"page.md: has blocks \[\], not"):
        headline.update(copy, RESULTS)


def test_no_size_of_table_4_is_chosen(tmp_path: Path) -> None:
    """All in random order that have runs are there, in the order of the paper."""
    write(tmp_path, make_records("table4", seeds=[0]))
    rows = [line for line in headline.headline(tmp_path).splitlines() if "| Table 4" in line]
    assert [re.findall(r"\((.*), random order\)", row) for row in rows] == [
        [f"n = {n}, {clauses} clauses"]
        for n, clauses in ((2, 2250), (3, 2250), (4, 2250), (4, 9000), (5, 2250), (5, 9000))
    ]


def test_nothing_is_bold_where_the_paper_fails(tmp_path: Path) -> None:
    records = make_records(seeds=range(10), scenarios=["4"], losses=[H, SH])
    for record in records:
        record["metrics"]["success"] = 1.0
    text = headline.headline(write(tmp_path, records))
    assert "| 0.00: 1.00 / 1.00 | 1.00: **1.00** / 1.00 |" in text


def test_a_table_is_whole_if_every_cell_of_the_paper_has_its_runs(tmp_path: Path) -> None:
    """One loss alone or fewer seeds are not enough, and a scenario of our own does no harm."""
    records = make_records(seeds=range(10))
    extra = records[0] | {"run": "extra", "scenario": "5"}
    extra["config"] = extra["config"] | {"scenario": "5"}
    for some, missing in (
        (records, "2, 3, 4, 5"),
        ([*records, extra], "2, 3, 4, 5"),
        ([r for r in records if r["loss"] == SH], "1, 2, 3, 4, 5"),
        ([r for r in records if r["loss"] == SH or r["seed"]], "1, 2, 3, 4, 5"),
    ):
        text = headline.headline(write(tmp_path, some))
        assert text.endswith(f"not wholly recorded yet: {missing}.\n")
