"""Files of records, checked as they are read: what is wrong is told with the file and the line."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from setwise.experiments import store

NUMBER = (int, float)
TEXT_OR_NOTHING = (str, type(None))
Kinds = Mapping[str, type | tuple[type, ...]]
_WORDS: dict[type | tuple[type, ...], str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a whole number",
    NUMBER: "a number",
    TEXT_OR_NOTHING: "a text or null",
}


def read(path: Path, check: Callable[[Any], None]) -> list[dict[str, Any]]:
    """All records of a file, none if there is no such file; ``check`` raises for a bad one."""
    try:
        records = store.read(path)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a file of records: {error}") from error
    for number, record in enumerate(records, start=1):
        try:
            check(record)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: not a record: {error}") from error
    return records


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
        finite = not isinstance(value, float) or math.isfinite(value)
        if not isinstance(value, kind) or not finite:
            raise ValueError(f"{name}: expected {_WORDS[kind]}, got {str(value)[:40]}")
