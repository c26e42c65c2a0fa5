"""The paper's tables beside ours: in random order, every size of Table 4, longest plans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from setwise.experiments.experiment import Sheet
from setwise.experiments.records import Record
from setwise.report import tables
from setwise.report.remarks import remarks
from setwise.report.tables import Cell, Recorded
from tools.markdown import markdown, with_blocks

BLOCK = "headline"
RUNS = 10  # that a cell should have, as many as the paper has where it tells
# What is shown of each table of the paper, where it is recorded, by how its scenarios end.
ROWS = {
    **{"table1": ["4"], "table2": ["4"], "table3": ["4"], "table4": ["-random"]},
    "table5": ["puzzle-14", "blocks-14"],
}


def update(page: Path, results: Path) -> str:
    """The text of the page with its block made anew from a folder of records."""
    return with_blocks(page.read_text(), page.name, {BLOCK: headline(results)})


def headline(results: Path) -> str:
    """A table in Markdown, and which tables of the paper have cells with fewer runs."""
    experiments = tables.read_experiments(results)
    found = {name: experiments[name] for name in ROWS if name in experiments}
    losses = {loss: style for one in found.values() for loss, style in one.sheet.losses.items()}
    lines = [row for one in found.values() for row in _rows(one, list(losses))]
    symbols = [style.symbol for style in losses.values()]
    parts = ["".join(f"{line}\n" for line in markdown(["", *symbols], lines))]
    said: dict[str, list[str]] = defaultdict(list)
    for name, one in found.items():
        for remark in remarks(one.sheet, one.records) if one.records else ():
            said[remark].append(_number(name))
    for remark, of in said.items():
        parts.append(f"Table{'s' if len(of) > 1 else ''} {', '.join(of)}: {remark}\n")
    missing = [_number(name) for name in ROWS if name not in found or not _is_whole(found[name])]
    if missing:
        parts.append(f"Tables that are not or not wholly recorded yet: {', '.join(missing)}.\n")
    return "\n".join(parts)


def _number(name: str) -> str:
    return name.removeprefix("table")


def _rows(one: Recorded, losses: Sequence[str]) -> list[list[str]]:
    """A line for each scenario that is shown and recorded."""
    sheet, cells = one.sheet, tables.cells(one.sheet, one.records)
    rows = []
    for scenario in sheet.scenarios:
        of_it = {cell.loss: cell for cell in cells if cell.scenario == scenario}
        if of_it and scenario.endswith(tuple(ROWS[sheet.name])):
            texts = [_text(sheet, of_it.get(loss)) for loss in losses]
            rows.append([_label(sheet, scenario), *texts])
    return rows


def _is_whole(one: Recorded) -> bool:
    """Whether every cell of the paper has enough runs; there may be others."""
    assert one.sheet.reference is not None
    runs: dict[tuple[str, str], int] = defaultdict(int)
    for record in one.records:
        runs[_place(record)] += 1
    wanted = one.sheet.reference.values.items()
    return all(runs[loss, scenario] >= RUNS for loss, row in wanted for scenario in row)


def _place(record: Record) -> tuple[str, str]:
    return record["loss"], record["scenario"]


def _label(sheet: Sheet, scenario: str) -> str:
    """What is measured; the scenario is said where a table has several sizes of its task."""
    return sheet.title if ROWS[sheet.name] == ["4"] else f"{sheet.title} ({sheet.label(scenario)})"


def _text(sheet: Sheet, cell: Cell | None) -> str:
    if cell is None:
        return ""
    assert sheet.reference is not None
    best, middle = sheet.format(cell.best), sheet.format(cell.median)
    if sheet.reaches(cell.best, cell.reference):
        best = f"**{best}**"
    before = "" if cell.reference is None else f"{sheet.reference.format(cell.reference)}: "
    fewer = f" ({cell.runs} of {RUNS} runs)" if cell.runs < RUNS else ""
    return f"{before}{best} / {middle}{fewer}"
