"""The section of a table of the paper: its cells, how they were learned, how to have them again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from setwise.report import tables
from setwise.report.figures import RATES, has_curves
from setwise.report.page.cells import (
    said_of,
    table_of_cells,
    table_of_failures,
    table_of_the_paper,
    verdicts,
)
from setwise.report.page.pieces import (
    EMPTY,
    Html,
    Points,
    Section,
    command,
    curves,
    element,
    gallery,
    joined,
    paragraph,
    subheading,
)
from setwise.report.page.provenance import commands_for, provenance, sources_of
from setwise.report.paper import (
    TABLES,
    PaperTable,
    base_name,
    heading,
    is_quick,
    paper_table,
)
from setwise.report.tables import Record


def table_section(
    table: str,
    found: Mapping[str, Sequence[Record]],
    costs: Mapping[str, Sequence[Record]],
    after: Html = EMPTY,
) -> Section:
    """A table in the paper's setting, and in any other that was recorded.

    Args:
        table: Its name, for instance ``table1``.
        found: The records of every table.
        costs: For each table what `setwise.report.tables.read_costs` found.
        after: What else there is to see of it.
    """
    paper = TABLES[table]
    parts = [element("blockquote", element("p", f"{paper.caption} ({paper.place})"))]
    name = f"Table {paper.number}"
    parts += [_body(table, name, found.get(table, ()), costs.get(table, ()), level=3), after]
    others = [name for name in found if base_name(name) == table != name]
    for other in others:
        parts += [
            subheading(_capital(heading(other))),
            _body(other, _capital(other), found[other], costs[other], level=4),
        ]
    return Section(table, heading(table), joined(parts), short=name)


def _body(
    table: str, name: str, records: Sequence[Record], costs: Sequence[Record], level: int
) -> Html:
    """All of a table, under a heading; those within it have the level that is given."""
    paper = paper_table(table)
    caption = f"{name}: {paper.metric_name}"
    if not records:
        said = "Not recorded yet: these are the numbers of the paper alone. Ours are made by"
        commands = "\n".join(commands_for(table, again=False))
        return joined([table_of_the_paper(caption, paper), command(commands, said)])
    if is_quick(table):
        said = "A smaller task than the paper's, which has no numbers for it."
    else:
        said = f"Cells: {said_of(verdicts(paper, records))}."
    parts = [paragraph(element("strong", said)), table_of_cells(caption, paper, records)]
    parts.append(table_of_failures(paper, records))
    parts += [paragraph(remark) for remark in tables.remarks(paper, records)]
    if has_curves(paper, records):
        parts += [subheading(f"How {name} was learned", level), _learning(paper, records)]
    if costs:
        parts.append(paragraph(tables.said_of_costs(costs)))
    again = commands_for(table, again=True, losses=_only(table, records))
    parts.append(provenance(again, sources_of(records), name, level))
    return joined(parts)


def _only(table: str, records: Sequence[Record]) -> list[str]:
    """The losses of a setting of our own, where not all of them were run."""
    every = set(TABLES[base_name(table)].values)
    whole = table == base_name(table) or set(tables.losses(records)) == every
    return [] if whole else tables.losses(records)


def _learning(paper: PaperTable, records: Sequence[Record]) -> Html:
    """A drawing for each scenario: every run thin, the median of the seeds thick."""
    drawings = []
    for scenario in tables.scenarios(paper, records):
        found = [record for record in records if record["scenario"] == scenario]
        runs = {
            loss: [_curve(paper, r["history"]) for r in found if r["loss"] == loss]
            for loss in tables.losses(found)
        }
        drawings.append(
            curves(
                paper.label(scenario),
                {loss: _middle(lines) for loss, lines in runs.items()},
                "epoch",
                paper.metric_name.partition(" that ")[0],
                behind=runs,
                y_range=(0.0, 1.0) if paper.metric in RATES else None,
                decimals=paper.our_decimals,
            )
        )
    measured = f", measured on {paper.curves_of}" if paper.curves_of else ""
    note = f"Thin: one run{measured}. Thick: the median of the runs, with its last value."
    return joined([element("p", note, class_="note"), gallery(drawings)])


def _curve(paper: PaperTable, history: Mapping[str, Any]) -> Points:
    return list(zip(history["epoch"], history[paper.metric], strict=True))


def _middle(lines: Sequence[Points]) -> Points:
    """The median of curves over the same epochs; what is not a number does not count."""
    middle: list[tuple[float, float | None]] = []
    for points in zip(*lines, strict=True):
        values = [y for _, y in points if y is not None and math.isfinite(y)]
        middle.append((points[0][0], median(values) if values else None))
    return middle


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
