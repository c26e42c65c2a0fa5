"""Elements as kernels read them: transposed, split for `bf16x6`, rounded, padded."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from setwise.kernels.triton import bf16x6, plans, points
from setwise.kernels.triton.memory import floats
from setwise.kernels.triton.tiles import MAX_FEATURES_AT_ONCE, blocks_in


class Operands(NamedTuple):
    """Rows and columns of a score matrix, and the columns as the second product reads them.

    Points: columns are transposed. Products in full float32: the three parts of both (`bf16x6`),
    and which queries are not exact in bfloat16. Products in tf32: rounded to it, and the second
    operand is transposed if `plans.transposed` says so. Bernoulli elements are then in float16.
    """

    rows: Tensor
    columns: Tensor
    second: Tensor
    not_bf16: Tensor  # [B, M] in full float32; else some tensor, which is not read

    def swapped(self) -> Operands:
        """Those of the transposed score matrix, where neither side is transposed itself."""
        return Operands(self.columns, self.rows, self.rows, self.not_bf16)


class Apart(NamedTuple):
    """Features that are compared beside those that are multiplied, in columns [B, D, any]."""

    rows: Tensor
    columns: Tensor
    sharpness: Tensor  # [B, D]

    def swapped(self) -> Apart:
        """Those of the transposed score matrix."""
        return Apart(self.columns, self.rows, self.sharpness)


def prepare_operands(
    rows: Tensor,
    columns: Tensor,
    precision: str,
    rows_are_keys: bool,
    *,
    bernoulli: bool = False,
    gradient: bool = False,
) -> Operands:
    """Elements [B, n, F] as a kernel of that ``precision`` reads them, for a ``gradient`` or not.

    ``bernoulli`` says that one side are logits and the other probabilities: see `operand_dtype`.
    """
    F = rows.shape[2]
    if F <= points.MAX_FEATURES:
        across = transposed(columns)
        return Operands(rows, across, across, across)
    if precision == "float32":
        queries, keys = (columns, rows) if rows_are_keys else (rows, columns)
        queries, keys, not_bf16 = bf16x3_parts(queries, keys)
        rows, columns = (keys, queries) if rows_are_keys else (queries, keys)
        return Operands(rows, columns, columns, not_bf16)
    rows, columns = round_and_pad(rows, columns, operand_dtype(rows.dtype, bernoulli))
    second = columns
    if gradient and plans.transposed(columns.shape[1], columns.dtype, precision):
        second = columns[..., :F].mT.contiguous()
    return Operands(rows, columns, second, second)


def operand_dtype(dtype: torch.dtype, bernoulli: bool) -> torch.dtype:
    """What elements of that type are multiplied as where tf32 is allowed.

    float16 has the significant bits of tf32, at about twice its rate. Probabilities are in its
    range. Logits beyond it count as its largest number, whose probability is 0 or 1 as theirs.
    """
    return torch.float16 if bernoulli and dtype == torch.float32 else dtype


def round_and_pad(x: Tensor, y: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """[B, n, F] and [B, m, F] as products of tf32 or of 16 bits read them."""
    copies = padded_buffers(x, y, dtype)
    if copies is None:
        return x, y
    (B, n, F), m, f_padded = x.shape, y.shape[1], copies[0].shape[2]
    launch, grid = plans.round_and_pad(B * n, B * m, F, f_padded)
    launch(grid, (x, y, *copies), (B * n, B * m))
    return copies


def padded_buffers(x: Tensor, y: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
    """Memory for copies of that type with aligned elements; None if no copy is needed.

    Of 16 bits, elements are read as they are unless they have many features: then loads that are
    not aligned would cost more than a copy.
    """
    B, n, F = x.shape
    at_once = 16 // dtype.itemsize
    cheap = F % at_once == 0 or F <= MAX_FEATURES_AT_ONCE
    if x.dtype == dtype != torch.float32 and cheap:
        return None
    f_padded = blocks_in(F, at_once) * at_once
    return (
        torch.empty(B, n, f_padded, device=x.device, dtype=dtype),
        torch.empty(B, y.shape[1], f_padded, device=x.device, dtype=dtype),
    )


def bf16x3_parts(queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The three bfloat16 parts of [B, M, F] and [B, N, F] in one launch, [3, B, M, F] padded.

    And which queries are not exact in bfloat16, [B, M].
    """
    (B, M, F), N, device = queries.shape, keys.shape[1], queries.device
    f_padded = bf16x6.padded_features(F)
    q_parts, k_parts = (
        torch.empty(3, B, n, f_padded, device=device, dtype=bf16x6.DTYPE) for n in (M, N)
    )
    not_bf16 = torch.empty(B, M, device=device, dtype=torch.int8)
    launch, grid = plans.store_bf16x3(B * M, B * N, F)
    launch(grid, (queries, keys, q_parts, k_parts, not_bf16), (B * M, B * N))
    return q_parts, k_parts, not_bf16


def transposed(elements: Tensor) -> Tensor:
    """Elements [B, n, F] as [B, F, n] of float32, n padded so that wide loads stay aligned."""
    B, n, F = elements.shape
    if n % 16 == 0 and elements.dtype == torch.float32:
        return elements.mT.contiguous()
    result = floats(elements.device, B, F, 16 * blocks_in(n, 16))
    result[:, :, :n] = elements.mT
    return result
