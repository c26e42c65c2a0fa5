"""Minimum-cost assignment for a batch of problems: on the device, or on the host.

Legend: B problems, M rows, N columns.

Only what is valid takes part. As many pairs are matched as can be, without those that are forbidden
by a cost of infinity, and of all such matchings the cheapest is found. A problem with a cost of NaN
or minus infinity has no cheapest: nothing of it is matched.
"""

from __future__ import annotations

from importlib import import_module

import torch
from torch import Tensor

from setwise.kernels import dispatch, host_assignment
from setwise.kernels.operators import fold_mapped_dimension
from setwise.kernels.transforms import is_eager

UNMATCHED = host_assignment.UNMATCHED

# Of more columns, a program on the device does not have the registers.
MOST_COLUMNS = 4096


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
    return host_assignment.assign(cost, row_valid, column_valid)


def _suits_device(cost: Tensor) -> bool:
    return cost.is_cuda and dispatch._has_triton() and max(cost.shape[1:]) <= MOST_COLUMNS
