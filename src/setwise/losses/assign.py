"""Cheapest one-to-one matchings of whatever has a cost for each pair."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from setwise import values
from setwise.arguments import check_valid, require_dense
from setwise.kernels.assignment import assign as solve


def assign(
    cost: Tensor, *, row_valid: Tensor | None = None, column_valid: Tensor | None = None
) -> Tensor:
    r"""The column that each row is matched with so that the summed cost is least: [*, M].

    .. math:: \min_{\pi\ \mathrm{injective}} \sum_i c_{i \pi(i)}

    ``cost`` is [*, M, N], of any real type. ``row_valid`` and ``column_valid`` are masks [*, M] and
    [*, N] of booleans, or lengths [*] of integers: a problem is as large as what is valid of it. No
    column is given twice; a row that gets none, because it is not valid or there are too few, has
    -1. For the largest sum, give ``-cost``.

    A cost of infinity forbids a pair. As many pairs are matched as can be, and of all such
    matchings the result is the cheapest; of several it is one. A cost of NaN or minus infinity is
    an error on the CPU; on a GPU, where nothing is read back, no row of its problem is matched.

    The result is exact: sums are of float64. On a GPU every problem is solved by one program, and
    nothing waits for the host; problems with a side of more than 4,096 are solved there, as those
    of CPU tensors are, in ``torch.get_num_threads()`` threads: by SciPy's
    ``linear_sum_assignment``, or where it is installed (``pip install 'setwise[assign]'``) by lapx,
    which takes a fraction of the time. Of several cheapest matchings these may choose others.

    >>> import torch
    >>> cost = torch.tensor([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0]])
    >>> assign(cost)
    tensor([1, 0])
    >>> assign(cost.mT, column_valid=torch.tensor(1))
    tensor([-1, 0, -1])
    """
    if not isinstance(cost, Tensor):
        raise TypeError(f"cost: expected a torch.Tensor, got {type(cost).__name__}")
    require_dense("cost", cost)
    if cost.is_complex() or cost.dtype == torch.bool:
        raise TypeError(f"cost: expected real numbers, got {cost.dtype}; use cost.float()")
    if cost.dim() < 2:
        raise ValueError(f"cost: expected shape [*, rows, columns], got {tuple(cost.shape)}")
    rows = check_valid("row_valid", row_valid, cost)
    columns = check_valid("column_valid", column_valid, cost.mT)
    lead = cost.shape[:-2]
    costs = cost.detach().reshape(math.prod(lead), *cost.shape[-2:])
    if not costs.is_floating_point():
        costs = costs.double()
    require_comparable("cost", costs, rows, columns)
    return solve(costs, rows, columns).reshape(cost.shape[:-1])


def require_comparable(
    name: str, costs: Tensor, rows: Tensor | None, columns: Tensor | None
) -> None:
    """Raise if a valid pair has a cost of NaN or minus infinity: nothing would be cheapest."""
    if not values.are_readable(costs) or costs.numel() == 0 or costs.amin() > -math.inf:
        return
    wrong = ~(costs > -math.inf)
    for valid, dim in ((rows, -1), (columns, -2)):
        if valid is not None:
            wrong = wrong & valid.unsqueeze(dim)
    if wrong.any():
        number = int(wrong.flatten(1).any(dim=1).nonzero()[0])
        raise ValueError(
            f"{name}: problem {number} of the batch has a cost of NaN or minus infinity, so none "
            f"of its matchings is cheapest; look for NaN or infinite values where it was computed"
        )
