"""Kernels for elements of more features than points, some of which are compared.

Legend: M queries, N keys, F features. To a score the first D of them add ``-c_f (a_f - b_f)^2`` and
the others ``a_f b_f``. Of the score matrix, or of its transpose, a program keeps a block of rows
(A) and loops over the columns (C). Both come transposed, [F, stride] of float32.

A difference has to be formed before it is squared: the terms of the product would cancel. Tensor
cores cannot do that, so there are multiply-adds here, one step for each feature. They are exact in
float32 whatever is allowed of matrix products, and of a pair of query and key the same to the bit
whichever of them is the row.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from setwise.kernels.triton.best_keys import top_and_first
from setwise.kernels.triton.launch import launcher
from setwise.kernels.triton.memory import floats
from setwise.kernels.triton.operands import transposed
from setwise.kernels.triton.tiles import blocks_in, power_of_2
from setwise.kernels.triton.weights import LN_2, LOG2_E, finite_max, query_grad, store_terms, term

# Rows and columns of a tile, and the most features whose sums a program keeps.
ROWS, COLUMNS, MAX_SUMS = 16, 64, 128
WARPS = 2
# Shares that are added up before they are added to a score. One by one, each of hundreds would be
# rounded as the whole score is: several times as much is then lost as by a sum in pairs.
TOGETHER = tl.constexpr(32)


@triton.jit
def _scores(
    A, C, SHARPNESS, start, a, c, a_ok, c_ok, stride_a, stride_c, F: tl.constexpr, D: tl.constexpr
):  # fmt: skip
    """``start`` and the shares of all features, shape [rows, columns]."""
    s = start
    for first in range(0, D, TOGETHER):
        shares = tl.zeros_like(start)
        for f in range(first, tl.minimum(first + TOGETHER, D)):
            x = tl.load(A + f * stride_a + a, mask=a_ok, other=0.0)
            y = tl.load(C + f * stride_c + c, mask=c_ok, other=0.0)
            apart = x[:, None] - y[None, :]
            shares += (tl.load(SHARPNESS + f) * apart) * apart
        s -= shares
    for first in range(D, F, TOGETHER):
        shares = tl.zeros_like(start)
        for f in range(first, tl.minimum(first + TOGETHER, F)):
            x = tl.load(A + f * stride_a + a, mask=a_ok, other=0.0)
            y = tl.load(C + f * stride_c + c, mask=c_ok, other=0.0)
            shares += x[:, None] * y[None, :]
        s += shares
    return s


@triton.jit
def _logsumexp(
    Q, K, BIAS, SHARPNESS, LSE, TERMS, M, N, stride_q, stride_k,
    F: tl.constexpr, D: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """``LSE[b, i] = logsumexp_j score_ij``, and the TERMS [b, 2, i] of `weights.store_terms`."""
    blocks = tl.cdiv(M, BLOCK_A)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    Q, K, BIAS, SHARPNESS = (
        Q + b * F * stride_q,
        K + b * F * stride_k,
        BIAS + b * N,
        SHARPNESS + b * D,
    )
    i = tl.program_id(0) % blocks * BLOCK_A + tl.arange(0, BLOCK_A)
    top = tl.full([BLOCK_A], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_A], tl.float32)
    for j0 in range(0, N, BLOCK_C):
        j = j0 + tl.arange(0, BLOCK_C)
        bias = term(BIAS, j, j < N, False)
        start = tl.zeros([BLOCK_A, BLOCK_C], tl.float32) + bias[None, :]
        s = _scores(Q, K, SHARPNESS, start, i, j, i < M, j < N, stride_q, stride_k, F, D)
        higher = tl.maximum(top, tl.max(s, 1))
        anchor = finite_max(higher)
        total *= tl.exp2((top - anchor) * LOG2_E)
        total += tl.sum(tl.exp2((s - anchor[:, None]) * LOG2_E), 1)
        top = higher
    above = tl.log2(total) * LN_2
    tl.store(LSE + b * M + i, top + above, mask=i < M)
    store_terms(TERMS + b * 2 * M, top, above, i, M)


@triton.jit
def _gradients(
    A, C, ALPHA, GAMMA, WEIGHT, SHARPNESS, DA, DBIAS, n_a, n_c, stride_a, stride_c,
    ROWS_ARE_KEYS: tl.constexpr, F: tl.constexpr, D: tl.constexpr, BLOCK_A: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Gradient of one side, as `matmul.gradients`, of BLOCK_D features; WEIGHT is of each query."""
    blocks, chunk = tl.cdiv(n_a, BLOCK_A), tl.program_id(1)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    A, C, SHARPNESS = A + b * F * stride_a, C + b * F * stride_c, SHARPNESS + b * D
    ALPHA, GAMMA, WEIGHT = (
        ALPHA + b * n_a,
        GAMMA + b * n_c,
        WEIGHT + b * (n_c if ROWS_ARE_KEYS else n_a),
    )
    a = tl.program_id(0) % blocks * BLOCK_A + tl.arange(0, BLOCK_A)
    a_ok = a < n_a
    d = chunk * BLOCK_D + tl.arange(0, BLOCK_D)
    alpha = term(ALPHA, a, a_ok, not ROWS_ARE_KEYS)
    sums = tl.zeros([BLOCK_A, BLOCK_D], tl.float32)
    weight = tl.zeros([BLOCK_A], tl.float32)
    for c0 in range(0, n_c, BLOCK_C):
        c = c0 + tl.arange(0, BLOCK_C)
        c_ok = c < n_c
        gamma = term(GAMMA, c, c_ok, ROWS_ARE_KEYS)
        if ROWS_ARE_KEYS:
            bias, lse = alpha[:, None], gamma[None, :]
        else:
            bias, lse = gamma[None, :], alpha[:, None]
        start = tl.zeros([BLOCK_A, BLOCK_C], tl.float32) + bias
        s = _scores(A, C, SHARPNESS, start, a, c, a_ok, c_ok, stride_a, stride_c, F, D)
        p = tl.exp2((s - lse) * LOG2_E)
        if ROWS_ARE_KEYS:
            p *= query_grad(WEIGHT, c, c_ok, 1.0, True)[None, :]
        weight += tl.sum(p, 1)
        for f in range(chunk * BLOCK_D, tl.minimum((chunk + 1) * BLOCK_D, F)):
            y = tl.load(C + f * stride_c + c, mask=c_ok, other=0.0)
            # What is not compared is so to 0, which leaves -y.
            x = tl.load(A + f * stride_a + a, mask=a_ok & (f < D), other=0.0)
            pulled = tl.sum(p * (x[:, None] - y[None, :]), 1)
            sums += tl.where((d == f)[None, :], pulled[:, None], 0.0)
    sharpness = tl.load(SHARPNESS + d, mask=d < D, other=0.5)
    sums *= (-2.0 * sharpness)[None, :]
    if not ROWS_ARE_KEYS:
        sums *= query_grad(WEIGHT, a, a_ok, 1.0, True)[:, None]
    at = (b * n_a + a)[:, None] * F + d[None, :]
    tl.store(DA + at, sums, mask=a_ok[:, None] & (d < F)[None, :])
    if ROWS_ARE_KEYS and chunk == 0:
        tl.store(DBIAS + b * n_a + a, weight, mask=a_ok)


