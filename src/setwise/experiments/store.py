"""Records of finished runs: one JSON object a line, appended whole or not at all.

Several processes may append to the same file. What is appended together is there together: it is
written with all that was there before to a new file, which then takes the place of the old one. A
disk that is full, or a kill, leaves the file as it was.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from setwise.files import atomic_write, locked, require_regular

COSTS = "cost.jsonl"  # what training together has saved; see `setwise.experiments.cost`


def append(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Add records at the end of a file; those of a ``run`` that is there already are left out.

    Processes that train overlapping runs side by side come to the same, and the first one counts.
    """
    new = [(record.get("run"), json.dumps(record, allow_nan=False)) for record in records]
    if path.is_symlink():
        require_regular(path)
        path = path.resolve()
    with locked(path):
        require_regular(path)
        there = _lines(path)
        known = [_record(path, number, line).get("run") for number, line in enumerate(there, 1)]
        lines = there + [line for run, line in new if run is None or run not in known]
        with atomic_write(path) as unfinished:
            unfinished.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            shutil.copymode(path, unfinished)


def read(path: Path) -> list[dict[str, Any]]:
    """All whole records of a file; none if it does not exist."""
    if not os.path.lexists(path):
        return []
    require_regular(path)
    return [_record(path, number, line) for number, line in enumerate(_lines(path), 1)]


def _lines(path: Path) -> list[str]:
    """Those of a file, and a last one without an end if it is whole.

    A part of one, which earlier releases left where they were killed, is no JSON: of an object the
    end is its last character.
    """
    try:
        *lines, last = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a file of records: {error}") from error
    try:
        json.loads(last)
    except (ValueError, RecursionError):
        return lines
    return [*lines, last]


def _record(path: Path, number: int, line: str) -> dict[str, Any]:
    """One loader for every line of records."""
    try:
        record = json.loads(line, parse_constant=_no_number)
        if not isinstance(record, dict):
            raise ValueError(f"expected an object with fields, got {line[:40]!r}")
        if "\\ud" in line.lower():
            json.dumps(record, ensure_ascii=False).encode()  # half of a pair is no text
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}, line {number}: not a record: {error}") from error
    return record


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
