"""Minimum-cost assignment for a batch of problems: on the device, or on the host by SciPy.

Legend: B problems, M rows, N columns.

Only what is valid takes part. As many pairs are matched as can be, without those that are forbidden
by a cost of infinity, and of all such matchings the cheapest is found. A problem with a cost of NaN
or minus infinity has no cheapest: nothing of it is matched.

SciPy is imported where it is called, here as elsewhere: that takes a third as long as PyTorch does,
and most programs need none of it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from setwise.kernels import dispatch
from setwise.kernels.operators import fold_mapped_dimension
from setwise.kernels.transforms import is_eager

UNMATCHED = -1

# Of more columns, a program on the device does not have the registers.
MOST_COLUMNS = 4096
# Problems of fewer pairs are not worth a thread each: SciPy solves them while one is asked for.
PAIRS_FOR_THREADS = 2**13


def assign(cost: Tensor, row_valid: Tensor | None, column_valid: Tensor | None) -> Tensor:
    """The column of each row of ``cost`` [B, M, N], or UNMATCHED: [B, M].

    ``row_valid`` is [B, M] and ``column_valid`` [B, N]; None if all are.
    """
    # To call an operator takes longer than to solve small problems.
    if is_eager() and type(cost) is Tensor:
        return _assign(cost.detach(), row_valid, column_valid)
    return operator(cost, row_valid, column_valid)


@torch.library.custom_op("setwise::assign", mutates_args=())
def operator(cost: Tensor, row_valid: Tensor | None, column_valid: Tensor | None) -> Tensor:
    """`assign` as compilers and transforms see it."""
    return _assign(cost, row_valid, column_valid)


@operator.register_fake
def _(cost: Tensor, row_valid: Tensor | None, column_valid: Tensor | None) -> Tensor:
    return cost.new_empty(cost.shape[:2], dtype=torch.long)


operator.register_vmap(fold_mapped_dimension(operator))


def _assign(cost: Tensor, row_valid: Tensor | None, column_valid: Tensor | None) -> Tensor:
    if 0 in cost.shape:
        return cost.new_full(cost.shape[:2], UNMATCHED, dtype=torch.long)
    if _suits_device(cost):
        solve = import_module("setwise.kernels.triton.assignment").solve
        matching: Tensor = solve(cost, row_valid, column_valid)
        return matching
    return _on_host(cost, row_valid, column_valid)


def _suits_device(cost: Tensor) -> bool:
    return cost.is_cuda and dispatch._has_triton() and max(cost.shape[1:]) <= MOST_COLUMNS


def _on_host(cost: Tensor, row_valid: Tensor | None, column_valid: Tensor | None) -> Tensor:
    B, M, N = cost.shape
    costs = cost.double().cpu().numpy()
    rows, columns = (None if t is None else t.cpu().numpy() for t in (row_valid, column_valid))
    matching = np.full((B, M), UNMATCHED, dtype=np.int64)

    def solve(b: int) -> None:
        i = np.arange(M) if rows is None else np.flatnonzero(rows[b])
        j = np.arange(N) if columns is None else np.flatnonzero(columns[b])
        i, j = _cheapest(costs[b][np.ix_(i, j)], i, j)
        matching[b, i] = j

    threads = min(torch.get_num_threads(), B)
    if threads > 1 and M * N >= PAIRS_FOR_THREADS:
        with ThreadPoolExecutor(threads) as pool:  # SciPy lets go of Python's lock
            list(pool.map(solve, range(B)))
    else:
        for b in range(B):
            solve(b)
    return torch.from_numpy(matching).to(cost.device)


def _cheapest(costs: Any, rows: Any, columns: Any) -> tuple[Any, Any]:
    """The pairs of the cheapest matching: two arrays, of those rows and columns."""
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

    allowed = costs < np.inf
    if not np.isfinite(costs).all():
        known = costs[allowed]
        if allowed.sum() + np.isposinf(costs).sum() < costs.size or np.isneginf(known).any():
            return rows[:0], columns[:0]
        # A forbidden pair costs more than all others could make up for.
        low, high = (known.min(), known.max()) if known.size else (0.0, 0.0)
        scale = max(high - low, abs(low), abs(high)) or 1.0
        costs = np.where(allowed, costs, high + scale * (min(costs.shape) + 1))
    i, j = linear_sum_assignment(costs)
    kept = allowed[i, j]
    return rows[i[kept]], columns[j[kept]]
