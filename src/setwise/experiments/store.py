"""Records of finished runs: one JSON object a line, appended whole or not at all.

Several processes may append to the same file. A line that a killed process left unfinished is
removed by the next one to append, and ignored by readers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

COSTS = "cost.jsonl"  # what training together has saved; see `setwise.experiments.cost`


def append(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Add records at the end of a file; a kill in the middle leaves the first of them, whole."""
    import fcntl  # only here: reading works where there is no such module

    lines = "".join(json.dumps(record, allow_nan=False) + "\n" for record in records).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
        file.truncate(_end_of_last_line(file))
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> list[dict[str, Any]]:
    """All whole records of a file; none if it does not exist."""
    if not path.exists():
        return []
    *lines, _unfinished = path.read_text(encoding="utf-8").split("\n")
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: not a record: {error}") from error
    return records


def _end_of_last_line(file: Any) -> int:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 2**20))  # a record is far shorter
    start = file.tell()
    tail = file.read()
    end = tail.rfind(b"\n")
    return start + end + 1
