"""How the losses of the study fail, and what annealing does.

A task is a scenario of ``studies/losses.py``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from setwise.report.records import HELDOUT
from setwise.report.tables import Record, Recorded
from tools import advice
from tools.advice import BESIDE, LEVEL

LEARNED = 0.95  # of the sets that are trained on
MISCOUNTED = 0.05  # by which sets are right but for how often their elements occur
PLAIN, ANNEALED = "set_likelihood", "annealed_likelihood"


def failures(study: Recorded) -> str:
    """Of each loss, in how many tasks it fails in which way."""
    runs = _by_cell(study)
    behind = {name: advice.surely_behind(study, name) for name in advice.by_scenario(study)}
    lines = []
    for loss, style in study.sheet.losses.items():
        unlearned = memorised = miscounted = 0
        for scenario in behind:
            own = runs[loss, scenario]
            if not own:
                continue
            metrics = own[0]["metrics"]
            learned = _median(own, "train") >= LEARNED
            unlearned += not learned
            memorised += learned and HELDOUT in metrics and loss in behind[scenario]
            if "success" in metrics and _median(own, "success") >= LEARNED:
                miscounted += _median(own, "exact") < _median(own, "success") - MISCOUNTED
        counts = map(str, (unlearned, memorised, miscounted))
        lines.append([f"{style.symbol}: {style.label}", *counts])
    titles = [
        "",
        "trained sets not learned",
        "learned, but others are better on held-out ones",
        "right elements, not as often as they occur",
    ]
    return advice.table(titles, lines)


def annealing(study: Recorded) -> str:
    """The tasks in which a rising exclusivity makes a difference, and what it had when it was 1."""
    runs = _by_cell(study)
    lines = []
    for scenario in study.sheet.scenarios:
        cells = [
            [advice.worth(study, run) for run in runs[loss, scenario]]
            for loss in (BESIDE, PLAIN, ANNEALED)
        ]
        if not all(cells):
            continue
        beside, plain, annealed = map(median, cells)
        if abs(plain - annealed) <= LEVEL:
            continue
        verdict = "may be chance"
        if advice.differ(*cells[1:]):
            verdict = "better" if annealed > plain else "worse"
        risen = median(map(_when_risen, runs[ANNEALED, scenario]))
        values = map(study.sheet.format, (beside, plain, risen, annealed))
        lines.append([study.sheet.label(scenario), *values, verdict])
    symbol = study.sheet.losses[BESIDE].symbol
    return advice.table(
        ["", symbol, "LH", "LH, annealed: when exclusive", "at the end", "than LH"], lines
    )


def _by_cell(study: Recorded) -> dict[tuple[str, str], list[Record]]:
    found: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in study.records:
        found[record["loss"], record["scenario"]].append(record)
    return found


def _median(runs: Sequence[Record], metric: str) -> float:
    return median(run["metrics"][metric] for run in runs)


def _when_risen(run: Record) -> float:
    """What the run was worth when its exclusivity had become 1, or at the last look before that."""
    history, schedule = run["history"], run["config"]["schedule"]
    until = schedule["exclusivity_until"] * schedule["epochs"]
    values: list[float] = history.get(HELDOUT) or history["exact"]
    return [v for e, v in zip(history["epoch"], values, strict=True) if e <= until][-1]
