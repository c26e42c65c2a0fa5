"""Float32 products in full precision on tensor cores: three-way bfloat16 splits, six products.

A float32 number has 24 significant bits, and is the sum of three bfloat16 of 8 bits each: a high, a
middle and a low part. bfloat16 has the range of float32: no number is too large, and down to 2^-110
no bit is lost. Of the nine products of the parts of two numbers, six make up their product; the
other three are smaller than its rounding. Henry, Tang and Heinecke, "Leveraging the bfloat16
artificial intelligence datatype for higher-precision computations" (ARITH 2019).

Multiply-adds, which do have full precision, take several times as long as six products of bfloat16.

Numbers of at most 8 significant bits, zeros and ones among them, are exact in bfloat16: their
middle and low parts are zero. Where all queries of a block are exact (IS_BF16), three products are
enough, and the bits are the same.
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

# Keeps Triton from fusing a product with an addition; see `add_dot_bf16x6`.
NO_FUSED_ADD = tl.constexpr(2**20)


def padded_features(F: int) -> int:
    """F rounded up to a multiple of 16, so that wide loads stay aligned; the rest are zeros."""
    return (F + 15) // 16 * 16


@triton.jit
def split_bf16x3(x, BOUNDED: tl.constexpr):
    """The high, middle and low part of each number; BOUNDED if none is beyond 2^128 - 2^119.

    Those would round to infinity. Weights times an incoming gradient of that size would be NaN,
    which they are close to anyway. What is not a number has a low part that is none.
    """
    high = nearest(x, 16) if BOUNDED else rounded(x, 16)
    rest = x - high
    middle = nearest(rest, 16)
    return high.to(_KIND), middle.to(_KIND), (rest - middle).to(_KIND)


@triton.jit
def dot_bf16x6(a_high, a_middle, a_low, b_high, b_middle, b_low, B_IS_BF16: tl.constexpr):
    """``a . b``, the large product last; with B_IS_BF16 middle and low parts of b are zero.

    Tensor cores cut off what does not fit their running sum instead of rounding it. So they should
    sum up no more than one such product; adding those up is left to the other units, which do
    round. Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while
    surpassing the FP32 theoretical peak performance" (IJHPCA 2022).
    """
    if B_IS_BF16:
        small = tl.dot(a_middle, b_high, tl.dot(a_low, b_high))
    else:
        small = _small_products(a_high, a_middle, a_low, b_high, b_middle, b_low)
    return tl.dot(a_high, b_high, small)


@triton.jit
def add_dot_bf16x6(
    s, a_high, a_middle, a_low, b_high, b_middle, b_low,
    TRANSPOSED: tl.constexpr, IS_BF16: tl.constexpr,
):  # fmt: skip
    """``s + a . b`` and still more precise; if TRANSPOSED, the bits are those of b . a.

    The small products are not in the way of the large one, which is then all but exact: a product
    of two high parts has 16 bits, and the sum of a few such products little more.

    If IS_BF16, middle and low parts of a are zero, or with TRANSPOSED those of b.
    """
    if IS_BF16 and TRANSPOSED:
        small = tl.dot(a_middle, b_high, tl.dot(a_low, b_high))
    elif IS_BF16:
        small = tl.dot(a_high, b_middle, tl.dot(a_high, b_low))
    elif TRANSPOSED:
        small = tl.dot(a_high, b_low)
        small = tl.dot(a_middle, b_middle, small)
        small = tl.dot(a_high, b_middle, small)
        small = tl.dot(a_low, b_high, small)
        small = tl.dot(a_middle, b_high, small)
    else:
        small = _small_products(a_high, a_middle, a_low, b_high, b_middle, b_low)
    s += small
    # The option means nothing to bfloat16. But without it, a pattern of Triton's that combines dot
    # and addition would have the tensor cores add s.
    return s + tl.dot(a_high, b_high, max_num_imprecise_acc=NO_FUSED_ADD)


@triton.jit
def _small_products(a_high, a_middle, a_low, b_high, b_middle, b_low):
    small = tl.dot(a_low, b_high)
    small = tl.dot(a_middle, b_middle, small)
    small = tl.dot(a_middle, b_high, small)
    small = tl.dot(a_high, b_low, small)
    return tl.dot(a_high, b_middle, small)


@triton.jit
def all_bf16(NOT_BF16, start, end):
    """Whether all elements from start to end are exact in bfloat16."""
    AT_ONCE: tl.constexpr = 1024
    found = tl.zeros([AT_ONCE], tl.int32)
    for first in range(start, end, AT_ONCE):
        i = first + tl.arange(0, AT_ONCE)
        found |= tl.load(NOT_BF16 + i, mask=i < end, other=0).to(tl.int32)
    return tl.max(found, 0) == 0


@triton.jit
def store_bf16x3(
    QUERIES, KEYS, Q_PARTS, K_PARTS, NOT_BF16, n, m,
    F: tl.constexpr, F_PADDED: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """The parts [3, n, F_PADDED] of QUERIES [n, F], and those of KEYS [m, F].

    NOT_BF16 [n] gets 0 for a query that is exact in bfloat16, as one of zeros and ones is.
    """
    a = tl.program_id(0) * BLOCK_A + tl.arange(0, BLOCK_A).to(tl.int64)
    inexact = tl.zeros([BLOCK_A], tl.int32)
    for f0 in range(0, F_PADDED, BLOCK_F):
        f = f0 + tl.arange(0, BLOCK_F)
        inexact |= tl.max(_store_parts(QUERIES, Q_PARTS, a, f, n, F, F_PADDED), 1)
        _store_parts(KEYS, K_PARTS, a, f, m, F, F_PADDED)
    tl.store(NOT_BF16 + a, inexact.to(tl.int8), mask=a < n)


@triton.jit
def _store_parts(X, X_PARTS, a, f, n, F: tl.constexpr, F_PADDED: tl.constexpr):
    """Returns 1 for numbers that are not exact in bfloat16; NaN and infinities are not."""
    ok = (a < n)[:, None]
    x = tl.load(X + a[:, None] * F + f[None, :], mask=ok & (f < F)[None, :], other=0.0)
    high, middle, low = split_bf16x3(x, False)
    at = X_PARTS + a[:, None] * F_PADDED + f[None, :]
    stride = tl.cast(n, tl.int64) * F_PADDED
    ok &= (f < F_PADDED)[None, :]
    tl.store(at, high, mask=ok)
    tl.store(at + stride, middle, mask=ok)
    tl.store(at + 2 * stride, low, mask=ok)
    return ((middle.to(tl.float32) != 0.0) | (low.to(tl.float32) != 0.0)).to(tl.int32)
