"""``setwise tables``: what the recorded runs came to, beside the paper."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from setwise.cli.errors import CommandError
from setwise.report import document, tables
from setwise.report.paper import TABLES, PaperTable, heading, paper_table

if TYPE_CHECKING:
    from rich.console import Console

# Characters of a column: the widest cell and the space around it.
COLUMN = 30
# Numbers of ours in a cell; each grows by a character with a further decimal.
NUMBERS = 3


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "tables",
        help="the tables of the paper, from recorded runs",
        description="Prints what the recorded runs of each table came to, beside the paper.",
    )
    parser.add_argument("--json", action="store_true", help="cells as JSON, by table")
    parser.add_argument("--table", help="this one alone, for instance table1 or table1-quick")
    parser.add_argument("--plot", type=Path, metavar="DIR", help="draw pictures into this folder")
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="folder of records; default: results"
    )
    parser.set_defaults(run=_run, extra="report")


def _run(options: argparse.Namespace) -> int:
    try:
        if options.table:
            paper_table(options.table)
        found = tables.read_tables(options.results)
    except ValueError as error:
        raise CommandError(str(error)) from error
    chosen = {name: found[name] for name in found if options.table in (None, name)}
    if options.plot:
        for name, records in chosen.items():
            document.draw(name, records, options.plot)
    if options.json:
        cells = {name: as_json(name, records) for name, records in chosen.items()}
        print(json.dumps(cells, indent=1))
        return 0
    if not chosen:
        what = options.table or "any table"
        known = f"; there are runs of {', '.join(found)}" if found else ""
        print(
            f"no runs of {what} are recorded in {options.results}{known}. "
            f"Some take two minutes: setwise reproduce table1 --preset quick",
            file=sys.stderr,
        )
        return 1
    console = tables_console()
    for name, records in chosen.items():
        show(console, name, records)
    return 0


def tables_console() -> Console:
    """As wide as the terminal; elsewhere wide enough for four scenarios."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console()
    return Console(width=8 + 4 * max(map(_column, TABLES.values())))


def as_json(name: str, records: Sequence[tables.Record]) -> list[dict[str, object]]:
    """The cells of a table."""
    return [cell.as_json() for cell in tables.cells(paper_table(name), records)]


def show(console: Console, name: str, records: Sequence[tables.Record]) -> None:
    """Print a table: losses as rows, scenarios as columns, as many of them as fit side by side."""
    from rich.table import Table

    paper = paper_table(name)
    cells = {(cell.loss, cell.scenario): cell for cell in tables.cells(paper, records)}
    scenarios = tables.scenarios(paper, records)
    at_once = max(1, (console.width - 8) // _column(paper))
    for start in range(0, len(scenarios), at_once):
        columns = scenarios[start : start + at_once]
        table = Table(title=heading(name) if start == 0 else None, show_lines=True)
        table.add_column("")
        for scenario in columns:
            table.add_column(_heading(paper, scenario), no_wrap=True)
        for loss in tables.losses(records):
            row = [
                _text(paper, loss, scenario, cells.get((loss, scenario))) for scenario in columns
            ]
            table.add_row(loss, *row)
        console.print(table)
    console.print(_legend(paper, cells.values()), style="dim", highlight=False)
    for said in tables.remarks(paper, records):
        console.print(said, style="dim", highlight=False)


def _column(paper: PaperTable) -> int:
    return COLUMN + NUMBERS * paper.extra_decimals


def _heading(paper: PaperTable, scenario: str) -> str:
    """The name to give to ``--scenarios``, and what it means."""
    said = paper.label(scenario)
    named = said if scenario in said else f"{scenario}, {said}"
    return named.replace(", ", "\n")


def _text(paper: PaperTable, loss: str, scenario: str, cell: tables.Cell | None) -> str:
    published = paper.value(loss, scenario)
    before = "-" if published is None else paper.format_paper(published)
    if cell is None:
        return f"{before} | no runs"
    ours = [paper.format_ours(value) for value in (cell.best, cell.median, cell.worst)]
    if paper.reaches(cell.best, published):
        ours[0] = f"[bold]{ours[0]}[/bold]"
    text = f"{before} | {' '.join(ours)} ({cell.runs})"
    if _has_other_heldout(paper, cell):
        assert cell.heldout_best is not None
        assert cell.heldout_median is not None
        best, middle = paper.format_ours(cell.heldout_best), paper.format_ours(cell.heldout_median)
        text += f"\n{'':{len(before)}} | {best} {middle} held out"
    return text


def _legend(paper: PaperTable, cells: Collection[tables.Cell]) -> str:
    heldout = any(_has_other_heldout(paper, cell) for cell in cells)
    second = "; below: best and median of what was held out" if heldout else ""
    bold = f"not behind the paper at its {paper.decimals} decimals, unless that is a rate of 0"
    said = "" if paper.other_scale else f" Bold: {bold}."
    return f"paper | best median worst (runs): {paper.metric_name}{second}.{said}"


def _has_other_heldout(paper: PaperTable, cell: tables.Cell) -> bool:
    """Whether there is a held-out set and the table's number is not already about it."""
    return cell.heldout_best is not None and paper.metric != tables.HELDOUT
