"""How long runs take to a level, and which loss is best at equal steps and at equal time.

An experiment whose sheet names a `Sheet.level` of its metric is looked at in this way. Numbers are
those of held-out examples, where some were held out and the metric is not that of the others. A run
that has diverged stands at 0.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

from setwise.experiments.records import Record
from setwise.report import tables
from setwise.report.records import HELDOUT
from setwise.report.tables import Recorded

NEAR = 0.01  # within which medians are taken for level
LEAST = 0.05  # below which nothing is best
TRAIN = "train"  # the metric of the examples trained on, which are not held out

Key = tuple[str, str, str]  # an experiment, a scenario and a loss
Times = Mapping[Key, float]  # seconds of a step of one network
Strong = Callable[[str], str]
Points = list[tuple[float, float]]


def cells_of(study: Recorded, scenario: str) -> dict[str, list[Record]]:
    """The runs of each loss that has some in a scenario, in the order of the sheet."""
    found: dict[str, list[Record]] = defaultdict(list)
    for record in study.records:
        if record["scenario"] == scenario:
            found[record["loss"]].append(record)
    return {loss: found[loss] for loss in study.sheet.losses if loss in found}


def steps_per_epoch(record: Record) -> int:
    """How many batches an epoch has."""
    train = record["config"]["data"].get("train")
    batch = record["config"]["schedule"].get("batch")
    for name, given in (("data.train", train), ("schedule.batch", batch)):
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            raise ValueError(
                f"run {record['run']}: steps to a level need a config with {name}, a whole number "
                f"from 1, got {given!r:.60}; leave the level of the experiment out"
            )
    return max(1, int(train) // int(batch))


def curve(study: Recorded, record: Record) -> Points:
    """What is compared, over the steps."""
    each, history = steps_per_epoch(record), record["history"]
    name = _compared(study, history)
    try:
        points = [
            (float(epoch * each), float(value or 0.0))
            for epoch, value in zip(history["epoch"], history[name], strict=True)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"run {record['run']}: steps to a level need a history of {name}: {error!r}"
        ) from error
    steps = [0.0, *(step for step, _ in points)]
    if len(steps) < 2 or any(after <= before for before, after in pairwise(steps)):
        raise ValueError(
            f"run {record['run']}: steps to a level need a history of epochs that rise from 1"
        )
    return [(0.0, 0.0), *points]


def _compared(study: Recorded, there: Mapping[str, Any]) -> str:
    """Which of the numbers that there are; those of a measure are held out under one name."""
    metric = study.sheet.metric
    return HELDOUT if HELDOUT in there and metric != TRAIN else metric


def value_of(study: Recorded, record: Record) -> float:
    """Where a run ends."""
    metrics = record["metrics"]
    return float(metrics[_compared(study, metrics)] or 0.0)


def median_of(study: Recorded, runs: Iterable[Record]) -> float:
    """Where the middle one of several runs ends."""
    return median(value_of(study, run) for run in runs)


def steps_to(study: Recorded, record: Record) -> float:
    """The steps until the curve first meets the level, between two evaluations on the line."""
    level = level_of(study)
    for (before, low), (after, high) in pairwise(curve(study, record)):
        if high >= level:
            return before + (after - before) * (level - low) / (high - low)
    return math.inf


def level_of(study: Recorded) -> float:
    """What a sheet says, of an experiment that has one."""
    if study.sheet.level is None:
        raise ValueError(
            f"{study.sheet.name}.json: names no level; the command that trained its runs writes it "
            f"anew: run it once more, nothing is trained twice"
        )
    return study.sheet.level


def reached(
    study: Recorded, strong: Strong, shown: Callable[[float], str], times: Times | None = None
) -> list[list[str]]:
    """Steps to the level, or with times seconds: the median of the runs, strong the least.

    A row for each scenario, a cell for each loss. Where some runs did not get there, how many did.
    Cells that were not timed have no seconds.
    """
    lines = []
    for scenario in tables.scenarios(study.sheet, study.records):
        row = {
            loss: _effort(study, runs, times) for loss, runs in cells_of(study, scenario).items()
        }
        known = (middle for middle in map(median, row.values()) if not math.isnan(middle))
        least = min(known, default=math.inf)
        said = [
            _reached(row[loss], least, strong, shown) if loss in row else ""
            for loss in study.sheet.losses
        ]
        lines.append([study.sheet.label(scenario), *said])
    return lines


def best_titles(study: Recorded) -> list[str]:
    """Of the table of `best`."""
    return ["", "best at equal steps", "best at equal time", f"first at {level_of(study):g}"]


def best(study: Recorded, times: Times) -> list[list[str]]:
    """For each scenario: what is best at equal steps, what at equal time, and what is fastest."""
    lines = []
    for scenario in tables.scenarios(study.sheet, study.records):
        cells = cells_of(study, scenario)
        fast = {loss: median(_effort(study, runs)) for loss, runs in cells.items()}
        said = [
            "; ".join(f"{study.sheet.losses[loss].symbol} {value:.2f}" for loss, value in found)
            or ("none" if known else "")
            for known, found in (
                (values, leaders(values))
                for values in (at_equal_steps(study, cells), at_equal_time(study, cells, times))
            )
        ]
        lines.append([study.sheet.label(scenario), *said, _first(study, fast)])
    return lines


def said_of_best(study: Recorded, times: Times) -> str:
    """In how many scenarios each loss is best or level with it; nothing of a single scenario."""
    scenarios = tables.scenarios(study.sheet, study.records)
    said = []
    for how, compared in (
        ("equal steps", at_equal_steps),
        ("equal time", partial(at_equal_time, times=times)),
    ):
        values = [compared(study, cells_of(study, scenario)) for scenario in scenarios]
        known = [one for one in values if len(one) > 1]
        counted = Counter(loss for one in known for loss, _ in leaders(one))
        if len(known) > 1:
            told = (f"{study.sheet.losses[loss].symbol} {n}" for loss, n in counted.most_common())
            said.append(f"At {how}, of {len(known)} rows: {'; '.join(told) or 'none'}.")
    return f"Best, or level with the best. {' '.join(said)}" if said else ""


def at_equal_steps(study: Recorded, cells: Mapping[str, list[Record]]) -> dict[str, float]:
    """The median of each loss at the end."""
    return {loss: median_of(study, runs) for loss, runs in cells.items()}


def at_equal_time(
    study: Recorded, cells: Mapping[str, list[Record]], times: Times
) -> dict[str, float]:
    """The median of each loss that was timed, at the moment when the fastest of them has ended."""
    each = {
        loss: step
        for loss, runs in cells.items()
        if (step := times.get((study.sheet.name, runs[0]["scenario"], loss)))
    }
    if not each:
        return {}
    budget = min(step * curve(study, cells[loss][0])[-1][0] for loss, step in each.items())
    return {
        loss: median(_at(curve(study, run), budget / step) for run in cells[loss])
        for loss, step in each.items()
    }


def leaders(values: Mapping[str, float]) -> list[tuple[str, float]]:
    """Those that are level with the best, the best first; none where nothing is good."""
    top = max(values.values(), default=0.0)
    level = sorted((v, loss) for loss, v in values.items() if v >= max(top - NEAR, LEAST))
    return [(loss, value) for value, loss in reversed(level)]


def _effort(study: Recorded, runs: Sequence[Record], times: Times | None = None) -> list[float]:
    key = study.sheet.name, runs[0]["scenario"], runs[0]["loss"]
    each = 1.0 if times is None else times.get(key, math.nan)
    return [steps_to(study, run) * each for run in runs]


def _reached(
    values: list[float], least: float, strong: Strong, shown: Callable[[float], str]
) -> str:
    there = sum(value < math.inf for value in values)
    middle = median(values)
    if math.isnan(middle):
        return ""
    of = f" ({there} of {len(values)})"
    if middle == math.inf:
        return f"never{of}" if there else "never"
    said = strong(shown(middle)) if middle == least else shown(middle)
    return said if there == len(values) else said + of


def _at(points: Points, step: float) -> float:
    """The height of a curve at a step, on the line between two evaluations."""
    for (before, low), (after, high) in pairwise(points):
        if step <= after:
            return low + (high - low) * (step - before) / (after - before)
    return points[-1][1]


def _first(study: Recorded, steps: Mapping[str, float]) -> str:
    loss = min(steps, key=lambda name: steps[name])
    if steps[loss] == math.inf:
        return "none"
    return f"{study.sheet.losses[loss].symbol}, {steps[loss]:.0f} steps"
