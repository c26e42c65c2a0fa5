"""Rounding of float32 to fewer bits, and copies of elements that have been rounded.

Of a number that tf32 does not hold, tensor cores cut off the rest, always towards zero. Scores of
many features add that up. Rounded beforehand, numbers err to either side. float16 has the 11
significant bits of tf32, and is multiplied at about twice the rate, but has another range.
"""

from __future__ import annotations

import triton
import triton.language as tl

MAX_FLOAT16 = tl.constexpr(65504.0)


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
        beyond = (tl.abs(x) > MAX_FLOAT16) & (tl.abs(x) < float("inf"))
        return tl.where(beyond, tl.where(x > 0, MAX_FLOAT16, -MAX_FLOAT16), x).to(tl.float16)
    else:
        return x


@triton.jit
def as_operand(x, kind: tl.constexpr):
    """Elements rounded to what tensor cores hold, where products are of that kind."""
    if kind == tl.float16:
        return as_half(x)
    else:
        return as_tf32(x)


@triton.jit
def round_and_pad(
    X, Y, X_PADDED, Y_PADDED, n, m,
    F: tl.constexpr, F_PADDED: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """X [n, F] and Y [m, F] as they are multiplied, padded with zeros to F_PADDED features."""
    a = tl.program_id(0) * BLOCK_A + tl.arange(0, BLOCK_A).to(tl.int64)
    for f0 in range(0, F_PADDED, BLOCK_F):
        f = f0 + tl.arange(0, BLOCK_F)
        _copy(X, X_PADDED, a, f, n, F, F_PADDED)
        _copy(Y, Y_PADDED, a, f, m, F, F_PADDED)


@triton.jit
def _copy(X, X_PADDED, a, f, n, F: tl.constexpr, F_PADDED: tl.constexpr):
    ok = (a < n)[:, None]
    x = tl.load(X + a[:, None] * F + f[None, :], mask=ok & (f < F)[None, :], other=0.0)
    at = X_PADDED + a[:, None] * F_PADDED + f[None, :]
    tl.store(at, as_operand(x, X_PADDED.dtype.element_ty), mask=ok & (f < F_PADDED)[None, :])
