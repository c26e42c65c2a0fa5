"""A table of the paper, each cell with the paper's number, ours, and whether it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from setwise.report import tables
from setwise.report.failures import CAPTION, failures
from setwise.report.figures import RATES
from setwise.report.page.pieces import EMPTY, Html, dots, element, joined, table
from setwise.report.paper import LOSS_NAMES, PaperTable, base_name
from setwise.report.tables import HELDOUT, Cell, Record

HOLDS, BEHIND, FAILS, ABOVE, SCALE, OTHER, MISSING = (
    "holds",
    "behind the paper",
    "fails in both",
    "above the paper's 0",
    "on another scale",
    "the paper has none",
    "not recorded yet",
)


def verdict(paper: PaperTable, cell: Cell | None) -> str:
    """How a cell of ours stands to that of the paper."""
    if cell is None:
        return MISSING
    if cell.paper is None:
        return OTHER
    if paper.other_scale:
        return SCALE
    if paper.reaches(cell.best, cell.paper):
        return HOLDS
    if paper.fails(cell.paper):
        return FAILS if paper.fails(cell.best) else ABOVE
    return BEHIND


def verdicts(paper: PaperTable, records: Sequence[Record]) -> Counter[str]:
    """How many cells stand how, those of the paper that have no runs among them."""
    found = _found(paper, records)
    return Counter(
        verdict(paper, found.get((loss, scenario)))
        for loss in _losses(paper, records)
        for scenario in _scenarios(paper, records)
    )


def said_of(counted: Counter[str]) -> str:
    """The verdicts in words, none left out.

    >>> said_of(Counter({"holds": 11, "behind the paper": 1}))
    '11 of 12 hold; 1 behind the paper'
    """
    rest = {FAILS: "fail in both", ABOVE: ABOVE, BEHIND: BEHIND, MISSING: MISSING}
    rest |= {SCALE: "on another scale than the paper", OTHER: "not in the paper"}
    parts = [f"{counted[HOLDS]} of {counted.total()} hold"] if counted[HOLDS] else []
    parts += [f"{counted[name]} {words}" for name, words in rest.items() if counted[name]]
    return "; ".join(parts)


def table_of_cells(caption: str, paper: PaperTable, records: Sequence[Record]) -> Html:
    """Scenarios as rows, losses as columns; those of the paper whether or not they have runs."""
    found = _found(paper, records)
    losses = _losses(paper, records)
    ends = _ends(paper, records)
    rows = [
        [
            paper.label(scenario),
            *(_cell(paper, loss, scenario, found, records, ends) for loss in losses),
        ]
        for scenario in _scenarios(paper, records)
    ]
    header = [f"{loss}: {LOSS_NAMES.get(loss, loss)}" for loss in losses]
    return table(caption, ["", *header], rows, cards=True)


def table_of_failures(paper: PaperTable, records: Sequence[Record]) -> Html:
    """What became of problems without a valid plan; nothing where none were to be solved."""
    rows = [[scenario, *said] for scenario, said in failures(paper, records).items()]
    return table(CAPTION, ["", *tables.losses(records)], rows, cards=True) if rows else EMPTY


def table_of_the_paper(caption: str, paper: PaperTable) -> Html:
    """The numbers of the paper alone."""
    rows = [
        [label, *(paper.format_paper(values[at]) for values in paper.values.values())]
        for at, label in enumerate(paper.scenarios.values())
    ]
    return table(caption, ["", *paper.values], rows)


def _cell(
    paper: PaperTable,
    loss: str,
    scenario: str,
    found: dict[tuple[str, str], Cell],
    records: Sequence[Record],
    ends: tuple[float, float],
) -> Html:
    cell, published = found.get((loss, scenario)), paper.value(loss, scenario)
    said = verdict(paper, cell)
    look = {HOLDS: "badge holds", BEHIND: "badge behind"}.get(said, "badge")
    last = [element("span", said, class_=look)]
    values, spread = [], []
    if cell is not None:
        runs = [r for r in records if (r["loss"], r["scenario"]) == (loss, scenario)]
        best, middle, worst = map(paper.format_ours, (cell.best, cell.median, cell.worst))
        values.append(element("span", best, class_="best"))
        spread.append(dots([tables.number(paper, run) for run in runs], published, ends, loss))
        spread.append(_quiet(f"median {middle}, worst {worst}"))
        if paper.metric != HELDOUT and cell.heldout_best is not None:
            assert cell.heldout_median is not None
            best, middle = map(paper.format_ours, (cell.heldout_best, cell.heldout_median))
            spread.append(_quiet(f"held out {best}, {middle}"))
        last.append(_quiet(f"{cell.runs} run{'s' if cell.runs != 1 else ''}"))
    if published is not None:
        values.append(element("span", f"paper {paper.format_paper(published)}", class_="paper"))
    elif cell is None:
        return EMPTY
    return element(
        "div",
        element("span", joined(values, " "), class_="values"),
        *spread,
        element("span", joined(last, " "), class_="values"),
        class_="cell",
    )


def _quiet(text: str) -> Html:
    return element("span", text, class_="spread")


def _found(paper: PaperTable, records: Sequence[Record]) -> dict[tuple[str, str], Cell]:
    return {(cell.loss, cell.scenario): cell for cell in tables.cells(paper, records)}


def _losses(paper: PaperTable, records: Sequence[Record]) -> list[str]:
    """Those of the paper first; in a setting of our own, those that were run."""
    recorded = tables.losses(records)
    if any(record["table"] != base_name(record["table"]) for record in records):
        return recorded
    return [*paper.values, *(loss for loss in recorded if loss not in paper.values)]


def _scenarios(paper: PaperTable, records: Sequence[Record]) -> list[str]:
    """Those of the paper first; of a table that has none of its numbers, those that were run."""
    recorded = tables.scenarios(paper, records)
    if not paper.values:
        return recorded
    return [*paper.scenarios, *(name for name in recorded if name not in paper.scenarios)]


def _ends(paper: PaperTable, records: Sequence[Record]) -> tuple[float, float]:
    """Between which the runs of a table are drawn."""
    if paper.metric in RATES:
        return 0.0, 1.0
    numbers = [tables.number(paper, record) for record in records]
    numbers += [value for values in paper.values.values() for value in values]
    return min(numbers), max(numbers)
