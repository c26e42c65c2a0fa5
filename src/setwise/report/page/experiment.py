"""The section of an experiment: its cells, how they were learned, how to have them again."""

from __future__ import annotations

from collections.abc import Sequence

from setwise.experiments.experiment import Sheet
from setwise.experiments.records import Record
from setwise.report import tables
from setwise.report.curves import are_shares, has_curves, learning_curves
from setwise.report.page.cells import (
    said_of_cells,
    table_of_cells,
    table_of_failures,
    table_of_the_reference,
)
from setwise.report.page.heat import MOST_IN_FULL, heat_map
from setwise.report.page.markup import joined, piece
from setwise.report.page.pieces import (
    Markup,
    Section,
    command,
    curves,
    gallery,
    paragraph,
    subheading,
)
from setwise.report.page.provenance import commands_for, provenance, sources_of
from setwise.report.remarks import remarks, said_of_costs
from setwise.report.tables import Recorded


def experiment_section(recorded: Recorded, *after: Markup) -> Section:
    """All that there is to say of an experiment, and what else there is to see of it."""
    sheet, records = recorded.sheet, recorded.records
    name = short_title(sheet)
    parts = []
    if sheet.reference and sheet.reference.caption:
        parts.append(piece("quote", sheet.reference.caption))
    caption = f"{name}: {sheet.metric_label}"
    if records:
        parts += [
            paragraph(piece("strong", f"Cells: {said_of_cells(sheet, records).rstrip('.')}.")),
            _cells(caption, sheet, records),
            table_of_failures(sheet, records),
            *map(paragraph, remarks(sheet, records)),
        ]
        if has_curves(sheet, records):
            parts += [subheading(f"How {name} was learned"), _learning(sheet, records)]
        if recorded.costs:
            parts.append(paragraph(said_of_costs(recorded.costs)))
        again = commands_for(sheet, again=True)
        parts.append(provenance(again, sources_of(records), name))
    else:
        parts.append(_unrecorded(caption, sheet))
    return Section(anchor_of(sheet), sheet.title, joined([*parts, *after]), short=name)


def anchor_of(sheet: Sheet) -> str:
    """The name in links to the section; no other section has one that begins like this."""
    return f"experiment-{'-'.join(sheet.name.split())}"


def short_title(sheet: Sheet) -> str:
    """What an experiment is called where there is little room: ``Table 1`` of ``Table 1: ...``."""
    return sheet.title.partition(":")[0]


def _cells(caption: str, sheet: Sheet, records: Sequence[Record]) -> Markup:
    """Each with all its numbers; of very many, the median in its colour."""
    shown = heat_map if len(sheet.losses) > MOST_IN_FULL else table_of_cells
    return shown(caption, sheet, records)


def _unrecorded(caption: str, sheet: Sheet) -> Markup:
    """The published numbers, if there are any, and how to have others."""
    parts, said, made = [], "Not recorded yet.", "It is trained by"
    if sheet.reference is not None:
        parts.append(table_of_the_reference(caption, sheet))
        said = f"Not recorded yet: these are the numbers of {sheet.reference.source} alone."
        made = "Ours are made by"
    commands = "\n".join(commands_for(sheet, again=False))
    parts.append(command(commands, f"{said} {made}") if commands else paragraph(said))
    return joined(parts)


def _learning(sheet: Sheet, records: Sequence[Record]) -> Markup:
    """A drawing for each scenario: every run thin, the median of the seeds thick."""
    drawings = []
    for scenario in tables.scenarios(sheet, records):
        found = [record for record in records if record["scenario"] == scenario]
        lines = learning_curves(sheet, found)
        drawings.append(
            curves(
                sheet.label(scenario),
                lines,
                "epoch",
                sheet.metric_label.partition(" that ")[0],
                shares=are_shares(sheet, lines),
                decimals=sheet.decimals,
            )
        )
    measured = f", measured on {sheet.curves_of}" if sheet.curves_of else ""
    note = f"Thin: one run{measured}. Thick: the median of the runs, with its last value."
    return joined([paragraph(note, kind="note"), gallery(drawings)])
