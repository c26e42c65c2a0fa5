"""The few numbers of the README: elements in random order, every size of Table 4, longest plans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from setwise.report import tables
from setwise.report.document import with_block
from setwise.report.paper import TABLES, PaperTable
from setwise.report.tables import Cell, Record

BLOCK = "headline"
RUNS = 10  # that a cell should have, as many as the paper has where it tells
# Tables and scenarios, in the order of the paper; those that are recorded are shown.
ROWS = (
    *((table, "4") for table in ("table1", "table2", "table3")),
    *(("table4", name) for name in TABLES["table4"].scenarios if name.endswith("-random")),
    *(("table5", scenario) for scenario in ("puzzle-14", "blocks-14")),
)


def update(readme: Path, results: Path) -> str:
    """The text of the README with its block made anew from a folder of records."""
    return with_block(readme.read_text(), readme.name, BLOCK, headline(results))


def headline(results: Path) -> str:
    """A table in Markdown, and which tables of the paper have cells with fewer runs."""
    found = tables.read_tables(results)
    losses = list(TABLES["table1"].values)
    lines = [["", *losses], ["---"] * (len(losses) + 1)]
    for name, scenario in ROWS:
        paper, records = TABLES[name], found.get(name, ())
        if any(record["scenario"] == scenario for record in records):
            cells = _cells(paper, records, scenario)
            lines.append([_label(paper, scenario), *(_text(paper, cells.get(x)) for x in losses)])
    missing = [
        str(paper.number)
        for name, paper in TABLES.items()
        if not _is_whole(paper, found.get(name, ()))
    ]
    parts = ["".join(f"| {' | '.join(line)} |\n" for line in lines)]
    remarks: dict[str, list[str]] = defaultdict(list)
    for name, paper in TABLES.items():
        for remark in tables.remarks(paper, found[name]) if name in found else ():
            remarks[remark].append(str(paper.number))
    for remark, of in remarks.items():
        parts.append(f"Table{'s' if len(of) > 1 else ''} {', '.join(of)}: {remark}\n")
    if missing:
        parts.append(f"Tables that are not or not wholly recorded yet: {', '.join(missing)}.\n")
    return "\n".join(parts)


def _cells(paper: PaperTable, records: Sequence[Record], scenario: str) -> dict[str, Cell]:
    return {c.loss: c for c in tables.cells(paper, records) if c.scenario == scenario}


def _is_whole(paper: PaperTable, records: Sequence[Record]) -> bool:
    """Whether every cell of the paper has enough runs; there may be others."""
    runs = {(cell.loss, cell.scenario): cell.runs for cell in tables.cells(paper, records)}
    wanted = [(loss, scenario) for loss in paper.values for scenario in paper.scenarios]
    return all(runs.get(cell, 0) >= RUNS for cell in wanted)


def _label(paper: PaperTable, scenario: str) -> str:
    """What is measured; the scenario is said where a table has several sizes of its task."""
    many = set(TABLES["table1"].scenarios) != set(paper.scenarios)
    size = f" ({paper.label(scenario)})" if many else ""
    return f"Table {paper.number}: {paper.title}{size}"


def _text(paper: PaperTable, cell: Cell | None) -> str:
    if cell is None:
        return ""
    best, middle = paper.format_ours(cell.best), paper.format_ours(cell.median)
    if paper.reaches(cell.best, cell.paper):
        best = f"**{best}**"
    before = "" if cell.paper is None else f"{paper.format_paper(cell.paper)}: "
    fewer = f" ({cell.runs} of {RUNS} runs)" if cell.runs < RUNS else ""
    return f"{before}{best} / {middle}{fewer}"
