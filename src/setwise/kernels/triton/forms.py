"""The forms in which kernels read elements: by columns, in thirds, filled up, as copies."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F_

from setwise.kernels.triton import plans, points, thirds
from setwise.kernels.triton.tiles import blocks_in


class Forms(NamedTuple):
    """Owners and others as a kernel reads them, the latter also as its second product does.

    Points: others by columns. Products in full float32: the `thirds` of both, and which queries
    have more than a high third. Products in tf32: as they are, and others in float16 or transposed;
    see `products.gradients`.
    """

    owners: Tensor
    others: Tensor
    second: Tensor
    long: Tensor  # in full float32; else some tensor, which is not read


def formed(
    owners: Tensor, others: Tensor, level: str, owns_keys: bool, second: str = "same"
) -> Forms:
    """As a kernel for that ``level`` reads them; ``second`` is that of `products.gradients`."""
    F = owners.shape[2]
    if F <= points.MAX_FEATURES:
        columns = _columns(others)
        return Forms(owners, columns, columns, columns)
    if level == "float32":
        queries, keys, long = thirds_of(*((others, owners) if owns_keys else (owners, others)))
        owners, others = (keys, queries) if owns_keys else (queries, keys)
        return Forms(owners, others, others, long)
    row = plans.row_of(F, owners.dtype, level)
    rows = filled_up(others, row)
    copy = rows
    if second == "half":
        copy = filled_up(others.half(), plans.row_of(F, torch.float16, level))
    elif second == "transposed":
        copy = others.mT.contiguous()
    return Forms(filled_up(owners, row), rows, copy, copy)


def filled_up(elements: Tensor, row: int) -> Tensor:
    """Elements [B, n, F] in rows of that length."""
    lacking = row - elements.shape[2]
    return F_.pad(elements, (0, lacking)) if lacking else elements


def thirds_of(queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Those of [B, M, F] and [B, N, F] in one launch: [3, B, M, F] and so on, rows filled up.

    And which queries have more than a high third, [B, M].
    """
    (B, M, F), N, device = queries.shape, keys.shape[1], queries.device
    row = thirds.row_length(F)
    q_thirds, k_thirds = (
        torch.empty(3, B, n, row, device=device, dtype=thirds.DTYPE) for n in (M, N)
    )
    long = torch.empty(B, M, device=device, dtype=torch.int8)
    start, grid = plans.split(B * M, B * N, F)
    start(grid, (queries, keys, q_thirds, k_thirds, long), (B * M, B * N))
    return q_thirds, k_thirds, long


def _columns(elements: Tensor) -> Tensor:
    """Elements [B, n, F] as [B, F, n] of float32, rows padded so that wide loads stay aligned."""
    B, n, F = elements.shape
    if n % 16 == 0 and elements.dtype == torch.float32:
        return elements.mT.contiguous()
    columns = torch.empty(B, F, 16 * blocks_in(n, 16), device=elements.device)
    columns[:, :, :n] = elements.mT
    return columns
