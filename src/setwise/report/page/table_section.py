"""The section of a table of the paper: its cells, how they were learned, how to have them again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from setwise.report import tables
from setwise.report.figures import RATES, has_curves
from setwise.report.page.cells import said_of, table_of_cells, table_of_the_paper, verdicts
from setwise.report.page.charts import Points, curves
from setwise.report.page.frame import Section
from setwise.report.page.html import EMPTY, Html, element, joined
from setwise.report.page.pieces import command, gallery, paragraph, subheading
from setwise.report.page.provenance import commands_for, provenance, sources_of
from setwise.report.paper import TABLES, PaperTable, base_name, heading, paper_table
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
    parts += [_body(table, found.get(table, ()), costs.get(table, ())), after]
    others = [name for name in found if base_name(name) == table != name]
    for name in others:
        parts += [subheading(_capital(heading(name))), _body(name, found[name], costs[name])]
    return Section(table, heading(table), joined(parts), short=f"Table {paper.number}")


def _body(name: str, records: Sequence[Record], costs: Sequence[Record]) -> Html:
    paper = paper_table(name)
    if not records:
        said = "Not recorded yet: these are the numbers of the paper alone. Ours are made by"
        alone = table_of_the_paper(_capital(paper.metric_name), paper)
        return joined([alone, command("\n".join(commands_for(name)), said)])
    said = said_of(verdicts(paper, records))
    parts = [paragraph(element("strong", f"Cells: {said}."))]
    parts.append(table_of_cells(_capital(paper.metric_name), paper, records))
    if has_curves(paper, records):
        parts += [subheading("How it was learned"), _learning(paper, records)]
    if costs:
        parts.append(paragraph(tables.said_of_costs(costs)))
    parts.append(provenance(commands_for(name), sources_of(records)))
    return joined(parts)


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
                paper.metric_name,
                behind=runs,
                y_range=(0.0, 1.0) if paper.metric in RATES else None,
                decimals=paper.decimals,
            )
        )
    note = "Thin: one run. Thick: the median of the runs, with its last value."
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
