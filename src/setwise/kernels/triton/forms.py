"""The forms in which kernels read elements: by columns, in thirds, rounded, filled up."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from setwise.kernels.triton import plans, points, thirds
from setwise.kernels.triton.tiles import MOST_FEATURES_AT_ONCE, blocks_in


class Forms(NamedTuple):
    """Owners and others as a kernel reads them, the latter also as its second product does.

    Points: others by columns. Products in full float32: the `thirds` of both, and which queries
    have more than a high third. Products in tf32: rounded to it, and others transposed as well if
    `plans.transposed` says so. Of Bernoulli elements, those are in float16.
    """

    owners: Tensor
    others: Tensor
    second: Tensor
    long: Tensor  # in full float32; else some tensor, which is not read

    def swapped(self) -> Forms:
        """For a walk the other way, where neither side is by columns or transposed."""
        return Forms(self.others, self.owners, self.owners, self.long)


def formed(
    owners: Tensor,
    others: Tensor,
    level: str,
    owns_keys: bool,
    *,
    bernoulli: bool = False,
    gradient: bool = False,
) -> Forms:
    """As a kernel for that ``level`` reads them, for a ``gradient`` or not.

    ``bernoulli`` says that one side are logits and the other probabilities: see `multiplied_dtype`.
    """
    F = owners.shape[2]
    if F <= points.MAX_FEATURES:
        columns = _columns(others)
        return Forms(owners, columns, columns, columns)
    if level == "float32":
        queries, keys, long = thirds_of(*((others, owners) if owns_keys else (owners, others)))
        owners, others = (keys, queries) if owns_keys else (queries, keys)
        return Forms(owners, others, others, long)
    owners, others = rows_of(owners, others, multiplied_dtype(owners.dtype, bernoulli))
    second = others
    if gradient and plans.transposed(others.shape[1], others.dtype, level):
        second = others[..., :F].mT.contiguous()
    return Forms(owners, others, second, second)


def multiplied_dtype(dtype: torch.dtype, bernoulli: bool) -> torch.dtype:
    """What elements of that type are multiplied as where tf32 is allowed.

    float16 has the significant bits of tf32, at about twice its rate. Probabilities are in its
    range. Logits beyond it count as its largest number, whose probability is 0 or 1 as theirs.
    """
    return torch.float16 if bernoulli and dtype == torch.float32 else dtype


def rows_of(x: Tensor, y: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """As products of tf32 or of 16 bits read [B, n, F] and [B, m, F]."""
    copies = room_for_rows(x, y, kind)
    if copies is None:
        return x, y
    (B, n, F), m, row = x.shape, y.shape[1], copies[0].shape[2]
    start, grid = plans.rows(B * n, B * m, F, row)
    start(grid, (x, y, *copies), (B * n, B * m))
    return copies


def room_for_rows(x: Tensor, y: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor] | None:
    """Memory for copies of that kind, in rows that are aligned; None if no copy is needed.

    Of 16 bits, elements are read as they are unless they have many features: then loads that are
    not aligned would cost more than a copy.
    """
    B, n, F = x.shape
    at_once = 16 // kind.itemsize
    cheap = F % at_once == 0 or F <= MOST_FEATURES_AT_ONCE
    if x.dtype == kind != torch.float32 and cheap:
        return None
    row = blocks_in(F, at_once) * at_once
    return (
        torch.empty(B, n, row, device=x.device, dtype=kind),
        torch.empty(B, y.shape[1], row, device=x.device, dtype=kind),
    )


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
