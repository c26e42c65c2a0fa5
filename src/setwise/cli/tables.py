"""``setwise tables``: what the recorded runs of experiments came to."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from setwise.cli.errors import CommandError
from setwise.experiments.experiment import Sheet
from setwise.experiments.records import Record
from setwise.report import figures, tables
from setwise.report.records import HELDOUT
from setwise.report.remarks import remarks

if TYPE_CHECKING:
    from rich.console import Console

# Where records are looked for, if nobody says where.
DEFAULT = [Path("results"), Path("runs/records")]
# Characters of a column: the widest cell of numbers with two decimals, and the space around it.
COLUMN = 30
# Numbers of ours in a cell; each grows by a character with a further decimal.
NUMBERS, FURTHER = 3, 2


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "tables",
        help="print the result tables of recorded runs",
        description="Prints the results of the recorded runs of each experiment, beside the "
        "published numbers if there are any.",
    )
    parser.add_argument("--json", action="store_true", help="cells as JSON, by experiment")
    parser.add_argument("--experiment", metavar="NAME", help="only this one, for instance table1")
    parser.add_argument("--plot", type=Path, metavar="DIR", help="draw pictures into this folder")
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        help="folder of records; default: results, and those of quick presets in runs/records",
    )
    parser.set_defaults(run=_run, extra="report")


def _run(options: argparse.Namespace) -> int:
    folders = [options.results] if options.results else DEFAULT
    try:
        found = tables.read_all(folders)
    except ValueError as error:
        raise CommandError(str(error)) from error
    if options.experiment and found and options.experiment not in found:
        raise CommandError(
            f"--experiment: {folders[0]} has no {options.experiment}; it has {', '.join(found)}"
        )
    chosen = {
        name: one
        for name, one in found.items()
        if one.records and options.experiment in (None, name)
    }
    if options.plot:
        for one in chosen.values():
            figures.draw(one.sheet, one.records, options.plot)
    if options.json:
        cells = {name: as_json(one.sheet, one.records) for name, one in chosen.items()}
        print(json.dumps(cells, indent=1))
        return 0
    if not chosen:
        what = options.experiment or "any experiment"
        print(
            f"no runs of {what} are recorded in {folders[0]}. "
            f"Some take two minutes: setwise reproduce table1 --preset quick",
            file=sys.stderr,
        )
        return 1
    console = tables_console()
    for one in chosen.values():
        show(console, one)
    return 0


def tables_console() -> Console:
    """As wide as the terminal; elsewhere wide enough for four scenarios with four decimals."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 8 + 4 * (COLUMN + NUMBERS * FURTHER))


def as_json(sheet: Sheet, records: Sequence[Record]) -> list[dict[str, object]]:
    """The cells of an experiment."""
    return [cell.as_json() for cell in tables.cells(sheet, records)]


def show(console: Console, recorded: tables.Recorded) -> None:
    """Print the table of an experiment: losses as rows, scenarios as columns.

    There are as many columns side by side as fit.
    """
    from rich.markup import escape
    from rich.table import Table

    sheet, records = recorded.sheet, recorded.records
    cells = {(cell.loss, cell.scenario): cell for cell in tables.cells(sheet, records)}
    scenarios = tables.scenarios(sheet, records)
    column = COLUMN + NUMBERS * max(0, sheet.decimals - 2)
    at_once = max(1, (console.width - 8) // column)
    for start in range(0, len(scenarios), at_once):
        columns = scenarios[start : start + at_once]
        table = Table(title=escape(sheet.title) if start == 0 else None, show_lines=True)
        table.add_column("")
        for scenario in columns:
            table.add_column(escape(_heading(sheet, scenario)), no_wrap=True)
        for loss in tables.losses(sheet, records):
            row = [
                _text(sheet, loss, scenario, cells.get((loss, scenario))) for scenario in columns
            ]
            table.add_row(escape(sheet.losses[loss].symbol), *row)
        console.print(table)
    for said in (_legend(sheet, cells.values()), *remarks(sheet, records)):
        console.print(said, style="dim", highlight=False, markup=False)


def _heading(sheet: Sheet, scenario: str) -> str:
    """The name to give to ``--scenarios``, and what it means."""
    said = sheet.label(scenario)
    named = said if scenario in said else f"{scenario}, {said}"
    return named.replace(", ", "\n")


def _text(sheet: Sheet, loss: str, scenario: str, cell: tables.Cell | None) -> str:
    before = ""
    if sheet.reference is not None:
        published = sheet.published(loss, scenario)
        before = "- | " if published is None else f"{sheet.reference.format(published)} | "
    if cell is None:
        return f"{before}no runs"
    ours = [sheet.format(value) for value in (cell.best, cell.median, cell.worst)]
    if sheet.reaches(cell.best, cell.reference):
        ours[0] = f"[bold]{ours[0]}[/bold]"
    text = f"{before}{' '.join(ours)} ({cell.runs})"
    if _has_other_heldout(sheet, cell):
        assert cell.heldout_best is not None
        assert cell.heldout_median is not None
        best, middle = sheet.format(cell.heldout_best), sheet.format(cell.heldout_median)
        below = f"{'':{len(before) - 2}}| " if before else ""
        text += f"\n{below}{best} {middle} held out"
    return text


def _legend(sheet: Sheet, cells: Collection[tables.Cell]) -> str:
    heldout = any(_has_other_heldout(sheet, cell) for cell in cells)
    second = "; below: best and median of what was held out" if heldout else ""
    said = f"best median worst (runs): {sheet.metric_label}{second}."
    if sheet.reference is None:
        return said
    source, decimals = sheet.reference.source, sheet.reference.decimals
    bold = f" Bold: not behind {source} at its {decimals} decimals, unless that is a rate of 0."
    scaled = sheet.reference.other_scale
    return f"{source.removeprefix('the ')} | {said}{'' if scaled else bold}"


def _has_other_heldout(sheet: Sheet, cell: tables.Cell) -> bool:
    """Whether there is a held-out set and what is compared is not already about it."""
    return cell.heldout_best is not None and sheet.metric != HELDOUT
