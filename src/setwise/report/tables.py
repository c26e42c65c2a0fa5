"""From the records of runs to the cells of tables: best, median and worst beside a reference's.

An experiment is two files in a folder of results: ``NAME.jsonl`` with its records and ``NAME.json``
with its sheet. A cell is a loss in a scenario; its runs differ in their seeds and in nothing else.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from setwise.experiments import store
from setwise.experiments.experiment import Sheet
from setwise.experiments.records import Record as Record
from setwise.experiments.settings import check_settings
from setwise.outside import read_json
from setwise.report import records as files
from setwise.report.records import HELDOUT


@dataclass(frozen=True)
class Recorded:
    """What a folder of results holds of an experiment."""

    sheet: Sheet
    records: list[Record]  # none where nothing was trained yet
    costs: list[Record]  # what was measured of training one network alone


@dataclass(frozen=True)
class Cell:
    """What the runs of a loss in a scenario came to."""

    loss: str
    scenario: str
    # The published number; None where there is none.
    reference: float | None
    best: float
    median: float
    worst: float
    runs: int
    # None where nothing was held out.
    heldout_best: float | None = None
    heldout_median: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The fields, without those of a held-out set where there is none.

        JSON knows no infinity: of what has diverged there is null.
        """
        return {
            name: _rounded(value)
            for name, value in vars(self).items()
            if value is not None or not name.startswith(HELDOUT)
        }


def read_experiments(results: Path) -> dict[str, Recorded]:
    """All experiments of a folder by name: those with a reference first, then the others.

    Files that are neither records nor sheets are none of ours.
    """
    costs = files.read(results / store.COSTS, files.check_cost)
    found = []
    for path in sorted(results.glob("*.json*")):
        if path.suffix == ".jsonl":
            _require_sheet(path)
        elif path.suffix == ".json" and _is_sheet(path):
            sheet = files.read_sheet(path)
            of_it = [cost for cost in costs if cost["experiment"] == sheet.name]
            found.append(Recorded(sheet, read_records(sheet, results), of_it))
    found.sort(key=_place)
    return {one.sheet.name: one for one in found}


def _place(recorded: Recorded) -> tuple[bool, str]:
    """Those with a reference first, then by name."""
    return recorded.sheet.reference is None, recorded.sheet.name


def read_all(folders: Iterable[Path]) -> dict[str, Recorded]:
    """The experiments of several folders; one that is in two of them counts in the first."""
    found: dict[str, Recorded] = {}
    for folder in folders:
        found = read_experiments(folder) | found
    return dict(sorted(found.items(), key=lambda item: _place(item[1])))


def read_records(sheet: Sheet, results: Path) -> list[Record]:
    """The runs of an experiment, checked; none where nothing was trained yet.

    Where a run was recorded twice, the first record counts: it is the one that later commands took
    for done.
    """
    path = results / f"{sheet.name}.jsonl"
    runs: dict[str, Record] = {}
    for record in files.read(path, partial(files.check_run, sheet)):
        runs.setdefault(record["run"], record)
    check_settings(sheet.name, (record["config"] for record in runs.values()))
    _check_epochs(path, runs.values())
    return list(runs.values())


