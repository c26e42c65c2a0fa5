"""Rows of tensors found by their values.

Legend: S rows of a table, n numbers of a row; ``*`` any leading dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor


def row_keys(rows: Tensor) -> list[bytes]:
    """A key for every row of [*, n], one after the other; of one type, equal rows have equal keys.

    >>> one, two, three = row_keys(torch.tensor([[1, 2], [3, 4], [1, 2]]))
    >>> one == three, one == two
    (True, False)
    """
    flat = rows.detach().cpu().reshape(-1, rows.shape[-1])
    if flat.is_floating_point():
        flat = flat + 0.0  # -0 equals 0, but has other bits
    return [row.tobytes() for row in flat.numpy()]


class RowTable:
    """Where in a table [S, n] a row is; of equal ones, the last.

    >>> RowTable(torch.tensor([[1, 2], [3, 4]])).find(torch.tensor([[3, 4], [2, 1]]))
    tensor([ 1, -1])
    """

    def __init__(self, rows: Tensor) -> None:
        self._dtype = rows.dtype
        self._places = {key: place for place, key in enumerate(row_keys(rows))}

    def __len__(self) -> int:
        """How many distinct rows there are."""
        return len(self._places)

    def find(self, rows: Tensor) -> Tensor:
        """The places [*] of rows [*, n]; -1 for those that the table does not have."""
        found = [self._places.get(key, -1) for key in row_keys(rows.to(self._dtype))]
        return torch.tensor(found, dtype=torch.int64).reshape(rows.shape[:-1])
