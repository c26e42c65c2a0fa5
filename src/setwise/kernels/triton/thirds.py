"""Products of float32 in full precision on tensor cores, which have none of their own.

A float32 number has 24 significant bits, and is the sum of three numbers of 8 bits, its thirds: a
high, a middle and a low one. Those are bfloat16, which has the range of float32: no number is too
large, and down to 2^-110 no bit is lost. Of the nine products of the thirds of two numbers, six
make up their product; the other three are smaller than its rounding. Henry, Tang and Heinecke,
"Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations" (ARITH
2019).

Multiply-adds, which do have full precision, take several times as long as six products of bfloat16.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from setwise.kernels.triton.launch import INTERPRETED
from setwise.kernels.triton.rounding import nearest, rounded

# Triton's interpreter multiplies bfloat16 wrongly; there the same numbers are held in float32.
DTYPE = torch.float32 if INTERPRETED else torch.bfloat16
_KIND = tl.constexpr(tl.float32 if INTERPRETED else tl.bfloat16)

# For a product that Triton is to leave apart; see `add_product`.
APART = tl.constexpr(2**20)


def row_length(F: int) -> int:
    """Of the thirds of F features; filled up with zeros, so that wide loads stay aligned."""
    return (F + 15) // 16 * 16


@triton.jit
def thirds(x, BOUNDED: tl.constexpr):
    """The high, middle and low third of each number; BOUNDED if none is beyond 2^128 - 2^119.

    Those would round to infinity. Weights times an incoming gradient of that size would be NaN,
    which they are close to anyway. What is not a number has a low third that is none.
    """
    high = nearest(x, 16) if BOUNDED else rounded(x, 16)
    rest = x - high
    middle = nearest(rest, 16)
    return high.to(_KIND), middle.to(_KIND), (rest - middle).to(_KIND)


@triton.jit
def product(a_high, a_middle, a_low, b_high, b_middle, b_low, B_SHORT: tl.constexpr):
    """``a . b``, the large part last; with B_SHORT the other thirds of b are zero.

    Tensor cores cut off what does not fit their running sum instead of rounding it. So they should
    sum up no more than one such product; adding those up is left to the other units, which do
    round. Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while
    surpassing the FP32 theoretical peak performance" (IJHPCA 2022).
    """
    if B_SHORT:
        small = tl.dot(a_middle, b_high, tl.dot(a_low, b_high))
    else:
        small = _small_parts(a_high, a_middle, a_low, b_high, b_middle, b_low)
    return tl.dot(a_high, b_high, small)


@triton.jit
def add_product(
    s, a_high, a_middle, a_low, b_high, b_middle, b_low,
    TRANSPOSED: tl.constexpr, SHORT: tl.constexpr,
):  # fmt: skip
    """``s + a . b`` and still more precise; if TRANSPOSED, the bits are those of b . a.

    The small parts are not in the way of the large one, which is then all but exact: a product of
    two high thirds has 16 bits, and the sum of a few such products little more.

    If SHORT, the other thirds of a are zero, or with TRANSPOSED those of b. The bits are the same.
    """
    if SHORT and TRANSPOSED:
        small = tl.dot(a_middle, b_high, tl.dot(a_low, b_high))
    elif SHORT:
        small = tl.dot(a_high, b_middle, tl.dot(a_high, b_low))
    elif TRANSPOSED:
        small = tl.dot(a_high, b_low)
        small = tl.dot(a_middle, b_middle, small)
        small = tl.dot(a_high, b_middle, small)
        small = tl.dot(a_low, b_high, small)
        small = tl.dot(a_middle, b_high, small)
    else:
        small = _small_parts(a_high, a_middle, a_low, b_high, b_middle, b_low)
    s += small
    # The option means nothing to bfloat16. But without it, a pattern of Triton's that combines dot
    # and addition would have the tensor cores add s.
    return s + tl.dot(a_high, b_high, max_num_imprecise_acc=APART)


@triton.jit
def _small_parts(a_high, a_middle, a_low, b_high, b_middle, b_low):
    small = tl.dot(a_low, b_high)
    small = tl.dot(a_middle, b_middle, small)
    small = tl.dot(a_middle, b_high, small)
    small = tl.dot(a_high, b_low, small)
    return tl.dot(a_high, b_middle, small)


@triton.jit
def all_short(LONG, start, end):
    """Whether no row from start to end is marked as LONG."""
    AT_ONCE: tl.constexpr = 1024
    found = tl.zeros([AT_ONCE], tl.int32)
    for first in range(start, end, AT_ONCE):
        row = first + tl.arange(0, AT_ONCE)
        found |= tl.load(LONG + row, mask=row < end, other=0).to(tl.int32)
    return tl.max(found, 0) == 0


@triton.jit
def split(
    QUERIES, KEYS, Q_THIRDS, K_THIRDS, LONG, n, m,
    F: tl.constexpr, ROW: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """The thirds [3, n, ROW] of QUERIES [n, F], and those of KEYS [m, F].

    LONG [n] gets 0 for a query that is the same as its high thirds, as one of zeros and ones is.
    """
    a = tl.program_id(0) * BLOCK_A + tl.arange(0, BLOCK_A).to(tl.int64)
    long = tl.zeros([BLOCK_A], tl.int32)
    for f0 in range(0, ROW, BLOCK_F):
        f = f0 + tl.arange(0, BLOCK_F)
        long |= tl.max(_split_rows(QUERIES, Q_THIRDS, a, f, n, F, ROW), 1)
        _split_rows(KEYS, K_THIRDS, a, f, m, F, ROW)
    tl.store(LONG + a, long.to(tl.int8), mask=a < n)


@triton.jit
def _split_rows(X, X_THIRDS, a, f, n, F: tl.constexpr, ROW: tl.constexpr):
    """Returns 1 for numbers that have more than a high third; NaN and infinities do."""
    ok = (a < n)[:, None]
    x = tl.load(X + a[:, None] * F + f[None, :], mask=ok & (f < F)[None, :], other=0.0)
    high, middle, low = thirds(x, False)
    at = X_THIRDS + a[:, None] * ROW + f[None, :]
    apart = tl.cast(n, tl.int64) * ROW
    ok &= (f < ROW)[None, :]
    tl.store(at, high, mask=ok)
    tl.store(at + apart, middle, mask=ok)
    tl.store(at + 2 * apart, low, mask=ok)
    return ((middle.to(tl.float32) != 0.0) | (low.to(tl.float32) != 0.0)).to(tl.int32)