def cells(sheet: Sheet, records: Sequence[Record]) -> list[Cell]:
    """Every cell that has runs, losses and scenarios in the order of the sheet."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[record["loss"], record["scenario"]].append(record)
    return [
        _cell(sheet, loss, scenario, groups[loss, scenario])
        for loss in losses(sheet, records)
        for scenario in scenarios(sheet, records)
        if (loss, scenario) in groups
    ]


def scenarios(sheet: Sheet, records: Sequence[Record]) -> list[str]:
    """The scenarios that have runs, in the order of the sheet; those it does not have come last."""
    present = {record["scenario"] for record in records}
    known = [name for name in sheet.scenarios if name in present]
    return known + sorted(present.difference(known))


def losses(sheet: Sheet, records: Sequence[Record]) -> list[str]:
    """The losses that have runs, in the order of the sheet."""
    present = {record["loss"] for record in records}
    return [name for name in sheet.losses if name in present]


def best_runs(sheet: Sheet, records: Sequence[Record]) -> set[str]:
    """The run with the best number of each cell; of several, the one with the smallest seed."""
    best: dict[tuple[str, str], str] = {}
    sign = -1 if sheet.better == "higher" else 1
    by_value = sorted(records, key=lambda r: (sign * number(sheet, r), r["seed"]))
    for record in by_value:
        best.setdefault((record["loss"], record["scenario"]), record["run"])
    return set(best.values())


def number(sheet: Sheet, record: Record) -> float:
    """What a run has to show: the metric that is compared; infinitely bad if it has diverged."""
    if sheet.metric not in record["metrics"]:
        raise ValueError(
            f"{sheet.name}: run {record['run']} has no {sheet.metric} among its metrics, "
            f"{', '.join(record['metrics'])}"
        )
    return _number(sheet, record["metrics"][sheet.metric])


def bounds(sheet: Sheet, records: Sequence[Record]) -> tuple[float, float]:
    """Between which the numbers of an experiment are drawn: shares from 0 to 1, others from the
    least to the largest there is."""
    found = list(filter(math.isfinite, (number(sheet, record) for record in records)))
    if sheet.reference is not None:
        found += [value for row in sheet.reference.values.values() for value in row.values()]
    if not found or are_shares(sheet, found):
        return 0.0, 1.0
    return min(found), max(found)


def are_shares(sheet: Sheet, values: Iterable[float]) -> bool:
    """Whether numbers look like rates, which are drawn from 0 to 1 whatever was reached."""
    known = filter(math.isfinite, values)  # of those that have not diverged
    return sheet.better == "higher" and all(0 <= value <= 1 for value in known)


def seconds(records: Sequence[Record]) -> float:
    """What it took to train them: those trained together share the time."""
    return sum(float(record["seconds"]) / record["members"] for record in records)


def _rounded(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return round(value, 6) if math.isfinite(value) else None


def _is_sheet(path: Path) -> bool:
    """Beside runs there must be one; elsewhere, other files may end like sheets."""
    try:
        content = read_json(path)
    except ValueError:
        content = {}
    return {"scenarios", "losses", "metric"} <= content.keys() or _has_runs(path)


def _require_sheet(path: Path) -> None:
    """Refuse runs that nothing is known about."""
    sheet = path.with_suffix(".json")
    if not sheet.exists() and _has_runs(path):
        raise ValueError(
            f"{path}: has records of runs, but their sheet {sheet.name} is missing, which says "
            f"what they compare; the command that trained them writes it: run it once more, "
            f"nothing is trained twice"
        )


def _has_runs(path: Path) -> bool:
    try:
        first: Any = next(iter(store.read(path.with_suffix(".jsonl"))), None)
    except ValueError:
        return False
    return isinstance(first, dict) and {"run", "metrics", "config"} <= first.keys()


def _check_epochs(path: Path, records: Iterable[Record]) -> None:
    """Runs of a cell were measured at the same epochs, or they have no median on the way."""
    first: dict[tuple[str, str], Record] = {}
    for record in records:
        other = first.setdefault((record["loss"], record["scenario"]), record)
        if record["history"].get("epoch") != other["history"].get("epoch"):
            raise ValueError(
                f"{path}: the history of run {record['run']} has other epochs than that of run "
                f"{other['run']}, though both are of {record['loss']} in scenario "
                f"{record['scenario']}"
            )


def _number(sheet: Sheet, value: float | None) -> float:
    return sheet.worst if value is None else float(value)


def _cell(sheet: Sheet, loss: str, scenario: str, records: Sequence[Record]) -> Cell:
    values = sheet.best_first(number(sheet, record) for record in records)
    heldout = sheet.best_first(
        _number(sheet, r["metrics"][HELDOUT]) for r in records if HELDOUT in r["metrics"]
    )
    return Cell(
        loss,
        scenario,
        sheet.published(loss, scenario),
        best=values[0],
        median=median(values),
        worst=values[-1],
        runs=len(values),
        heldout_best=heldout[0] if heldout else None,
        heldout_median=median(heldout) if heldout else None,
    )