@triton.jit
def _argmax(
    Q, K, BIAS, SHARPNESS, INDEX, M, N, stride_q, stride_k,
    F: tl.constexpr, D: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """``INDEX[b, i] = argmax_j score_ij``, the first of equals."""
    blocks = tl.cdiv(M, BLOCK_A)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    Q, K, BIAS, SHARPNESS = (
        Q + b * F * stride_q,
        K + b * F * stride_k,
        BIAS + b * N,
        SHARPNESS + b * D,
    )
    i = tl.program_id(0) % blocks * BLOCK_A + tl.arange(0, BLOCK_A)
    best = tl.full([BLOCK_A], float("-inf"), tl.float32)
    where = tl.zeros([BLOCK_A], tl.int32)
    for j0 in range(0, N, BLOCK_C):
        j = j0 + tl.arange(0, BLOCK_C)
        start = tl.zeros([BLOCK_A, BLOCK_C], tl.float32) + term(BIAS, j, j < N, False)[None, :]
        s = _scores(Q, K, SHARPNESS, start, i, j, i < M, j < N, stride_q, stride_k, F, D)
        top, first = top_and_first(s, j[None, :])
        where = tl.where(top > best, first, where)
        best = tl.maximum(best, top)
    tl.store(INDEX + b * M + i, where.to(tl.int64), mask=i < M)


def logsumexp(
    queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor
) -> tuple[Tensor, Tensor]:
    """See `engine.logsumexp`."""
    (B, M, _), device = queries.shape, queries.device
    lse, terms = (floats(device, *shape) for shape in ((B, M), (B, 2, M)))
    _over_queries(_logsumexp, queries, keys, bias, sharpness, lse, terms)
    return lse, terms


def argmax(queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor) -> Tensor:
    """See `engine.argmax`."""
    index = torch.empty(queries.shape[:2], dtype=torch.long, device=queries.device)
    _over_queries(_argmax, queries, keys, bias, sharpness, index)
    return index


def _over_queries(
    kernel: Any, queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor, *results: Tensor
) -> None:
    (B, M, F), N = queries.shape, keys.shape[1]
    rows, columns = transposed(queries), transposed(keys)
    constants = {"F": F, "D": sharpness.shape[1], "BLOCK_A": ROWS, "BLOCK_C": COLUMNS}
    launch = launcher(kernel, constants, WARPS, 2)
    sizes = M, N, rows.shape[2], columns.shape[2]
    launch((B * blocks_in(M, ROWS), 1, 1), (rows, columns, bias, sharpness, *results), sizes)


def gradients(
    rows: Tensor,
    columns: Tensor,
    row_term: Tensor,
    column_term: Tensor,
    rows_are_keys: bool,
    weight: Tensor,
    sharpness: Tensor,
) -> tuple[Tensor, Tensor]:
    """Gradient of the rows, and of the bias if they are keys; see `engine.gradients`."""
    (B, n_a, F), n_c, device = rows.shape, columns.shape[1], rows.device
    result, d_bias = (floats(device, *shape) for shape in ((B, n_a, F), (B, n_a)))
    sums = min(max(16, power_of_2(F)), MAX_SUMS)
    constants = {"ROWS_ARE_KEYS": rows_are_keys, "F": F, "D": sharpness.shape[1]}
    constants |= {"BLOCK_A": ROWS, "BLOCK_C": COLUMNS, "BLOCK_D": sums}
    launch = launcher(_gradients, constants, WARPS, 2)
    a, c = transposed(rows), transposed(columns)
    tensors = a, c, row_term, column_term, weight, sharpness, result, d_bias
    grid = B * blocks_in(n_a, ROWS), blocks_in(F, sums), 1
    launch(grid, tensors, (n_a, n_c, a.shape[2], c.shape[2]))
    return result, d_bias
