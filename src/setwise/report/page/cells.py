"""The table of an experiment: each cell with ours, the published number, and whether it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from setwise.experiments.experiment import Sheet
from setwise.experiments.records import Record
from setwise.report import tables
from setwise.report.page.colours import themed
from setwise.report.page.markup import piece
from setwise.report.page.pieces import Markup, table
from setwise.report.records import HELDOUT
from setwise.report.remarks import FAILURES, failures
from setwise.report.tables import Cell

HOLDS, BEHIND, FAILS, ABOVE, SCALE, OTHER, MISSING = (
    "holds",
    "behind {source}",
    "fails in both",
    "above {source}'s 0",
    "on another scale",
    "{source} has none",
    "not recorded yet",
)
# How many of them there are, in words.
_COUNTED = {
    FAILS: "fail in both",
    ABOVE: ABOVE,
    BEHIND: BEHIND,
    MISSING: MISSING,
    SCALE: "on another scale than {source}",
    OTHER: "not in {source}",
}


def verdict(sheet: Sheet, cell: Cell | None) -> str:
    """How a cell of ours stands to that of the reference; nothing is said where there is none."""
    if cell is None:
        return MISSING
    if sheet.reference is None:
        return ""
    if cell.reference is None:
        return OTHER
    if sheet.reference.other_scale:
        return SCALE
    if sheet.reaches(cell.best, cell.reference):
        return HOLDS
    if sheet.fails(cell.reference):
        return FAILS if sheet.fails(cell.best) else ABOVE
    return BEHIND


def said_of_cells(sheet: Sheet, records: Sequence[Record]) -> str:
    """How many cells hold and what is with the others; without a reference, how many there are."""
    found = _found(sheet, records)
    counted = Counter(
        verdict(sheet, found.get((loss, scenario)))
        for loss in sheet.losses
        for scenario in _scenarios(sheet, records)
        if (loss, scenario) in found or sheet.compares(scenario, loss)
    )
    if sheet.reference is None:
        missing = f"; {counted[MISSING]} {MISSING}" if counted[MISSING] else ""
        return f"{counted['']} of {counted.total()} recorded{missing}"
    parts = [f"{counted[HOLDS]} of {counted.total()} hold"] if counted[HOLDS] else []
    parts += [
        f"{counted[name]} {words.format(source=sheet.reference.source)}"
        for name, words in _COUNTED.items()
        if counted[name]
    ]
    return "; ".join(parts)


def table_of_cells(caption: str, sheet: Sheet, records: Sequence[Record]) -> Markup:
    """Scenarios as rows, losses as columns, whether or not they have runs."""
    found = _found(sheet, records)
    ends = tables.bounds(sheet, records)
    rows = [
        [
            sheet.label(scenario),
            *(
                _cell(sheet, loss, scenario, found.get((loss, scenario)), records, ends)
                for loss in sheet.losses
            ),
        ]
        for scenario in _scenarios(sheet, records)
    ]
    header = [f"{style.symbol}: {style.label}" for style in sheet.losses.values()]
    return table(caption, ["", *header], rows, cards=True)


def table_of_failures(sheet: Sheet, records: Sequence[Record]) -> Markup:
    """What became of problems without a valid plan; nothing where none were to be solved."""
    rows = [[scenario, *said] for scenario, said in failures(sheet, records).items()]
    symbols = [sheet.losses[loss].symbol for loss in tables.losses(sheet, records)]
    # Several experiments of a page may be about plans, and no two tables have the same name.
    caption = f"{sheet.title.partition(':')[0]}: {FAILURES[0].lower()}{FAILURES[1:]}"
    return table(caption, ["", *symbols], rows, cards=True) if rows else Markup("")


def table_of_the_reference(caption: str, sheet: Sheet) -> Markup:
    """The published numbers alone."""
    assert sheet.reference is not None
    reference = sheet.reference
    rows = [
        [
            label,
            *(
                "" if value is None else reference.format(value)
                for value in (sheet.published(loss, scenario) for loss in sheet.losses)
            ),
        ]
        for scenario, label in sheet.scenarios.items()
    ]
    return table(caption, ["", *(style.symbol for style in sheet.losses.values())], rows)


def _cell(
    sheet: Sheet,
    loss: str,
    scenario: str,
    cell: Cell | None,
    records: Sequence[Record],
    ends: tuple[float, float],
) -> Markup:
    if cell is None and not sheet.compares(scenario, loss):
        return Markup("")
    published, said = sheet.published(loss, scenario), verdict(sheet, cell)
    source, beside = "", ""
    if sheet.reference is not None:
        source = sheet.reference.source
        if published is not None:
            beside = f"{source.removeprefix('the ')} {sheet.reference.format(published)}"
    best, drawing, runs, spread = "", Markup(""), "", []
    if cell is not None:
        found = [r for r in records if (r["loss"], r["scenario"]) == (loss, scenario)]
        numbers = [tables.number(sheet, run) for run in found]
        best, middle, worst = map(sheet.format, (cell.best, cell.median, cell.worst))
        drawing = _dots(numbers, published, ends, sheet.losses[loss].colour)
        spread.append(f"median {middle}, worst {worst}")
        if sheet.metric != HELDOUT and cell.heldout_best is not None:
            assert cell.heldout_median is not None
            both = map(sheet.format, (cell.heldout_best, cell.heldout_median))
            spread.append(f"held out {', '.join(both)}")
        runs = f"{cell.runs} run{'s' if cell.runs != 1 else ''}"
    look = {HOLDS: " holds", BEHIND: " behind"}.get(said, "")
    told = said.format(source=source)
    return piece("cell", best, beside, drawing, spread, told, look, runs)


def _dots(
    values: Sequence[float], mark: float | None, ends: tuple[float, float], colour: str
) -> Markup:
    """Where runs lie between two ends, in the height of a line; a bar is the published number."""
    low, high = ends if ends[0] < ends[1] else (ends[0] - 0.5, ends[1] + 0.5)

    def place(value: float) -> str:
        inside = min(max(value, low), high)
        return f"{6 + 108 * (inside - low) / (high - low):.1f}"

    marked = None if mark is None else place(mark)
    return piece("dots", [place(value) for value in values], marked, themed(colour))


def _found(sheet: Sheet, records: Sequence[Record]) -> dict[tuple[str, str], Cell]:
    return {(cell.loss, cell.scenario): cell for cell in tables.cells(sheet, records)}


def _scenarios(sheet: Sheet, records: Sequence[Record]) -> list[str]:
    """Those of the sheet first, whether or not they have runs."""
    recorded = tables.scenarios(sheet, records)
    return [*sheet.scenarios, *(name for name in recorded if name not in sheet.scenarios)]
