"""Parquet files of sets: one row per example, lists of elements in their columns.

A column is read by its Arrow type:

- ``list<fixed_size_list<T>[F]>``, or ``list<list<T>>`` with lists of equal length: a set [n, F];
- ``list<T>``: a set [n, 1];
- ``fixed_size_list<T>[F]``: a vector [F];
- ``fixed_shape_tensor<T>[...]``: a tensor of that shape, a picture for one;
- ``T``: a number.

``T`` is a floating-point, integer or boolean type. Nothing may be null.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from setwise.files import require_regular
from setwise.outside import named

NUMBERED = re.compile(r".*-(\d{5})-of-(\d{5})\.parquet")


class Block(NamedTuple):
    """A row group, the least that is read at once."""

    path: Path
    group: int
    rows: int


class Column(NamedTuple):
    """A column of some rows: ``values`` [rows, ...], or those of all elements, and their number."""

    values: NDArray[Any]
    lengths: NDArray[np.int64] | None  # [rows], of sets

    def take(self, rows: NDArray[np.int64]) -> Column:
        """Some of the rows, in the given order."""
        if self.lengths is None:
            return Column(self.values[rows], None)
        ends = self.lengths.cumsum()
        lengths = self.lengths[rows]
        # The place of each element: where its set begins, and how many of the set come before it.
        before = np.arange(lengths.sum()) - np.repeat(lengths.cumsum() - lengths, lengths)
        places = np.repeat((ends - self.lengths)[rows], lengths) + before
        return Column(self.values[places], lengths)


Columns = dict[str, Column]


def joined(parts: Sequence[Columns]) -> Columns:
    """Rows below rows."""
    if len(parts) == 1:
        return parts[0]
    result = {}
    for name, first in parts[0].items():
        # Lists of lists do not say how wide they are, and where there are none nobody knows.
        filled = [part[name].values for part in parts if len(part[name].values)] or [first.values]
        _require_one_width(
            name, {values.shape[-1] for values in filled if first.lengths is not None}
        )
        lengths = [n for part in parts if (n := part[name].lengths) is not None]
        result[name] = Column(np.concatenate(filled), np.concatenate(lengths) if lengths else None)
    return result


def find_blocks(source: Path) -> tuple[list[Block], dict[str, str]]:
    """The row groups of all files of a folder, or of one, and the types of their columns.

    All have to have the same columns, and of files that are numbered none may be missing.
    """
    paths = sorted(source.glob("*.parquet")) if source.is_dir() else [source]
    if not paths:
        raise FileNotFoundError(f"{source}: expected a folder with files *.parquet, it has none")
    _require_all(source, paths)
    blocks: list[Block] = []
    columns: dict[str, str] = {}
    for path in paths:
        with opened(path) as file:
            found = {field.name: str(_understood(field)) for field in file.schema_arrow}
            if not columns:
                columns = found
            elif found != columns:
                raise ValueError(
                    f"its columns are not those of {paths[0].name}: {_difference(columns, found)}"
                )
            groups = range(file.metadata.num_row_groups)
            rows = [file.metadata.row_group(group).num_rows for group in groups]
        blocks += [Block(path, group, n) for group, n in enumerate(rows) if n]
    if not blocks:
        raise ValueError(f"{source}: expected sets, all of its files are empty")
    return blocks, columns


def read_block(block: Block) -> Columns:
    """The rows of a row group."""
    with opened(block.path) as file:
        groups = file.metadata.num_row_groups
        if block.group >= groups or file.metadata.row_group(block.group).num_rows != block.rows:
            raise ValueError("it was changed after it was opened; start again")
        table = file.read_row_group(block.group, use_threads=False)
        return {field.name: _column(field.name, table.column(field.name)) for field in table.schema}


@contextmanager
def opened(path: Path) -> Iterator[pq.ParquetFile]:
    """A file; whatever is wrong with it is a ValueError of one line that names it."""
    require_regular(path)
    with named(path, pa.ArrowException, OSError):
        try:
            file = pq.ParquetFile(path, page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"damaged or cut off, or no Parquet file at all: {error}") from error
        with file:
            yield file


def _require_all(source: Path, paths: Sequence[Path]) -> None:
    numbered = [match for path in paths if (match := NUMBERED.fullmatch(path.name))]
    for match in numbered:
        if (expected := int(match[2])) != len(paths):
            raise ValueError(
                f"{source}: {paths[0].name} is one of {expected} files, but there are {len(paths)}"
            )


def _difference(expected: dict[str, str], found: dict[str, str]) -> str:
    told = []
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            told.append(
                f"{name} is {found.get(name, 'missing')}, not {expected.get(name, 'there')}"
            )
    return "; ".join(told) or f"their order is {', '.join(found)}, not {', '.join(expected)}"


def _understood(field: pa.Field) -> pa.DataType:
    inner = kind = field.type
    if isinstance(kind, pa.FixedShapeTensorType) or pa.types.is_fixed_size_list(kind):
        inner = kind.value_type
    elif _is_list(kind):
        inner = kind.value_type
        if _is_list(inner) or pa.types.is_fixed_size_list(inner):
            inner = inner.value_type
    if not _is_number(inner):
        raise ValueError(
            f"column {field.name}: expected numbers, or lists of elements that are lists of "
            f"numbers, got {kind}"
        )
    return kind


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)


def _column(name: str, chunks: pa.ChunkedArray) -> Column:
    array = chunks.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # of no rows, or of more than fit into one array
        array = pa.concat_arrays(array.chunks)
    kind = array.type
    if isinstance(kind, pa.FixedShapeTensorType):
        values = _numbers(name, array.storage, math.prod(kind.shape))
        return Column(values.reshape(len(array), *kind.shape), None)
    if pa.types.is_fixed_size_list(kind):
        return Column(_numbers(name, array, kind.list_size), None)
    if not _is_list(kind):
        return Column(_numbers(name, array, None), None)
    _require_no_null(name, array)
    ends = array.offsets.to_numpy()
    lengths = np.diff(ends).astype(np.int64)
    elements = array.flatten()
    if pa.types.is_fixed_size_list(elements.type):
        return Column(_numbers(name, elements, elements.type.list_size), lengths)
    if not _is_list(elements.type):
        return Column(_numbers(name, elements, None).reshape(-1, 1), lengths)
    _require_no_null(name, elements)
    widths = set(np.unique(np.diff(elements.offsets.to_numpy())).tolist())
    _require_one_width(name, widths)
    values = _numbers(name, elements.flatten(), None)
    return Column(values.reshape(len(elements), max(widths, default=0)), lengths)


def _numbers(name: str, array: pa.Array, width: int | None) -> NDArray[Any]:
    """[rows], or of lists of a fixed width [rows, width]."""
    _require_no_null(name, array)
    if width is not None:
        flat = array.flatten()
        _require_no_null(name, flat)
        return flat.to_numpy(zero_copy_only=False).reshape(len(array), width)
    return array.to_numpy(zero_copy_only=False)


def _require_one_width(name: str, widths: set[int]) -> None:
    if len(widths) > 1:
        some = ", ".join(map(str, sorted(widths)[:5]))
        raise ValueError(f"column {name}: all elements need as many features, got {some}")


def _require_no_null(name: str, array: pa.Array) -> None:
    if array.null_count:
        raise ValueError(f"column {name}: expected a value in every row, {array.null_count} null")
