"""How long an experiment took to a level, and what is best at equal steps and at equal time."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from setwise.report.effort import (
    LEAST,
    NEAR,
    best,
    best_titles,
    level_of,
    reached,
    said_of_best,
)
from setwise.report.page.experiment import short_title
from setwise.report.page.markup import joined, piece
from setwise.report.page.pieces import Markup, paragraph, subheading, table
from setwise.report.step_times import said_of_times, step_times
from setwise.report.tables import Recorded


def effort_of(results: Path, recorded: Recorded) -> Markup:
    """The tables of an experiment whose sheet names a level; nothing of others."""
    sheet = recorded.sheet
    if sheet.level is None or not recorded.records:
        return Markup("")
    level, times = level_of(recorded), step_times(results, [recorded])
    symbols = [style.symbol for style in sheet.losses.values()]
    note = (
        f"Medians of the runs on held-out examples, if some are held out; never is not within the "
        f"training. Equal time is the moment at which the fastest of a row has ended. What is "
        f"within {NEAR} of the best is named with it; below {LEAST} nothing is best."
    )
    name, found = short_title(sheet), best(recorded, times)
    rows = reached(recorded, partial(piece, "strong"), "{:.0f}".format)
    return joined(
        [
            subheading("Steps and time"),
            table(f"{name}: steps to {level:g}, {sheet.metric_label}", ["", *symbols], rows),
            table(f"{name}: what is best", best_titles(recorded), found, cards=True),
            *(paragraph(said) for said in [said_of_best(recorded, times)] if said),
            paragraph(note, kind="note"),
            paragraph(said_of_times(results, recorded, times), kind="note"),
        ]
    )
