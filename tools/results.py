"""Write docs/results.md, its pictures and the block of docs/reproduction.md from results/.

    python -m tools.results

Of the page, what stands between its pairs of markers is written: a block for each experiment that
has a reference. The others are trainings on the way, or made to be seen and not to be published.
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from setwise.experiments.experiment import Sheet
from setwise.experiments.records import Record
from setwise.files import atomic_write_text
from setwise.report import figures, tables
from setwise.report.records import HELDOUT
from setwise.report.remarks import FAILURES, failures, remarks, said_of_costs
from setwise.report.tables import Cell, Recorded
from tools import headline
from tools.markdown import markdown, with_blocks, wrapped

ROOT = Path(__file__).parent.parent
NOTHING = "No runs recorded yet.\n"


def main() -> None:
    """Update docs/results.md, its pictures in docs/figures/, and docs/reproduction.md."""
    write(ROOT / "docs" / "results.md", ROOT / "results")
    beside = ROOT / "docs" / "reproduction.md"
    atomic_write_text(beside, headline.update(beside, ROOT / "results"))


def write(page: Path, results: Path) -> None:
    """Make the page and the pictures beside it, in ``figures/``, anew from a folder of records."""
    atomic_write_text(page, update(page, results))
    folder = page.parent / "figures"
    for one in published(results).values():
        if one.records:
            figures.draw(one.sheet, one.records, folder)
    for stale in stale_pictures(page, results):
        stale.unlink()


def update(page: Path, results: Path) -> str:
    """The text of the page with the block of every experiment made anew."""
    blocks = {name: block(one) for name, one in published(results).items()}
    return with_blocks(page.read_text(), page.name, blocks)


def published(results: Path) -> dict[str, Recorded]:
    """The experiments with a reference."""
    found = tables.read_experiments(results)
    return {name: one for name, one in found.items() if one.sheet.reference}


def block(one: Recorded) -> str:
    """The caption of the published table, ours, what it took, and its pictures."""
    assert one.sheet.reference is not None
    lines = textwrap.wrap(one.sheet.reference.caption, 98)
    quoted = "".join(f"> {line}\n" for line in lines)
    return f"{quoted}\n{section(one) if one.records else NOTHING}"


def section(one: Recorded) -> str:
    """The table of an experiment that is recorded, and what there is to say of it."""
    sheet, records = one.sheet, one.records
    cells = {(cell.loss, cell.scenario): cell for cell in tables.cells(sheet, records)}
    losses = tables.losses(sheet, records)
    symbols = [sheet.losses[loss].symbol for loss in losses]
    rows = {
        sheet.label(scenario): [cells.get((loss, scenario)) for loss in losses]
        for scenario in tables.scenarios(sheet, records)
    }
    label = sheet.metric_label[0].upper() + sheet.metric_label[1:]
    parts = [f"{label}; paper: best / median / worst (runs).\n\n"]
    parts += [_cells(symbols, rows, lambda cell: _beside_reference(sheet, cell))]
    if sheet.metric != HELDOUT and any(cell.heldout_best is not None for cell in cells.values()):
        parts += ["\nThe same on what was held out; best / median.\n\n"]
        parts += [_cells(symbols, rows, lambda cell: _heldout(sheet, cell))]
    failed = failures(sheet, records)
    if failed:
        parts += [f"\n{FAILURES}.\n\n", _table(symbols, failed)]
    for said in remarks(sheet, records):
        parts += ["\n", wrapped(said)]
    parts += ["\n", _cost(records, "of planning " if failed else "")]
    if one.costs:
        parts += ["\n", wrapped(said_of_costs(one.costs))]
    shown = figures.pictures(sheet, records)
    parts += [f"\n![{said}](figures/{picture})\n" for picture, (said, _) in shown.items()]
    return "".join(parts)


def stale_pictures(page: Path, results: Path) -> list[Path]:
    """Pictures of tables, beside the page, that no record asks for any more."""
    found = [one for one in published(results).values() if one.records]
    wanted = {picture for one in found for picture in figures.pictures(one.sheet, one.records)}
    present = (page.parent / "figures").glob("table*.png")
    return sorted(path for path in present if path.name not in wanted)


def _beside_reference(sheet: Sheet, cell: Cell) -> str:
    assert sheet.reference is not None
    best, middle, worst = map(sheet.format, (cell.best, cell.median, cell.worst))
    if sheet.reaches(cell.best, cell.reference):
        best = f"**{best}**"
    before = "" if cell.reference is None else f"{sheet.reference.format(cell.reference)}: "
    return f"{before}{best} / {middle} / {worst} ({cell.runs})"


def _heldout(sheet: Sheet, cell: Cell) -> str:
    if cell.heldout_best is None or cell.heldout_median is None:
        return ""
    return f"{sheet.format(cell.heldout_best)} / {sheet.format(cell.heldout_median)}"


def _cost(records: Sequence[Record], kind: str) -> str:
    """How many runs, how long, on what, with which code."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        made = record["environment"]
        commit = str(made.get("commit") or "unknown")
        # A mark at the end of a commit says that files were changed since.
        short = commit[:12] + commit[40:]
        groups[f"on {made['hardware']}, torch {made['torch']}, commit {short}"].append(record)
    parts = [
        f"{len(found)} runs {kind}in {tables.seconds(found):.0f} s {where}"
        for where, found in groups.items()
    ]
    return wrapped(f"{'; '.join(parts)}.")


def _cells(
    symbols: Sequence[str], rows: dict[str, list[Cell | None]], text: Callable[[Cell], str]
) -> str:
    found = {
        name: ["" if cell is None else text(cell) for cell in cells] for name, cells in rows.items()
    }
    return _table(symbols, found)


def _table(symbols: Sequence[str], rows: dict[str, list[str]]) -> str:
    """Scenarios as rows, losses as columns."""
    lines = markdown(["", *symbols], [[name, *cells] for name, cells in rows.items()])
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
