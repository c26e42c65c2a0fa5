"""Tiles of scores of points that lie sorted, for the kernels that visit them.

Legend: F features, all of them compared: ``score = bias - sum_f sharpness_f (a_f - c_f)^2``, in
bits. Points are columns [F + terms, stride], of whole blocks; see `boxes.build`. What belongs to a
feature is one of F in a tuple, so that a kernel is compiled for their number.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.weights import LOG2_E


@triton.jit
def extended(values, value):
    """A tuple and one more."""
    return values + (value,)  # noqa: RUF005 (Triton's language has no stars)


@triton.jit
def features(COLUMNS, i, stride, F: tl.constexpr):
    """Those of points i."""
    found = ()
    for f in tl.static_range(F):
        found = extended(found, tl.load(COLUMNS + f * stride + i))
    return found


@triton.jit
def slopes(SHARPNESS, F: tl.constexpr):
    """The sharpness of each feature of a set, in bits."""
    found = ()
    for f in tl.static_range(F):
        found = extended(found, tl.load(SHARPNESS + f) * LOG2_E)
    return found


@triton.jit
def as_columns(c):
    """A value for each column as [1, columns]; one for each pair [rows, columns] as it is."""
    if len(c.shape) == 1:
        return c[None, :]
    else:
        return c


@triton.jit
def scores(s, a, c, slope, F: tl.constexpr):
    """``s - sum_f slope_f (a_f - c_f)^2``, shape [rows, columns].

    Of a pair it is the same, to the bit, whichever is the row, and in every kernel: that the
    product is fused with the difference is not left to the compiler.
    """
    for f in tl.static_range(F):
        apart = a[f][:, None] - as_columns(c[f])
        s = tl.fma(-(slope[f] * apart), apart, s)
    return s


@triton.jit
def key_scores(K, j, q, slope, stride, F: tl.constexpr):
    """Scores of queries with keys j; -inf where there is no key."""
    bias = tl.load(K + F * stride + j)
    start = tl.zeros([q[0].shape[0], j.shape[0]], tl.float32) + bias[None, :]
    return scores(start, q, features(K, j, stride, F), slope, F)


@triton.jit
def no_sums(ROWS: tl.constexpr, COLUMNS: tl.constexpr, F: tl.constexpr):
    """What `add_weighted` adds to: sums for each slot of a tile, of all features and of weights."""
    sums = ()
    for _ in tl.static_range(F + 1):
        sums = extended(sums, tl.zeros([ROWS, COLUMNS], tl.float32))
    return sums


@triton.jit
def add_weighted(
    sums, C, c, a, term, slope, stride, ROWS_ARE_KEYS: tl.constexpr, F: tl.constexpr
):  # fmt: skip
    """With the weighted differences of rows to points c, and the weights.

    Scores are formed as in `key_scores`. Weights are multiplied by the gradients of queries that
    are columns; those of rows can wait until the end.
    """
    points, gamma = features(C, c, stride, F), tl.load(C + F * stride + c)
    if ROWS_ARE_KEYS:
        bias, lse = term[:, None], gamma[None, :]
    else:
        bias, lse = gamma[None, :], term[:, None]
    start = tl.zeros([term.shape[0], c.shape[0]], tl.float32) + bias
    p = tl.exp2(scores(start, a, points, slope, F) - lse)
    if ROWS_ARE_KEYS:
        p *= tl.load(C + (F + 1) * stride + c)[None, :]
    added = ()
    for f in tl.static_range(F):
        added = extended(added, sums[f] + p * (a[f][:, None] - points[f][None, :]))
    return extended(added, sums[F] + p)


@triton.jit
def store_sums(
    sums, A, ORDER, SHARPNESS, DA, DBIAS, i, n, stride, ROWS_ARE_KEYS: tl.constexpr, F: tl.constexpr
):  # fmt: skip
    """The gradient of rows i, and of their bias, to where they came from."""
    ok = i < n
    origin = tl.load(ORDER + i, mask=ok, other=0)
    factor = tl.full([i.shape[0]], -2.0, tl.float32)
    if not ROWS_ARE_KEYS:
        factor *= tl.load(A + (F + 1) * stride + i)
    for f in tl.static_range(F):
        gradient = tl.sum(sums[f], 1) * tl.load(SHARPNESS + f) * factor
        tl.store(DA + origin * F + f, gradient, mask=ok)
    if ROWS_ARE_KEYS:
        tl.store(DBIAS + origin, tl.sum(sums[F], 1), mask=ok)
