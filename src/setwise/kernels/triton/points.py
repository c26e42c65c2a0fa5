"""Kernels for elements of at most MAX_FEATURES features, such as points in space.

Legend: M queries, N keys, F features. An owner is a row that a program keeps (A); the others (C)
are walked over, and come transposed, [F, stride], so that neighbours load together.

A dot product of so few terms is cheaper as multiply-adds than as a padded matrix product, and is
exact in float32. The exponential is then the dearest step, so nothing else may be dear: maxima and
sums are kept per slot of the tile and reduced once, after the walk.
"""

from __future__ import annotations

import triton
import triton.language as tl

MAX_FEATURES = 4
LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _scores(start, A, C, a, c, a_ok, c_ok, stride, F: tl.constexpr):
    """``start + sum_f A[a, f] C[f, c]`` in units of log 2, shape [len(a), len(c)]."""
    s = start
    for f in tl.static_range(0, F):
        left = tl.load(A + a * F + f, mask=a_ok, other=0.0).to(tl.float32) * LOG2_E
        right = tl.load(C + f * stride + c, mask=c_ok, other=0.0).to(tl.float32)
        s += left[:, None] * right[None, :]
    return s


@triton.jit
def logsumexp(
    Q, K, BIAS, LSE, M, N, stride, keys_per_split, batch,
    F: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """``LSE[split, b, i] = logsumexp_j(Q[b, i] . K[b, j] + BIAS[b, j])`` over the keys of a split.

    Two walks, one for the maximum and one for the sum: an online maximum would cost a reduction
    across threads and a rescaling at every step, more than computing the scores again.
    """
    b, split = tl.program_id(1).to(tl.int64), tl.program_id(2)
    Q, K, BIAS = Q + b * M * F, K + b * F * stride, BIAS + b * N
    i = tl.program_id(0) * BLOCK_A + tl.arange(0, BLOCK_A)
    start = split * keys_per_split
    end = tl.minimum(start + keys_per_split, N)

    best = tl.full([BLOCK_A, BLOCK_C], float("-inf"), tl.float32)
    for j0 in range(start, end, BLOCK_C):
        j = j0 + tl.arange(0, BLOCK_C)
        bias = tl.load(BIAS + j, mask=j < end, other=float("-inf")) * LOG2_E
        best = tl.maximum(best, _scores(bias[None, :], Q, K, i, j, i < M, j < end, stride, F))
    top = tl.max(best, 1)
    anchor = tl.where(top == float("-inf"), 0.0, top)

    total = tl.zeros([BLOCK_A, BLOCK_C], tl.float32)
    for j0 in range(start, end, BLOCK_C):
        j = j0 + tl.arange(0, BLOCK_C)
        bias = tl.load(BIAS + j, mask=j < end, other=float("-inf")) * LOG2_E
        s = _scores(bias[None, :], Q, K, i, j, i < M, j < end, stride, F)
        total += tl.exp2(s - anchor[:, None])
    lse = (top + tl.log2(tl.sum(total, 1))) * LN_2
    tl.store(LSE + (split * batch + b) * M + i, lse, mask=i < M)


@triton.jit
def gradients(
    A, C, ALPHA, GAMMA, SCALE, DA, DBIAS, n_a, n_c, stride, others_per_split, batch,
    OWNS_KEYS: tl.constexpr, SIGMOID: tl.constexpr, F: tl.constexpr,
    BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Gradient of one side, whose elements A are the owners; see `products.gradients`."""
    b, split = tl.program_id(1).to(tl.int64), tl.program_id(2)
    A, C, ALPHA, GAMMA = A + b * n_a * F, C + b * F * stride, ALPHA + b * n_a, GAMMA + b * n_c
    SCALE += b * (n_c if OWNS_KEYS else n_a)
    a = tl.program_id(0) * BLOCK_A + tl.arange(0, BLOCK_A)
    a_ok = a < n_a
    alpha = tl.load(ALPHA + a, mask=a_ok, other=float("-inf")) * LOG2_E
    if not OWNS_KEYS:
        alpha = tl.where(alpha == float("-inf"), alpha, -alpha)
    total = tl.zeros([BLOCK_A, BLOCK_C], tl.float32)
    sum0 = tl.zeros([BLOCK_A, BLOCK_C], tl.float32)
    sum1 = tl.zeros([BLOCK_A, BLOCK_C], tl.float32)
    sum2 = tl.zeros([BLOCK_A, BLOCK_C], tl.float32)
    sum3 = tl.zeros([BLOCK_A, BLOCK_C], tl.float32)
    start = split * others_per_split
    end = tl.minimum(start + others_per_split, n_c)
    for c0 in range(start, end, BLOCK_C):
        c = c0 + tl.arange(0, BLOCK_C)
        c_ok = c < end
        gamma = tl.load(GAMMA + c, mask=c_ok, other=float("-inf")) * LOG2_E
        if OWNS_KEYS:  # gamma is then the logsumexp of the queries; -inf means no weight at all
            gamma = tl.where(gamma == float("-inf"), gamma, -gamma)
            h = tl.load(SCALE + c, mask=c_ok, other=0.0)
        else:
            h = tl.full([BLOCK_C], 1.0, tl.float32)
        bounds = alpha[:, None] + gamma[None, :]
        p = tl.exp2(_scores(bounds, A, C, a, c, a_ok, c_ok, stride, F))
        total += p * h[None, :]
        sum0 += p * (h * _column(C, c, c_ok, 0, stride))[None, :]
        if F > 1:
            sum1 += p * (h * _column(C, c, c_ok, 1, stride))[None, :]
        if F > 2:
            sum2 += p * (h * _column(C, c, c_ok, 2, stride))[None, :]
        if F > 3:
            sum3 += p * (h * _column(C, c, c_ok, 3, stride))[None, :]
    weight = tl.sum(total, 1)
    scale = tl.full([BLOCK_A], 1.0, tl.float32)
    if not OWNS_KEYS:
        scale = tl.load(SCALE + a, mask=a_ok, other=0.0)
    DA += (split * batch + b) * n_a * F
    _store(A, DA, tl.sum(sum0, 1), weight, scale, a, a_ok, 0, F, SIGMOID)
    if F > 1:
        _store(A, DA, tl.sum(sum1, 1), weight, scale, a, a_ok, 1, F, SIGMOID)
    if F > 2:
        _store(A, DA, tl.sum(sum2, 1), weight, scale, a, a_ok, 2, F, SIGMOID)
    if F > 3:
        _store(A, DA, tl.sum(sum3, 1), weight, scale, a, a_ok, 3, F, SIGMOID)
    if OWNS_KEYS and not SIGMOID:
        tl.store(DBIAS + (split * batch + b) * n_a + a, weight, mask=a_ok)


@triton.jit
def _column(C, c, c_ok, f: tl.constexpr, stride):
    return tl.load(C + f * stride + c, mask=c_ok, other=0.0).to(tl.float32)


@triton.jit
def _store(
    A, DA, sums, weight, scale, a, a_ok, f: tl.constexpr, F: tl.constexpr, SIGMOID: tl.constexpr
):  # fmt: skip
    if SIGMOID:
        sums -= weight * tl.sigmoid(tl.load(A + a * F + f, mask=a_ok, other=0.0).to(tl.float32))
    tl.store(DA + a * F + f, sums * scale, mask=a_ok)


@triton.jit
def argmax(
    Q, K, BIAS, INDEX, M, N, stride,
    F: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """``INDEX[b, i] = argmax_j(Q[b, i] . K[b, j] + BIAS[b, j])``, the first of equals."""
    b = tl.program_id(1).to(tl.int64)
    Q, K, BIAS = Q + b * M * F, K + b * F * stride, BIAS + b * N
    i = tl.program_id(0) * BLOCK_A + tl.arange(0, BLOCK_A)
    best = tl.full([BLOCK_A, BLOCK_C], float("-inf"), tl.float32)
    where = tl.zeros([BLOCK_A, BLOCK_C], tl.int32)
    for j0 in range(0, N, BLOCK_C):
        j = j0 + tl.arange(0, BLOCK_C)
        bias = tl.load(BIAS + j, mask=j < N, other=float("-inf")) * LOG2_E
        s = _scores(bias[None, :], Q, K, i, j, i < M, j < N, stride, F)
        better = s > best
        best = tl.where(better, s, best)
        where = tl.where(better, j[None, :], where)
    top = tl.max(best, 1)
    first = tl.min(tl.where(best == top[:, None], where, 2147483647), 1)
    tl.store(INDEX + b * M + i, first.to(tl.int64), mask=i < M)
