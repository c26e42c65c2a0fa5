"""Reductions over all pairs of points, for sets where to search for those that matter does not pay.

Legend: M queries, N keys, F features; rows (A) and columns (C) as in `pruned`, which says whose
turn it is. The loops are those of `points`, for more features, and over what has been sorted.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.best_keys import better, first_of_best, no_best, winners
from setwise.kernels.triton.coordinates import (
    add_weighted,
    as_columns,
    extended,
    features,
    key_scores,
    no_sums,
    scores,
    slopes,
    store_sums,
)
from setwise.kernels.triton.pruned import home_block, too_many
from setwise.kernels.triton.weights import LN_2, LOG2_E, finite_max, store_terms


@triton.jit
def argmax(
    Q, K, BIAS, KEPT, SHARPNESS, INDEX, M, N, stride_q, stride_k, blocks,
    F: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr, SAMPLES: tl.constexpr,
):  # fmt: skip
    """``INDEX[b, i] = argmax_j score_ij``, the first of equals.

    Of points as they came, [F, stride] and not sorted: so the first of equals is met first.
    """
    programs = tl.cdiv(M, BLOCK_A)
    row_block, b = tl.program_id(0) % programs, (tl.program_id(0) // programs).to(tl.int64)
    if not too_many(KEPT + b * SAMPLES, blocks, SAMPLES):
        return
    i = row_block * BLOCK_A + tl.arange(0, BLOCK_A)
    Q, K, BIAS = Q + b * F * stride_q, K + b * F * stride_k, BIAS + b * N
    q = ()
    for f in tl.static_range(F):
        q = extended(q, tl.load(Q + f * stride_q + i, mask=i < M, other=0.0))
    slope = slopes(SHARPNESS + b * F, F)
    best, tile = no_best(BLOCK_A, BLOCK_C)
    for j0 in range(0, N, BLOCK_C):
        s = _scores_of(K, BIAS, j0 + tl.arange(0, BLOCK_C), q, slope, BLOCK_A, N, stride_k, F)
        best, tile = better(best, tile, s, j0, BLOCK_A, BLOCK_C)
    j = winners(best, tile, BLOCK_C)
    first = first_of_best(_scores_of(K, BIAS, j, q, slope, BLOCK_A, N, stride_k, F), j, N)
    tl.store(INDEX + b * M + i, first.to(tl.int64), mask=i < M)


@triton.jit
def _scores_of(K, BIAS, j, q, slope, ROWS: tl.constexpr, N, stride, F: tl.constexpr):
    """Scores of queries with keys j of all, or with their own keys j [rows, any]."""
    bias = as_columns(tl.load(BIAS + j, mask=j < N, other=float("-inf")) * LOG2_E)
    keys = ()
    for f in tl.static_range(F):
        keys = extended(keys, tl.load(K + f * stride + j, mask=j < N, other=0.0))
    start = tl.zeros([ROWS, bias.shape[1]], tl.float32) + bias
    return scores(start, q, keys, slope, F)


@triton.jit
def logsumexp(
    Q, K, Q_ORDER, START, KEPT, SHARPNESS, LSE, TERMS, M, N, stride_q, stride_k, blocks,
    F: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr, STAGES: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, SAMPLES: tl.constexpr,
):  # fmt: skip
    """``LSE[b, i] = logsumexp_j score_ij``, and TERMS, as `pruned.logsumexp`.

    There is a START for every block of ROWS. Sums are relative to the best of the block of keys
    there. Where that is too far behind the best of all, or masked, two more loops find that and the
    sum; see `points.logsumexp`.
    """
    programs = tl.cdiv(M, BLOCK_A)
    row_block, b = tl.program_id(0) % programs, (tl.program_id(0) // programs).to(tl.int64)
    if not too_many(KEPT + b * SAMPLES, blocks, SAMPLES):
        return
    i = row_block * BLOCK_A + tl.arange(0, BLOCK_A)
    q = features(Q + b * F * stride_q, i, stride_q, F)
    slope = slopes(SHARPNESS + b * F, F)
    K += b * (F + 1) * stride_k
    START += b * tl.cdiv(M, ROWS) + row_block * (BLOCK_A // ROWS)
    j = home_block(START, BLOCK) * BLOCK + tl.arange(0, BLOCK)
    anchor = finite_max(tl.max(key_scores(K, j, q, slope, stride_k, F), 1))
    total = _total(K, anchor, q, slope, N, stride_k, F, BLOCK_A, BLOCK_C, STAGES)
    sound = ((total > 0.5) & (total < float("inf"))) | (i >= M)
    if tl.min(sound.to(tl.int32), 0) == 0:
        best = tl.full([BLOCK_A, BLOCK_C], float("-inf"), tl.float32)
        for j0 in tl.range(0, N, BLOCK_C, num_stages=STAGES):
            s = key_scores(K, j0 + tl.arange(0, BLOCK_C), q, slope, stride_k, F)
            best = tl.maximum(best, s)
        anchor = tl.where(sound, anchor, finite_max(tl.max(best, 1)))
        again = _total(K, anchor, q, slope, N, stride_k, F, BLOCK_A, BLOCK_C, STAGES)
        total = tl.where(sound, total, again)
    over = tl.log2(total)
    origin = tl.load(Q_ORDER + b * M + i, mask=i < M, other=M).to(tl.int32)
    store_terms(TERMS + b * 2 * M, anchor, over, origin, M)
    tl.store(LSE + b * M + origin, (anchor + over) * LN_2, mask=i < M)


@triton.jit
def _total(
    K, anchor, q, slope, N, stride, F: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """The sum of 2 to the power of the scores less their anchor."""
    total = tl.zeros([BLOCK_A, BLOCK_C], tl.float32)
    for j0 in tl.range(0, N, BLOCK_C, num_stages=STAGES):
        s = key_scores(K, j0 + tl.arange(0, BLOCK_C), q, slope, stride, F)
        total += tl.exp2(s - anchor[:, None])
    return tl.sum(total, 1)


@triton.jit
def gradients(
    A, C, ORDER, KEPT, SHARPNESS, DA, DBIAS, n_a, n_c, stride_a, stride_c, blocks,
    ROWS_ARE_KEYS: tl.constexpr, F: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr,
    STAGES: tl.constexpr, SAMPLES: tl.constexpr,
):  # fmt: skip
    """Gradient of one side, whose points A are the rows, and of the bias if they are keys."""
    programs = tl.cdiv(n_a, BLOCK_A)
    row_block, b = tl.program_id(0) % programs, (tl.program_id(0) // programs).to(tl.int64)
    if not too_many(KEPT + b * SAMPLES, blocks, SAMPLES):
        return
    i = row_block * BLOCK_A + tl.arange(0, BLOCK_A)
    A += b * (F + (1 if ROWS_ARE_KEYS else 2)) * stride_a
    C += b * (F + (2 if ROWS_ARE_KEYS else 1)) * stride_c
    a, term = features(A, i, stride_a, F), tl.load(A + F * stride_a + i)
    slope = slopes(SHARPNESS + b * F, F)
    sums = no_sums(BLOCK_A, BLOCK_C, F)
    for first in tl.range(0, n_c, BLOCK_C, num_stages=STAGES):
        c = first + tl.arange(0, BLOCK_C)
        sums = add_weighted(sums, C, c, a, term, slope, stride_c, ROWS_ARE_KEYS, F)
    store_sums(
        sums, A, ORDER + b * n_a, SHARPNESS + b * F, DA + b * n_a * F, DBIAS + b * n_a,
        i, n_a, stride_a, ROWS_ARE_KEYS, F,
    )  # fmt: skip
