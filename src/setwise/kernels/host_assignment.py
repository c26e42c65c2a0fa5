"""Minimum-cost assignment on the host: by lapx where it is installed, else by SciPy.

Legend: B problems, M rows, N columns; G of the problems are alike.

Both are exact, in float64; lapx takes a part of the time and many problems at once. SciPy is
imported where it is called, here as elsewhere: that takes a third as long as PyTorch does, and most
programs need none of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Costs = NDArray[np.floating[Any]]
Indices = NDArray[np.integer[Any]]

UNMATCHED = -1

# A problem of fewer pairs is not worth a thread of Python's, and a batch of fewer none at all.
PAIRS_FOR_THREADS = 2**13
# Sums of larger costs may overflow, and whoever compares differences of these may search for ever.
LARGEST = 1e150


class Alike(NamedTuple):
    """Problems of one size, which are solved together: G of them, of m rows and n columns."""

    numbers: Indices  # [G], which problems of the batch
    rows: Indices  # [G, m], which of its rows
    columns: Indices  # [G, n]
    costs: Costs  # [G, m, n]


def assign(cost: Tensor, row_valid: Tensor | None, column_valid: Tensor | None) -> Tensor:
    """The column of each row of ``cost`` [B, M, N], or UNMATCHED; see `assignment`."""
    given = cost.cpu() if cost.dtype in (torch.float32, torch.float64) else cost.double().cpu()
    least, largest = (bound.item() for bound in given.aminmax())
    finite, size = math.isfinite(least) and math.isfinite(largest), max(-least, largest)
    whole = finite and row_valid is None and column_valid is None
    if whole and cost.shape[1] <= cost.shape[2]:  # all rows are matched, and come in their order
        return torch.from_numpy(_cheapest(given.numpy(), size)[1]).to(cost.device)
    matching = np.full(cost.shape[:2], UNMATCHED, dtype=np.int64)
    if whole:
        np.put_along_axis(matching, *_cheapest(given.numpy(), size), axis=1)
        return torch.from_numpy(matching).to(cost.device)
    for alike in _problems(given.numpy(), row_valid, column_valid):
        numbers, rows, columns, costs = alike if finite else _comparable(alike)
        allowed = costs < np.inf
        if not finite:
            costs = _with_penalties(costs.astype(np.float64), allowed)
            size = float(np.abs(costs).max(initial=0.0))
        i, j = _cheapest(costs, size)
        kept = allowed[np.arange(len(costs))[:, None], i, j]
        pairs = numbers[:, None], np.take_along_axis(rows, i, 1), np.take_along_axis(columns, j, 1)
        number, row, column = (each[kept] for each in np.broadcast_arrays(*pairs))
        matching[number, row] = column
    return torch.from_numpy(matching).to(cost.device)


def _problems(
    costs: Costs, row_valid: Tensor | None, column_valid: Tensor | None
) -> Iterator[Alike]:
    """What is valid of each problem [B, M, N], if anything is."""
    B, M, N = costs.shape
    has_row, has_column = (
        np.ones((B, size), dtype=bool) if valid is None else valid.cpu().numpy()
        for valid, size in ((row_valid, M), (column_valid, N))
    )
    sizes = np.stack([has_row.sum(axis=1), has_column.sum(axis=1)], axis=1)
    for size in np.unique(sizes[sizes.all(axis=1)], axis=0):
        numbers = np.flatnonzero((sizes == size).all(axis=1))
        rows, columns = (
            has[numbers].nonzero()[1].reshape(len(numbers), -1) for has in (has_row, has_column)
        )
        part = costs[numbers[:, None, None], rows[:, :, None], columns[:, None, :]]
        yield Alike(numbers, rows, columns, part)


def _comparable(alike: Alike) -> Alike:
    """Without problems that have a cost of NaN or minus infinity."""
    are = (alike.costs > -np.inf).all(axis=(1, 2))
    return Alike(alike.numbers[are], alike.rows[are], alike.columns[are], alike.costs[are])


def _with_penalties(costs: Costs, allowed: NDArray[np.bool_]) -> Costs:
    """A forbidden pair costs more than all others of its problem could make up for."""
    axes: dict[str, Any] = {"axis": (1, 2), "keepdims": True, "where": allowed}
    low, high = costs.min(initial=np.inf, **axes), costs.max(initial=-np.inf, **axes)
    low, high = (np.where(np.isfinite(bound), bound, 0.0) for bound in (low, high))
    scale = np.maximum(high - low, np.maximum(np.abs(low), np.abs(high)))
    scale[scale == 0] = 1.0
    penalty: Costs = high + scale * (min(costs.shape[1:]) + 1)
    return np.where(allowed, costs, penalty)


def _cheapest(costs: Costs, size: float) -> tuple[Indices, Indices]:
    """Rows and columns of the pairs of each problem, as many as there can be: [G, min(m, n)].

    No cost is larger than the ``size``, nor less than minus that.
    """
    G, m, n = costs.shape
    if G == 0:
        nothing = np.empty((0, min(m, n)), dtype=np.int64)
        return nothing, nothing
    batched, threads = _lapx(), torch.get_num_threads()
    if batched is not None and size <= LARGEST:
        options = {"extend_cost": m != n, "return_cost": False, "precision": "float64"}
        several = threads if costs.size >= PAIRS_FOR_THREADS else 1
        rows, columns = batched(costs, n_threads=several, **options)
        return _in_rows(rows), _in_rows(columns)
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

    if min(threads, G) == 1 or m * n < PAIRS_FOR_THREADS:
        found = [linear_sum_assignment(one) for one in costs]
    else:
        with ThreadPoolExecutor(min(threads, G)) as pool:  # SciPy lets go of Python's lock
            found = list(pool.map(linear_sum_assignment, costs))
    rows, columns = zip(*found, strict=True)
    return _in_rows(rows), _in_rows(columns)


def _in_rows(arrays: Sequence[Indices]) -> Indices:
    """`numpy.stack`, which takes several times as long for a thousand of them."""
    return np.concatenate(arrays).reshape(len(arrays), -1)


@cache
def _lapx() -> Callable[..., Any] | None:
    """Its solver of batches; there are older ones, and others of the same name, that have none."""
    try:
        solve: Callable[..., Any] | None = getattr(import_module("lap"), "lapjvr_batch", None)
    # One that is broken, being made for another NumPy for instance, may raise anything.
    except Exception:
        return None
    return solve
