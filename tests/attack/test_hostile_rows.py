"""Rows and sets from anywhere: read, or refused in one line that names the file."""

from __future__ import annotations

import io
import json
import random
import tempfile
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hostile import flipped, mutated, shortened
from limits import failures, within_limits
from setwise.cli.new import rectangles
from setwise.data.parquet import find_blocks, read_block
from setwise.data.rows import line_of, read_rows
from setwise.experiments.tasks.rows import rows_data

# Slow: a child process and 360 files. tests/cli/test_own_rows.py has some of each kind.
pytestmark = pytest.mark.slow
CASES = 360
ROWS = rectangles(12)
END = 600  # bytes of a Parquet file that say what is where, or more


@cache
def packed(sets: bool) -> bytes:
    """The rows, or sets of numbers, as Parquet."""
    file = io.BytesIO()
    numbers = {"x": [1.0] * 12, "objects": [[[0.5, 1.0]] * (n % 3) for n in range(12)]}
    pq.write_table(pa.table(numbers) if sets else pa.Table.from_pylist(ROWS), file)
    return file.getvalue()


def damaged(seed: int) -> tuple[str, bytes]:
    """The ending of the file, and what is in it."""
    rng, how = random.Random(seed), seed % 6
    if how == 0:
        rows = mutated({"rows": ROWS}, rng)["rows"] if rng.random() < 0.9 else []
        rows = rows if isinstance(rows, list) else [rows]
        return ".jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode()
    if how in (1, 2):
        text = "\n".join(map(line_of, ROWS)).encode()
        return ".jsonl", [shortened, flipped][how - 1](text, rng)
    data = packed(sets=bool(rng.randrange(2)))
    if how == 3:
        return ".parquet", shortened(data, rng)
    if how == 4:
        return ".parquet", flipped(data, rng)
    return ".parquet", data[:-END] + flipped(data[-END:], rng)


def attempt(seed: int) -> str:
    ending, content = damaged(seed)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / f"rows{ending}"
        path.write_bytes(content)
        uses = [read_rows, lambda path: rows_data(path, "objects", None, 0.25)]
        if ending == ".parquet":
            uses.append(lambda path: [read_block(block) for block in find_blocks(path)[0]])
        texts = []
        for use in uses:
            try:
                use(path)
            except ValueError as error:
                texts.append(str(error))
        for said in texts:
            assert said.startswith(f"{path}: "), said
            assert "\n" not in said
    return texts[0] if texts else ""


def test_every_file_is_read_or_refused_in_one_line() -> None:
    found = within_limits(attempt, range(CASES), seconds=20, megabytes=1500)
    assert not failures(found)
    assert CASES // 2 < sum(1 for one in found if one.value) < CASES
