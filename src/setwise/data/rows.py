"""Rows of a user's own file: JSON Lines, or Parquet where pyarrow is installed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from setwise.files import atomic_write, require_regular
from setwise.outside import named, parse_json

Row = dict[str, Any]

ENDINGS = (".jsonl", ".parquet")
# They are held in memory as Python objects, which takes several times as much.
_MOST_BYTES, _MOST_VALUES = 2**30, 2**27


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, by its ending; each is a dictionary with a value for every column.

    What is wrong with the file is a ``ValueError`` that names it, and the line.
    """
    require_regular(path)
    if path.suffix not in ENDINGS:
        raise ValueError(f"{path}: expected a file that ends in {' or '.join(ENDINGS)}")
    if (size := path.stat().st_size) > _MOST_BYTES:
        raise ValueError(
            f"{path}: {size} bytes, more than the {_MOST_BYTES} that are read into memory"
        )
    with named(path):
        rows = _read_parquet(path) if path.suffix == ".parquet" else _read_lines(path)
        if not rows:
            raise ValueError("has no rows")
    return rows


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """JSON Lines, in one step; the folder is made if it is missing."""
    with atomic_write(path) as place, place.open("w", encoding="utf-8") as file:
        file.writelines(line_of(row) + "\n" for row in rows)


def line_of(row: Row) -> str:
    """A row as a line of JSON."""
    return json.dumps(row, ensure_ascii=False)


def column(rows: Sequence[Row], name: str) -> list[Any]:
    """The values of a column, which every row must have.

    >>> column([{"a": 1}, {"b": 2}], "a")
    Traceback (most recent call last):
    ValueError: row 2 has no column 'a'; it has b
    """
    for number, row in enumerate(rows, 1):
        if name not in row:
            raise ValueError(f"row {number} has no column {name!r}; it has {', '.join(row)}")
    return [row[name] for row in rows]


def _read_lines(path: Path) -> list[Row]:
    rows = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    rows.append(parse_json(line))
                except ValueError as error:
                    raise ValueError(f"line {number}: {error}") from error
    return rows


def _read_parquet(path: Path) -> list[Row]:
    try:
        from setwise.data.parquet import opened
    except ModuleNotFoundError as error:
        raise ValueError("Parquet needs pyarrow: pip install 'setwise[data]'") from error
    with opened(path) as file:
        # A few bytes may be the same number a billion times.
        groups = (file.metadata.row_group(place) for place in range(file.num_row_groups))
        values = sum(g.column(place).num_values for g in groups for place in range(g.num_columns))
        if values > _MOST_VALUES:
            raise ValueError(f"{values} values, more than the {_MOST_VALUES} read into memory")
        rows: list[Row] = file.read().to_pylist()
    return rows
