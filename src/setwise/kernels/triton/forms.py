"""The forms in which kernels read elements: by columns, in thirds, rounded, filled up."""

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
    have more than a high third. Products in tf32: rounded to it, and others in float16 or
    transposed; see `products.gradients`.
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
    owners, rows = rows_of(owners, others)
    copy = rows
    if second == "half":
        copy = _half(others)
    elif second == "transposed":
        copy = rows[..., :F].mT.contiguous()
    return Forms(owners, rows, copy, copy)


def rows_of(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """As products of tf32 read [B, n, F] and [B, m, F], those of 16 bits included; see `plans`."""
    (B, n, F), m, dtype = x.shape, y.shape[1], x.dtype
    if not plans.copies(F, dtype, "tf32"):
        return x, y
    row = plans.row_of(F, dtype, "tf32")
    x_rows, y_rows = (torch.empty(B, k, row, device=x.device, dtype=dtype) for k in (n, m))
    start, grid = plans.rows(B * n, B * m, F, row)
    start(grid, (x, y, x_rows, y_rows), (B * n, B * m))
    return x_rows, y_rows


def _half(elements: Tensor) -> Tensor:
    """In float16, in rows that are aligned."""
    F = elements.shape[2]
    lacking = plans.row_of(F, torch.float16, "tf32") - F
    half = elements.half()
    return F_.pad(half, (0, lacking)) if lacking else half


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
