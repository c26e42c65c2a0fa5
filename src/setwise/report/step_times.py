"""What a step of training takes, as far as it was measured or can be told from records.

Whoever measures steps of an experiment writes a line for each cell to the `file_of` it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from setwise.experiments.experiment import Sheet
from setwise.experiments.records import Record
from setwise.report import records as files
from setwise.report.effort import Key, Times, curve
from setwise.report.tables import Recorded

_TIMED: files.Kinds = {
    **{"experiment": str, "scenario": str, "loss": str, "members": int},
    **{"milliseconds": files.NUMBER, "environment": dict},
}


def file_of(results: Path, experiment: str) -> Path:
    """Where the measured steps of an experiment are, if any were."""
    return results / "step-times" / f"{experiment}.jsonl"


def step_times(results: Path, studies: Iterable[Recorded]) -> dict[Key, float]:
    """Seconds of a step of one network, of those that were timed or trained together.

    Of cells that were not timed: what their training took, where no other loss was part of it.
    """
    studies = list(studies)
    return _of_trainings(studies) | {
        _key(one): one["milliseconds"] / one["members"] / 1e3
        for study in studies
        for one in _timed(results, study)
    }


def said_of_times(results: Path, study: Recorded, times: Times) -> str:
    """Where the seconds of an experiment come from, as far as there are any."""
    cells = {(study.sheet.name, run["scenario"], run["loss"]) for run in study.records}
    measured = [one for one in _timed(results, study) if _key(one) in cells]
    shared = cells & times.keys() - {_key(one) for one in measured}
    parts = []
    if measured:
        members = " or ".join(str(n) for n in sorted({one["members"] for one in measured}))
        where = sorted({one["environment"]["hardware"] for one in measured})
        parts.append(
            f"measured on steps alone, where {members} with the same loss take them together on "
            f"{' and '.join(where)}"
        )
    if shared:
        parts.append(
            f"{_of(shared, cells)}shares of the time of whole trainings, evaluations and whatever "
            f"else the machine did included, which is rough"
        )
    if untimed := cells - times.keys():
        parts.append(f"{_of(untimed, cells)}not known, for several losses were trained together")
    return f"Seconds are those of one network: {'; '.join(parts)}."


def _timed(results: Path, study: Recorded) -> list[Record]:
    """What was measured of steps alone."""
    sheet = study.sheet
    return files.read(file_of(results, sheet.name), partial(_check, sheet))


def _check(sheet: Sheet, line: Record) -> None:
    files.require(line, _TIMED)
    files.require(line["environment"], {"hardware": str})
    files.check_cell(sheet, line)
    if line["members"] < 1 or line["milliseconds"] <= 0:
        raise ValueError("members, milliseconds: expected networks and a time, got none")


def _of_trainings(studies: Iterable[Recorded]) -> dict[Key, float]:
    found: dict[Key, float] = {}
    for study in studies:
        together: dict[str, set[str]] = defaultdict(set)
        for record in study.records:
            together[str(record.get("ensemble"))].add(record["loss"])
        for record in study.records:
            alone = len(together[str(record.get("ensemble"))]) == 1
            if alone and record["seconds"] > 0:
                own = record["seconds"] / record["members"] / curve(study, record)[-1][0]
                found[study.sheet.name, record["scenario"], record["loss"]] = own
    return found


def _key(told: Record) -> Key:
    return told["experiment"], told["scenario"], told["loss"]


def _of(some: set[Key], cells: set[Key]) -> str:
    return "" if some == cells else f"in {len(some)} of {len(cells)} cells "
