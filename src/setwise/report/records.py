"""Files of records, checked as they are read: what is wrong is told with the file and the line."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from setwise.experiments import store
from setwise.experiments.experiment import Sheet
from setwise.experiments.records import Record, upgraded
from setwise.files import require_regular

NUMBER = (int, float)
NUMBER_OR_NOTHING = (int, float, type(None))
TEXT_OR_NOTHING = (str, type(None))
Kinds = Mapping[str, type | tuple[type, ...]]
_WORDS: dict[type | tuple[type, ...], str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a whole number",
    NUMBER: "a number",
    NUMBER_OR_NOTHING: "a number or null",
    TEXT_OR_NOTHING: "a text or null",
}
_MOST_DECIMALS = 17  # which no float64 has more of
HELDOUT = "heldout"  # the metric of examples that were not trained on, if there are such

# What is needed of a record, of its environment and of its config; there may be more.
_RUN: Kinds = {
    **{"run": str, "experiment": str, "scenario": str, "loss": str, "seed": int},
    **{"metrics": dict, "history": dict, "config": dict, "environment": dict},
    **{"members": int, "seconds": NUMBER},
}
_ENVIRONMENT: Kinds = {"hardware": str, "torch": str}
_CONFIG: Kinds = {"loss": str, "scenario": str, "data": dict, "network": dict, "schedule": dict}
_COST: Kinds = {"experiment": str, "networks": int, "seconds": NUMBER, "seconds_alone": dict}
_SHEET: Kinds = {
    **{"name": str, "title": str, "metric": str, "metric_label": str, "decimals": int},
    **{"scenarios": dict, "losses": dict, "curves_of": str, "command": str},
    "remark": str,
}
_REFERENCE: Kinds = {
    **{"source": str, "values": dict, "decimals": int, "caption": str, "other_scale": str},
}


def numbered_pictures(folder: Path, count: int) -> list[bytes]:
    """The files 00.png, 01.png, ... of a folder."""
    paths = [folder / f"{number:02}.png" for number in range(count)]
    for path in paths:
        require_regular(path)
    return [path.read_bytes() for path in paths]


def read(path: Path, check: Callable[[Record], None]) -> list[Record]:
    """All records of a file, in their current form; ``check`` raises a ValueError for a bad one.

    There are none if there is no such file.
    """
    try:
        lines = store.read(path)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a file of records: {error}") from error
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = upgraded(line)
            check(record)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {number}: not a record: {error}") from error
        records.append(record)
    return records


def read_sheet(path: Path) -> Sheet:
    """The sheet of an experiment, which has to bear the name of its file."""
    sheet = Sheet.read(path)
    try:
        require(vars(sheet), _SHEET)
        _check_decimals(sheet.decimals)
        require(sheet.scenarios, dict.fromkeys(sheet.scenarios, str))
        for style in sheet.losses.values():
            require(vars(style), {"symbol": str, "label": str})
        if sheet.reference is not None:
            require(vars(sheet.reference), _REFERENCE)
            _check_decimals(sheet.reference.decimals)
            for numbers in sheet.reference.values.values():
                require(numbers, dict.fromkeys(numbers, NUMBER))
        if sheet.name != path.stem:
            raise ValueError(f"name: expected {path.stem}, as the file is named, got {sheet.name}")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: not the sheet of an experiment: {error}") from error
    return sheet


def _check_decimals(decimals: int) -> None:
    if not 0 <= decimals <= _MOST_DECIMALS:
        raise ValueError(f"decimals: expected 0 to {_MOST_DECIMALS}, got {decimals}")


def require(record: Any, kinds: Kinds) -> None:
    """Refuse what is no object with these fields, each of its kind.

    >>> require({"seconds": None}, {"seconds": NUMBER})
    Traceback (most recent call last):
    ValueError: seconds: expected a number, got None
    """
    if not isinstance(record, dict):
        raise ValueError(f"expected an object with fields, got {str(record)[:40]!r}")
    for name, kind in kinds.items():
        if name not in record:
            raise ValueError(f"{name}: is missing")
        value = record[name]
        # Python takes a truth value for a whole number.
        wrong = isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value))
        if not isinstance(value, kind) or wrong:
            raise ValueError(f"{name}: expected {_WORDS[kind]}, got {str(value)[:40]}")


def check_run(sheet: Sheet, record: Record) -> None:
    """Refuse what is no run of an experiment."""
    require(record, _RUN)
    require(record["environment"], _ENVIRONMENT)
    require(record["config"], _CONFIG)
    check_cell(sheet, record)
    if record["members"] < 1:
        raise ValueError(f"members: expected one or more, got {record['members']}")
    if "planning" in record["config"] or "problems" in record:
        _check_planning(record)
    metrics = record["metrics"]
    # What has diverged has no number.
    compared = [sheet.metric, *({HELDOUT} & metrics.keys())]
    require(metrics, dict.fromkeys(compared, NUMBER_OR_NOTHING))
    _check_history(record["history"])


def check_cell(sheet: Sheet, record: Record) -> None:
    """Refuse what is of another experiment, or of a loss that it does not compare."""
    if record["experiment"] != sheet.name:
        raise ValueError(f"experiment: expected {sheet.name}, got {record['experiment']}")
    if record["loss"] not in sheet.losses:
        known = ", ".join(sheet.losses)
        raise ValueError(f"loss: {sheet.name}.json has no {record['loss']}; it has {known}")


def check_cost(record: Record) -> None:
    """Refuse what is not about the cost of training; see `setwise.experiments.cost`."""
    require(record, _COST)
    require(record["seconds_alone"], {"plain": NUMBER, "compiled": NUMBER})
    if record["seconds"] <= 0:
        raise ValueError(f"seconds: expected more than none, got {record['seconds']}")


def _check_planning(record: Record) -> None:
    require(record["config"], {"trained": dict, "planning": dict})
    require(record, {"problems": list})
    for problem in record["problems"]:
        require(problem, {"failure": TEXT_OR_NOTHING})


def _check_history(history: dict[str, Any]) -> None:
    require(history, dict.fromkeys(history, list))
    # What was not measured while training is empty.
    lengths = {name: len(column) for name, column in history.items() if column}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"history: expected columns of one length, got {told}")
    for name, column in history.items():
        wrong = [v for v in column if not (v is None or isinstance(v, NUMBER))]
        if wrong:
            raise ValueError(f"history: expected numbers, got {wrong[0]!r} in {name}")
