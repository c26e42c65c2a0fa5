"""The kernel that finds the best key of each query, built on matrix products of tiles.

Legend: M queries, N keys, F features; as in `matmul`, a program keeps a block of queries.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.best_keys import top_and_first
from setwise.kernels.triton.scores import add_compared, first_features, scores
from setwise.kernels.triton.weights import term


@triton.jit
def argmax(
    Q, K, BIAS, INDEX, Q_APART, K_APART, SHARPNESS, M, N, batch, q_stride, k_stride,
    F: tl.constexpr, D: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr,
    BLOCK_F: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """``INDEX[b, i] = argmax_j(Q[b, i] . K[b, j] + BIAS[b, j])``, the first of equals.

    Where PRECISION is "float32", Q and K are the parts of queries and keys (`bf16x6`), and F is
    padded. Another D features are compared: `scores.add_compared`.
    """
    blocks = tl.cdiv(M, BLOCK_A)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    Q, K, BIAS = Q + b * M * F, K + b * N * F, BIAS + b * N
    Q_APART, K_APART = Q_APART + b * D * q_stride, K_APART + b * D * k_stride
    SHARPNESS += b * D
    stride_q, stride_k = tl.cast(batch, tl.int64) * M * F, tl.cast(batch, tl.int64) * N * F
    i = tl.program_id(0) % blocks * BLOCK_A + tl.arange(0, BLOCK_A)
    q_high, q_middle, q_low = first_features(Q, i, i < M, stride_q, F, BLOCK_F, PRECISION, False)
    best = tl.full([BLOCK_A], float("-inf"), tl.float32)
    where = tl.zeros([BLOCK_A], tl.int32)
    for j0 in range(0, N, BLOCK_C):
        j = j0 + tl.arange(0, BLOCK_C)
        bias = term(BIAS, j, j < N, False)
        s, _, _, _ = scores(
            Q, K, i, j, i < M, j < N, stride_q, stride_k, q_high, q_middle, q_low, False,
            F, BLOCK_A, BLOCK_C, BLOCK_F, PRECISION, False,
        )  # fmt: skip
        s = add_compared(s, Q_APART, K_APART, SHARPNESS, i, j, i < M, j < N, q_stride, k_stride, D)
        s += bias[None, :]
        top, first = top_and_first(s, j[None, :])
        where = tl.where(top > best, first, where)
        best = tl.maximum(best, top)
    tl.store(INDEX + b * M + i, where.to(tl.int64), mask=i < M)
