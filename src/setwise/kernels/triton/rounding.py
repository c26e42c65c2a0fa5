"""Rounding of float32 to fewer bits, and copies of elements that have been rounded.

Of a number that tf32 does not hold, tensor cores cut off the rest, always towards zero. Scores of
many features add that up. Rounded beforehand, numbers err to either side. float16 has the 11
significant bits of tf32, and is multiplied at about twice the rate, but has another range.
"""

from __future__ import annotations

import triton
import triton.language as tl

LARGEST_HALF = tl.constexpr(65504.0)


@triton.jit
def nearest(x, BITS: tl.constexpr):
    """The nearest float32 whose last BITS are zero: 16 for bfloat16, 13 for tf32."""
    bits = x.to(tl.int32, bitcast=True)
    return ((bits + (1 << (BITS - 1))) & -(1 << BITS)).to(tl.float32, bitcast=True)


@triton.jit
def rounded(x, BITS: tl.constexpr):
    """The same, where x may be any number: what would round to infinity is cut off."""
    bits = x.to(tl.int32, bitcast=True)
    rounds = (bits & 0x7FFFFFFF) < 0x7F800000 - (1 << (BITS - 1))
    kept = (bits & -(1 << BITS)).to(tl.float32, bitcast=True)
    return tl.where(rounds, nearest(x, BITS), tl.where(x != x, x, kept))


@triton.jit
def as_tf32(x):
    """Numbers of 16 bits are left as they are."""
    if x.dtype == tl.float32:
        return rounded(x, 13)
    else:
        return x


@triton.jit
def as_half(x):
    """The nearest float16 of a float32, the largest of numbers beyond it; others are left alone."""
    if x.dtype == tl.float32:
        beyond = (tl.abs(x) > LARGEST_HALF) & (tl.abs(x) < float("inf"))
        return tl.where(beyond, tl.where(x > 0, LARGEST_HALF, -LARGEST_HALF), x).to(tl.float16)
    else:
        return x


@triton.jit
def as_multiplied(x, kind: tl.constexpr):
    """Elements rounded to what tensor cores hold, where products are of that kind."""
    if kind == tl.float16:
        return as_half(x)
    else:
        return as_tf32(x)


@triton.jit
def rows(
    X, Y, X_ROWS, Y_ROWS, n, m,
    F: tl.constexpr, ROW: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """X [n, F] and Y [m, F] in rows of length ROW, filled up with zeros, as they are multiplied."""
    a = tl.program_id(0) * BLOCK_A + tl.arange(0, BLOCK_A).to(tl.int64)
    for f0 in range(0, ROW, BLOCK_F):
        f = f0 + tl.arange(0, BLOCK_F)
        _copy(X, X_ROWS, a, f, n, F, ROW)
        _copy(Y, Y_ROWS, a, f, m, F, ROW)


@triton.jit
def _copy(X, X_ROWS, a, f, n, F: tl.constexpr, ROW: tl.constexpr):
    ok = (a < n)[:, None]
    x = tl.load(X + a[:, None] * F + f[None, :], mask=ok & (f < F)[None, :], other=0.0)
    at = X_ROWS + a[:, None] * ROW + f[None, :]
    tl.store(at, as_multiplied(x, X_ROWS.dtype.element_ty), mask=ok & (f < ROW)[None, :])
