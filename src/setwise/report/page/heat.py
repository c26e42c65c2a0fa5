"""A heat map: an experiment with many losses, one coloured number a cell."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from setwise.experiments.experiment import Sheet
from setwise.experiments.records import Record
from setwise.report import tables
from setwise.report.page.markup import piece
from setwise.report.page.pieces import Markup

# With more losses than this, cells that say everything no longer fit beside each other.
MOST_IN_FULL = 6
STEPS = 5  # of colour, from the worst to the best; see style.css


def heat_map(caption: str, sheet: Sheet, records: Sequence[Record]) -> Markup:
    """Scenarios as rows, losses as columns: the median of the runs and what else is known.

    That is their ends, the median on what was held out, and what one took to train; but not the
    time of losses that were trained together, who share it.
    """
    ends = tables.bounds(sheet, records)
    found = {(cell.loss, cell.scenario): cell for cell in tables.cells(sheet, records)}
    together = _several_losses(records)
    told = ["from the worst to the best"]
    rows = []
    for scenario in dict.fromkeys([*sheet.scenarios, *tables.scenarios(sheet, records)]):
        cells: list[tuple[str, list[str], str]] = []
        for loss in sheet.losses:
            cell = found.get((loss, scenario))
            if cell is None:
                cells.append(("", [], "none"))
                continue
            runs = [r for r in records if (r["loss"], r["scenario"]) == (loss, scenario)]
            below = {told[0]: f"{sheet.format(cell.worst)} to {sheet.format(cell.best)}"}
            if cell.heldout_median is not None:
                below["what was held out"] = f"held out {sheet.format(cell.heldout_median)}"
            if together.isdisjoint(run.get("ensemble") for run in runs):
                below["what one took to train"] = f"{tables.seconds(runs) / len(runs):.3g} s"
            told += [name for name in below if name not in told]
            step = str(step_of(cell.median, ends, sheet.better == "higher"))
            cells.append((sheet.format(cell.median), list(below.values()), step))
        rows.append((sheet.label(scenario), cells))
    symbols = [style.symbol for style in sheet.losses.values()]
    note = f"median of the runs, below it {', '.join(told)}"
    return piece("heat_map", f"{caption}; {note}", symbols, rows)


def _several_losses(records: Sequence[Record]) -> set[str]:
    """The ensembles in which more than one loss was trained."""
    losses: dict[str, set[str]] = defaultdict(set)
    for record in records:
        if "ensemble" in record:
            losses[record["ensemble"]].add(record["loss"])
    return {ensemble for ensemble, trained in losses.items() if len(trained) > 1}


def step_of(value: float, ends: tuple[float, float], rising: bool) -> int:
    """The colour of a number between two ends: 0 for the worst, the last for the best.

    >>> [step_of(value, (0.0, 1.0), True) for value in (0.0, 0.19, 0.5, 0.99, 1.0)]
    [0, 0, 2, 4, 4]
    """
    low, high = ends
    if not math.isfinite(value):
        return 0
    share = 1.0 if low == high else (min(max(value, low), high) - low) / (high - low)
    return min(int((share if rising else 1.0 - share) * STEPS), STEPS - 1)
