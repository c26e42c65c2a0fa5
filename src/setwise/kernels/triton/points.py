"""Kernels for elements of at most MAX_FEATURES features, such as points in space.

Legend: M queries, N keys, F features. Of the score matrix, or of its transpose, a program keeps a
block of rows (A) and loops over the columns (C). Those come transposed, [F, stride] of float32, so
that neighbours load together and nothing is converted on the way.

A dot product of so few terms is cheaper as multiply-adds than as a padded matrix product, and is
exact in float32. The exponential is then the dearest step, so nothing else may be dear: maxima and
sums are kept per slot of the tile and reduced once, after the loop.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.best_keys import better, first_of_best, no_best, winners
from setwise.kernels.triton.coordinates import as_columns
from setwise.kernels.triton.weights import (
    LN_2,
    LOG2_E,
    finite_max,
    lse_for_backward,
    query_grad,
    set_grad,
    store_terms,
    store_total,
    store_weight,
    term,
    weighted_sum,
)

MAX_FEATURES = 4


@triton.jit
def _row_feature(A, a, a_ok, f: tl.constexpr, F: tl.constexpr, D: tl.constexpr):
    """Feature f of the rows, in units of log 2 unless it is compared or is that of a key.

    D says of how many features that holds. Loaded before a loop: loads are not hoisted.
    """
    if f < F:
        feature = tl.load(A + a * F + f, mask=a_ok, other=0.0).to(tl.float32)
        return feature if f < D else feature * LOG2_E
    return tl.zeros([a.shape[0]], tl.float32)


@triton.jit
def _feature(C, c, c_ok, f: tl.constexpr, F: tl.constexpr, stride):
    """Feature f of the columns."""
    if f < F:
        return tl.load(C + f * stride + c, mask=c_ok, other=0.0)
    return tl.zeros(c.shape, tl.float32)


@triton.jit
def _sharpness(SHARPNESS, f: tl.constexpr, D: tl.constexpr):
    """That of feature f of a set, of which D are compared; 0 if it is multiplied."""
    if f < D:
        return tl.load(SHARPNESS + f)
    return tl.zeros([], tl.float32)


@triton.jit
def _add_feature(s, a, c, sharpness, f: tl.constexpr, D: tl.constexpr):
    """The share of feature f.

    Of a pair it is the same, to the bit, whichever is the row, and in every kernel: what is fused
    with what is not left to the compiler.
    """
    if f < D:
        apart = a[:, None] - as_columns(c)
        return tl.fma(-(sharpness * LOG2_E * apart), apart, s)
    else:
        return tl.fma(a[:, None], as_columns(c), s)


@triton.jit
def _scores(
    start, a0, a1, a2, a3, c0, c1, c2, c3, w0, w1, w2, w3, F: tl.constexpr, D: tl.constexpr
):  # fmt: skip
    """``start + sum_f a_f c_f``, shape [rows, columns]; the first D features are compared."""
    s = _add_feature(start, a0, c0, w0, 0, D)
    if F > 1:
        s = _add_feature(s, a1, c1, w1, 1, D)
    if F > 2:
        s = _add_feature(s, a2, c2, w2, 2, D)
    if F > 3:
        s = _add_feature(s, a3, c3, w3, 3, D)
    return s


@triton.jit
def _key_scores(
    K, BIAS, j, j_ok, stride, q0, q1, q2, q3, w0, w1, w2, w3, F: tl.constexpr, D: tl.constexpr
):  # fmt: skip
    """Scores of the queries in units of log 2; -inf where there is no key.

    With keys j, those of all, or with keys [rows, any], those of a query with its own.
    """
    bias = term(BIAS, j, j_ok, False) * LOG2_E
    k0, k1 = _feature(K, j, j_ok, 0, F, stride), _feature(K, j, j_ok, 1, F, stride)
    k2, k3 = _feature(K, j, j_ok, 2, F, stride), _feature(K, j, j_ok, 3, F, stride)
    return _scores(as_columns(bias), q0, q1, q2, q3, k0, k1, k2, k3, w0, w1, w2, w3, F, D)


@triton.jit
def _total(
    K, BIAS, anchor, start, end, stride, q0, q1, q2, q3, w0, w1, w2, w3,
    F: tl.constexpr, D: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr,
    STAGES: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """The sum of 2 to the power of the scores less their anchor."""
    total = tl.zeros([BLOCK_A, BLOCK_C], tl.float32)
    for j0 in tl.range(start, end, BLOCK_C, num_stages=STAGES):
        j = j0 + tl.arange(0, BLOCK_C)
        s = _key_scores(K, BIAS, j, (j < end) | EVEN, stride, q0, q1, q2, q3, w0, w1, w2, w3, F, D)
        total += tl.exp2(s - anchor[:, None])
    return tl.sum(total, 1)


@triton.jit
def logsumexp(
    Q, K, BIAS, LSE, WEIGHT, LOSS, SHARPNESS, TERMS, M, N, stride, keys_per_split, batch, factor,
    SUMMED: tl.constexpr, WEIGHTED: tl.constexpr, TERMED: tl.constexpr, F: tl.constexpr,
    D: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr, STAGES: tl.constexpr,
    EVEN: tl.constexpr,
):  # fmt: skip
    """``LSE[split, b, i] = logsumexp_j(Q[b, i] . K[b, j] + BIAS[b, j])``, j in a split.

    With SUMMED, LOSS [b, block of i] gets ``factor sum_i WEIGHT_i LSE_i``, and LSE is for
    gradients, see `lse_for_backward`. EVEN says that no tile reaches beyond the last key. With
    TERMED, TERMS [split, b, 2, i] gets the LSE in bits and what was lost when it was rounded; if
    also SUMMED, LSE is in bits, and TERMS [b, i] the weight of `weights.store_weight`.

    The first D features are compared: they add ``-SHARPNESS[b, f] (Q[b, i, f] - K[b, j, f])^2``.

    A sum of exponentials need not be relative to the largest score: float32 has room for one that
    is 127 bits above the anchor. So that is the largest of some keys from all over the split. Where
    it turns out too small, or all of those keys are masked, another two loops find the largest of
    all and the sum. To find it on the way, an online maximum, would cost more than that.
    """
    blocks, split = tl.cdiv(M, BLOCK_A), tl.program_id(1)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    Q, K, BIAS = Q + b * M * F, K + b * F * stride, BIAS + b * N
    i = tl.program_id(0) % blocks * BLOCK_A + tl.arange(0, BLOCK_A)
    q0, q1 = _row_feature(Q, i, i < M, 0, F, D), _row_feature(Q, i, i < M, 1, F, D)
    q2, q3 = _row_feature(Q, i, i < M, 2, F, D), _row_feature(Q, i, i < M, 3, F, D)
    SHARPNESS += b * D
    w0, w1 = _sharpness(SHARPNESS, 0, D), _sharpness(SHARPNESS, 1, D)
    w2, w3 = _sharpness(SHARPNESS, 2, D), _sharpness(SHARPNESS, 3, D)
    start = split * keys_per_split
    end = tl.minimum(start + keys_per_split, N)

    j = start + tl.arange(0, BLOCK_C) * tl.maximum((end - start) // BLOCK_C, 1)
    anchor = tl.max(
        _key_scores(K, BIAS, j, j < end, stride, q0, q1, q2, q3, w0, w1, w2, w3, F, D), 1
    )
    total = _total(
        K, BIAS, anchor, start, end, stride, q0, q1, q2, q3, w0, w1, w2, w3,
        F, D, BLOCK_A, BLOCK_C, STAGES, EVEN,
    )  # fmt: skip
    # The key that the anchor is of adds 1. Else there is none, or another is too far ahead of it.
    sound = ((total > 0.5) & (total < float("inf"))) | (i >= M)
    if tl.min(sound.to(tl.int32), 0) == 0:
        best = tl.full([BLOCK_A, BLOCK_C], float("-inf"), tl.float32)
        for j0 in tl.range(start, end, BLOCK_C, num_stages=STAGES):
            j = j0 + tl.arange(0, BLOCK_C)
            s = _key_scores(
                K, BIAS, j, (j < end) | EVEN, stride, q0, q1, q2, q3, w0, w1, w2, w3, F, D
            )
            best = tl.maximum(best, s)
        top = tl.max(best, 1)
        # Of the others as before: what a query gives does not depend on those beside it.
        anchor = tl.where(sound, anchor, finite_max(top))
        again = _total(
            K, BIAS, anchor, start, end, stride, q0, q1, q2, q3, w0, w1, w2, w3,
            F, D, BLOCK_A, BLOCK_C, STAGES, EVEN,
        )  # fmt: skip
        total = tl.where(sound, total, again)
    lse = (anchor + tl.log2(total)) * LN_2
    if SUMMED:
        summed = weighted_sum(lse, WEIGHT + b * M, i, i < M, WEIGHTED)
        tl.store(LOSS + tl.program_id(0), factor * summed)
        if TERMED:
            lse = store_weight(TERMS + b * M, WEIGHT + b * M, anchor, total, i, M, WEIGHTED, True)
        lse = lse_for_backward(lse)
    elif TERMED:
        store_terms(TERMS + (split * batch + b) * 2 * M, anchor, tl.log2(total), i, M)
    tl.store(LSE + (split * batch + b) * M + i, lse, mask=i < M)


@triton.jit(do_not_specialize=["parts"])
def gradients(
    A, C, ALPHA, GAMMA, SCALE, WEIGHT, DA, DBIAS, PARTS, TOTAL, SHARPNESS,
    n_a, n_c, stride, columns_per_split, batch, scale_set, factor, parts,
    ROWS_ARE_KEYS: tl.constexpr, SIGMOID: tl.constexpr, UNIT: tl.constexpr, WEIGHTED: tl.constexpr,
    WHOLE: tl.constexpr, TOTALLED: tl.constexpr, TERMED: tl.constexpr, F: tl.constexpr,
    D: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr, STAGES: tl.constexpr,
    EVEN: tl.constexpr,
):  # fmt: skip
    """Gradient of one side, whose elements A are the rows; see `matmul.gradients`.

    With TERMED the lse is in bits, as `logsumexp` stores it, and scores are formed to the bit as
    they were there: by queries in units of log 2, the bias first. Else the lse comes first, which
    takes one operation less for each pair.
    """
    if TOTALLED:
        store_total(PARTS, TOTAL, parts)
    blocks, split = tl.cdiv(n_a, BLOCK_A), tl.program_id(1)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    A, C, ALPHA, GAMMA = A + b * n_a * F, C + b * F * stride, ALPHA + b * n_a, GAMMA + b * n_c
    factor = set_grad(SCALE, b * scale_set, factor, UNIT)
    WEIGHT += b * (n_c if ROWS_ARE_KEYS else n_a)
    a = tl.program_id(0) % blocks * BLOCK_A + tl.arange(0, BLOCK_A)
    a_ok = a < n_a
    SIGN: tl.constexpr = 1.0 if ROWS_ARE_KEYS else -1.0
    alpha = term(ALPHA, a, a_ok, not ROWS_ARE_KEYS)
    if ROWS_ARE_KEYS or not TERMED:
        alpha *= SIGN * LOG2_E
    COLUMNS_IN_BITS: tl.constexpr = TERMED and ROWS_ARE_KEYS
    RAW: tl.constexpr = F if COLUMNS_IN_BITS else D
    a0, a1 = _row_feature(A, a, a_ok, 0, F, RAW), _row_feature(A, a, a_ok, 1, F, RAW)
    a2, a3 = _row_feature(A, a, a_ok, 2, F, RAW), _row_feature(A, a, a_ok, 3, F, RAW)
    SHARPNESS += b * D
    w0, w1 = _sharpness(SHARPNESS, 0, D), _sharpness(SHARPNESS, 1, D)
    w2, w3 = _sharpness(SHARPNESS, 2, D), _sharpness(SHARPNESS, 3, D)
    total = tl.zeros([BLOCK_A, BLOCK_C], tl.float32)
    sum0 = tl.zeros([BLOCK_A, BLOCK_C], tl.float32)
    sum1 = tl.zeros([BLOCK_A, BLOCK_C], tl.float32)
    sum2 = tl.zeros([BLOCK_A, BLOCK_C], tl.float32)
    sum3 = tl.zeros([BLOCK_A, BLOCK_C], tl.float32)
    start = split * columns_per_split
    end = tl.minimum(start + columns_per_split, n_c)
    for first in tl.range(start, end, BLOCK_C, num_stages=STAGES):
        c = first + tl.arange(0, BLOCK_C)
        c_ok = (c < end) | EVEN
        gamma = term(GAMMA, c, c_ok, ROWS_ARE_KEYS)
        k0, k1 = _feature(C, c, c_ok, 0, F, stride), _feature(C, c, c_ok, 1, F, stride)
        k2, k3 = _feature(C, c, c_ok, 2, F, stride), _feature(C, c, c_ok, 3, F, stride)
        if TERMED:
            c0, c1 = _in_bits(k0, 0, D, COLUMNS_IN_BITS), _in_bits(k1, 1, D, COLUMNS_IN_BITS)
            c2, c3 = _in_bits(k2, 2, D, COLUMNS_IN_BITS), _in_bits(k3, 3, D, COLUMNS_IN_BITS)
            if ROWS_ARE_KEYS:
                bias, lse = alpha[:, None], gamma[None, :]
            else:
                bias, lse = (gamma * LOG2_E)[None, :], alpha[:, None]
            s = _scores(bias, a0, a1, a2, a3, c0, c1, c2, c3, w0, w1, w2, w3, F, D)
            p = tl.exp2(s - lse)
        else:
            bounds = alpha[:, None] + (gamma * (-SIGN * LOG2_E))[None, :]
            p = tl.exp2(_scores(bounds, a0, a1, a2, a3, k0, k1, k2, k3, w0, w1, w2, w3, F, D))
        if ROWS_ARE_KEYS and WEIGHTED:
            p *= query_grad(WEIGHT, c, c_ok, 1.0, WEIGHTED)[None, :]
        total += p
        sum0 = _add_weighted(sum0, p, a0, k0, 0, D)
        if F > 1:
            sum1 = _add_weighted(sum1, p, a1, k1, 1, D)
        if F > 2:
            sum2 = _add_weighted(sum2, p, a2, k2, 2, D)
        if F > 3:
            sum3 = _add_weighted(sum3, p, a3, k3, 3, D)
    weight = tl.sum(total, 1)
    if ROWS_ARE_KEYS:
        scale = tl.full([BLOCK_A], 1.0, tl.float32) * factor
    else:
        scale = query_grad(WEIGHT, a, a_ok, factor, WEIGHTED)
    DA += (split * batch + b) * n_a * F
    _store(A, DA, _turned(sum0, w0, 0, D), weight, scale, a, a_ok, 0, F, SIGMOID and WHOLE)
    if F > 1:
        _store(A, DA, _turned(sum1, w1, 1, D), weight, scale, a, a_ok, 1, F, SIGMOID and WHOLE)
    if F > 2:
        _store(A, DA, _turned(sum2, w2, 2, D), weight, scale, a, a_ok, 2, F, SIGMOID and WHOLE)
    if F > 3:
        _store(A, DA, _turned(sum3, w3, 3, D), weight, scale, a, a_ok, 3, F, SIGMOID and WHOLE)
    if ROWS_ARE_KEYS and not (SIGMOID and WHOLE):
        tl.store(DBIAS + (split * batch + b) * n_a + a, weight * scale, mask=a_ok)


@triton.jit
def _in_bits(feature, f: tl.constexpr, D: tl.constexpr, SCALED: tl.constexpr):
    """A feature of the columns in units of log 2, if it is multiplied and the rows are not."""
    if SCALED and f >= D:
        return feature * LOG2_E
    else:
        return feature


@triton.jit
def _add_weighted(sums, p, a, c, f: tl.constexpr, D: tl.constexpr):
    """``sums + p c``, or ``sums + p (a - c)`` of a feature that is compared."""
    if f < D:
        return sums + p * (a[:, None] - c[None, :])
    else:
        return sums + p * c[None, :]


@triton.jit
def _turned(sums, sharpness, f: tl.constexpr, D: tl.constexpr):
    """The sum of all columns; of a feature that is compared, times the slope of its square."""
    if f < D:
        return tl.sum(sums, 1) * (-2.0 * sharpness)
    else:
        return tl.sum(sums, 1)


@triton.jit
def _store(
    A, DA, sums, weight, scale, a, a_ok, f: tl.constexpr, F: tl.constexpr, SIGMOID: tl.constexpr
):  # fmt: skip
    if SIGMOID:
        sums -= weight * tl.sigmoid(tl.load(A + a * F + f, mask=a_ok, other=0.0).to(tl.float32))
    tl.store(DA + a * F + f, sums * scale, mask=a_ok)


@triton.jit
def argmax(
    Q, K, BIAS, INDEX, SHARPNESS, M, N, stride,
    F: tl.constexpr, D: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """``INDEX[b, i] = argmax_j(Q[b, i] . K[b, j] + BIAS[b, j])``, the first of equals."""
    blocks = tl.cdiv(M, BLOCK_A)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    Q, K, BIAS = Q + b * M * F, K + b * F * stride, BIAS + b * N
    i = tl.program_id(0) % blocks * BLOCK_A + tl.arange(0, BLOCK_A)
    q0, q1 = _row_feature(Q, i, i < M, 0, F, D), _row_feature(Q, i, i < M, 1, F, D)
    q2, q3 = _row_feature(Q, i, i < M, 2, F, D), _row_feature(Q, i, i < M, 3, F, D)
    SHARPNESS += b * D
    w0, w1 = _sharpness(SHARPNESS, 0, D), _sharpness(SHARPNESS, 1, D)
    w2, w3 = _sharpness(SHARPNESS, 2, D), _sharpness(SHARPNESS, 3, D)
    best, tile = no_best(BLOCK_A, BLOCK_C)
    for j0 in range(0, N, BLOCK_C):
        j = j0 + tl.arange(0, BLOCK_C)
        s = _key_scores(K, BIAS, j, j < N, stride, q0, q1, q2, q3, w0, w1, w2, w3, F, D)
        best, tile = better(best, tile, s, j0, BLOCK_A, BLOCK_C)
    j = winners(best, tile, BLOCK_C)
    s = _key_scores(K, BIAS, j, j < N, stride, q0, q1, q2, q3, w0, w1, w2, w3, F, D)
    first = first_of_best(s, j, N)
    tl.store(INDEX + b * M + i, first.to(tl.int64), mask=i < M)


@triton.jit
def prepare(
    Z, X, VALID, BIAS, Z_T, X_T, n, m, z_stride, x_stride, blocks,
    MASKED: tl.constexpr, BOTH: tl.constexpr, F: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``BIAS_j = -sum_f softplus(Z[j, f])``, -inf where not VALID; Z_T and, if BOTH, X_T."""
    b = (tl.program_id(0) // blocks).to(tl.int64)
    j = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    bias = tl.zeros([BLOCK], tl.float32)
    for f in tl.static_range(0, F):
        given = tl.load(Z + (b * n + j) * F + f, mask=j < n, other=0.0)
        z = given.to(tl.float32)
        tl.store(Z_T + (b * F + f) * z_stride + j, z, mask=j < n)
        bias -= tl.maximum(z, 0.0) + LN_2 * tl.log2(1.0 + tl.exp2(-tl.abs(z) * LOG2_E))
        if BOTH:
            given = tl.load(X + (b * m + j) * F + f, mask=j < m, other=0.0)
            tl.store(X_T + (b * F + f) * x_stride + j, given, mask=j < m)
    if MASKED:
        bias = tl.where(tl.load(VALID + b * n + j, mask=j < n, other=1) != 0, bias, float("-inf"))
    tl.store(BIAS + b * n + j, bias, mask=j < n)
