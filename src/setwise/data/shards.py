"""Sets of any number as Parquet files that a `SetLoader` streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from torch import Tensor

from setwise.data.checks import require_int
from setwise.files import unfinished

Example = Mapping[str, Any]


def write_sets(
    folder: str | Path,
    examples: Iterable[Example],
    *,
    rows_per_group: int = 1024,
    groups_per_file: int = 64,
) -> int:
    """Write examples as Parquet files into a new folder, for `SetLoader`; returns their number.

    An example has the same fields as all others: tensors, arrays or numbers. What has two
    dimensions is a set [n, F], of any n; of anything else all examples have the same shape. Files
    are named ``sets-00000-of-00016.parquet`` and so on, and their pages have checksums. The folder
    is there when all are written: whoever is stopped before leaves nothing behind.

    Args:
        folder: where to; it must not exist yet.
        examples: any iterable, read once; ``rows_per_group`` of them are in memory at once.
        rows_per_group: examples that are read at once, a row group of Parquet. A `SetLoader`
            shuffles groups first, so that smaller ones shuffle better, and take longer to read.
        groups_per_file: row groups in a file.

    >>> import tempfile, torch
    >>> from setwise.data import SetLoader, write_sets
    >>> examples = ({"picture": torch.zeros(3, 8, 8), "objects": torch.ones(n, 5)} for n in (2, 4))
    >>> with tempfile.TemporaryDirectory() as place:
    ...     count = write_sets(f"{place}/train", examples)
    ...     batch = next(iter(SetLoader(f"{place}/train", batch_size=2)))
    >>> count, {name: tuple(tensor.shape) for name, tensor in batch.items()}
    (2, {'picture': (2, 3, 8, 8), 'objects': (2, 4, 5), 'objects_valid': (2, 4)})
    """
    folder = Path(folder)
    require_int("rows_per_group", rows_per_group, 1)
    require_int("groups_per_file", groups_per_file, 1)
    if folder.exists():
        raise FileExistsError(f"{folder}: expected the name of a new folder, it is there already")
    rows = iter(examples)
    groups = iter(lambda: list(islice(rows, rows_per_group)), [])
    with unfinished(folder, folder=True) as place:
        schema: pa.Schema | None = None
        files: list[Path] = []
        count = 0
        for first in groups:
            schema = _schema(first[0]) if schema is None else schema
            files.append(place / str(len(files)))
            with pq.ParquetWriter(
                files[-1], schema, compression="zstd", write_page_checksum=True
            ) as writer:
                for group in chain([first], islice(groups, groups_per_file - 1)):
                    writer.write_table(_table(schema, group, count), row_group_size=len(group))
                    count += len(group)
        if not files:
            raise ValueError("examples: expected at least one")
        for number, file in enumerate(files):
            file.rename(place / f"sets-{number:05}-of-{len(files):05}.parquet")
        place.rename(folder)
    return count


def _schema(first: Example) -> pa.Schema:
    if not isinstance(first, Mapping) or not first:
        raise TypeError(
            f"examples: expected mappings of names to tensors, as {{'objects': tensor}}, got "
            f"{type(first).__name__}"
        )
    return pa.schema([(name, _kind(name, _array(name, value))) for name, value in first.items()])


def _table(schema: pa.Schema, group: list[Example], start: int) -> pa.Table:
    for number, example in enumerate(group, start):
        if not isinstance(example, Mapping) or example.keys() != set(schema.names):
            raise ValueError(
                f"examples: number {number} does not have the fields of the first, "
                f"{', '.join(schema.names)}"
            )
    return pa.table([_column(field, group, start) for field in schema], schema=schema)


def _column(field: pa.Field, group: list[Example], start: int) -> pa.Array:
    name, kind = field.name, field.type
    arrays = [_array(name, example[name]) for example in group]
    expected = None  # kinds take long to make: most arrays are like the one before
    for number, array in enumerate(arrays, start):
        if _form(array) == expected:
            continue
        if (found := _kind(name, array)) != kind:
            raise ValueError(f"examples: {name} of number {number} is {found}, the first is {kind}")
        expected = _form(array)
    if pa.types.is_list(kind):
        ends = np.cumsum([0, *(len(array) for array in arrays)], dtype=np.int32)
        values = pa.array(np.concatenate(arrays).reshape(-1))
        elements = pa.FixedSizeListArray.from_arrays(values, type=kind.value_type)
        return pa.ListArray.from_arrays(pa.array(ends), elements, type=kind)
    values = pa.array(np.stack(arrays).reshape(-1))
    if isinstance(kind, pa.FixedShapeTensorType):
        stored = pa.FixedSizeListArray.from_arrays(values, type=kind.storage_type)
        return pa.ExtensionArray.from_storage(kind, stored)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(values, type=kind)
    return values


def _kind(name: str, array: NDArray[Any]) -> pa.DataType:
    number = pa.from_numpy_dtype(array.dtype)
    if array.ndim == 0:
        return number
    shape = _form(array)[-1]
    if 0 in shape:
        raise ValueError(f"examples: {name} has shape {array.shape}, of which nothing can be kept")
    if array.ndim == 1:
        return pa.list_(number, shape[0])
    if array.ndim == 2:
        return pa.list_(pa.list_(number, shape[0]))
    return pa.fixed_shape_tensor(number, shape)


def _form(array: NDArray[Any]) -> tuple[Any, ...]:
    return array.dtype, array.ndim, array.shape[1:] if array.ndim == 2 else array.shape


def _array(name: str, value: Any) -> NDArray[Any]:
    try:
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
        if array.dtype.kind in "fiub":
            return array
        told = f"an array of {array.dtype}"
    except (TypeError, ValueError):  # bfloat16, or lists of different lengths
        told = f"a tensor of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
    raise TypeError(
        f"examples: expected a tensor, an array or a number for {name}, of a type that NumPy has, "
        f"got {told}"
    )
