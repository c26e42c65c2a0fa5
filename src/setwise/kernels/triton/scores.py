"""Scores of a tile: products of the features of some rows and some columns.

Legend: a program keeps a block of rows (A) and loops over the columns (C). F features. In full
precision, elements come as their three parts (`bf16x6`), a stride from each other; IS_BF16 if all
queries are exact in bfloat16, and have nothing in their middle and low parts.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.bf16x6 import add_dot_bf16x6

# Features at most that are compared beside a product.
MAX_COMPARED = tl.constexpr(16)


@triton.jit
def tile(X, i, f, i_ok, F: tl.constexpr, EVEN: tl.constexpr):
    """``X[i, f]``, and 0 where there is none; EVEN if all features f are there."""
    if EVEN:
        return tl.load(X + i[:, None] * F + f[None, :], mask=i_ok[:, None], other=0.0)
    ok = i_ok[:, None] & (f < F)[None, :]
    return tl.load(X + i[:, None] * F + f[None, :], mask=ok, other=0.0)


@triton.jit
def tiles(
    X, i, f, i_ok, stride, F: tl.constexpr, EVEN: tl.constexpr, IS_BF16: tl.constexpr
):  # fmt: skip
    """The same of the three parts of X; if IS_BF16, thrice the high one."""
    high = tile(X, i, f, i_ok, F, EVEN)
    middle, low = high, high
    if not IS_BF16:
        middle = tile(X + stride, i, f, i_ok, F, EVEN)
        low = tile(X + 2 * stride, i, f, i_ok, F, EVEN)
    return high, middle, low


@triton.jit
def first_features(
    A, a, a_ok, stride, F: tl.constexpr, BLOCK_F: tl.constexpr, PRECISION: tl.constexpr,
    IS_BF16: tl.constexpr,
):  # fmt: skip
    """The first features of A[a], in three parts if they are needed, else thrice the same."""
    f = tl.arange(0, BLOCK_F)
    return tiles(A, a, f, a_ok, stride, F, F % BLOCK_F == 0, IS_BF16 or PRECISION != "float32")


@triton.jit
def scores(
    A, C, a, c, a_ok, c_ok, stride_a, stride_c, a_high, a_middle, a_low,
    ROWS_ARE_KEYS: tl.constexpr, F: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr,
    BLOCK_F: tl.constexpr, PRECISION: tl.constexpr, IS_BF16: tl.constexpr,
):  # fmt: skip
    """``A[a] . C[c]``, shape [BLOCK_A, BLOCK_C], and C[c] as `first_features` gives A[a].

    If a tile holds every feature, A[a] is taken from there; else there is no use for C[c]. In full
    precision, a pair of query and key has the same bits whichever of them is the row.
    """
    f = tl.arange(0, BLOCK_F)
    EVEN: tl.constexpr = F % BLOCK_F == 0
    A_IS_BF16: tl.constexpr = IS_BF16 and not ROWS_ARE_KEYS
    C_IS_BF16: tl.constexpr = IS_BF16 and ROWS_ARE_KEYS
    if F <= BLOCK_F:
        high, middle, low = first_features(C, c, c_ok, stride_c, F, BLOCK_F, PRECISION, C_IS_BF16)
        if PRECISION == "float32":
            s = tl.zeros([BLOCK_A, BLOCK_C], tl.float32)
            s = add_dot_bf16x6(
                s, a_high, a_middle, a_low,
                tl.trans(high), tl.trans(middle), tl.trans(low), ROWS_ARE_KEYS, IS_BF16,
            )  # fmt: skip
        else:
            s = tl.dot(a_high, tl.trans(high), input_precision=PRECISION)
    else:
        s = tl.zeros([BLOCK_A, BLOCK_C], tl.float32)
        for f0 in range(0, F, BLOCK_F):
            if PRECISION == "float32":
                x_high, x_middle, x_low = tiles(A, a, f0 + f, a_ok, stride_a, F, EVEN, A_IS_BF16)
                y_high, y_middle, y_low = tiles(C, c, f0 + f, c_ok, stride_c, F, EVEN, C_IS_BF16)
                s = add_dot_bf16x6(
                    s, x_high, x_middle, x_low,
                    tl.trans(y_high), tl.trans(y_middle), tl.trans(y_low), ROWS_ARE_KEYS, IS_BF16,
                )  # fmt: skip
            else:
                left = tile(A, a, f0 + f, a_ok, F, EVEN)
                right = tile(C, c, f0 + f, c_ok, F, EVEN)
                s = tl.dot(left, tl.trans(right), s, input_precision=PRECISION)
        high, middle, low = a_high, a_middle, a_low
    return s, high, middle, low


@triton.jit
def add_compared(
    s, A, C, SHARPNESS, a, c, a_ok, c_ok, stride_a, stride_c, D: tl.constexpr
):  # fmt: skip
    """``s - sum_f SHARPNESS_f (A_fa - C_fc)^2`` of D features in columns of that stride.

    A difference has to be formed before it is squared, or terms would cancel: by multiply-adds, and
    of a pair the same to the bit whichever is the row.
    """
    for f in tl.static_range(0, D):
        x = tl.load(A + f * stride_a + a, mask=a_ok, other=0.0)
        y = tl.load(C + f * stride_c + c, mask=c_ok, other=0.0)
        apart = x[:, None] - y[None, :]
        s -= (tl.load(SHARPNESS + f) * apart) * apart
    return s


@triton.jit
def add_pulls(pulls, p, A, C, a, c, a_ok, c_ok, stride_a, stride_c, D: tl.constexpr):
    """``pulls + sum_c p_ac (A_fa - C_fc)`` of the features f that are compared."""
    slot = tl.arange(0, MAX_COMPARED)
    for f in tl.static_range(0, D):
        x = tl.load(A + f * stride_a + a, mask=a_ok, other=0.0)
        y = tl.load(C + f * stride_c + c, mask=c_ok, other=0.0)
        pull = tl.sum(p * (x[:, None] - y[None, :]), 1)
        pulls += tl.where((slot == f)[None, :], pull[:, None], 0.0)
    return pulls


@triton.jit
def store_pulls(DA, pulls, factor, SHARPNESS, a, a_ok, D: tl.constexpr):
    """The gradient that `add_pulls` has summed up, in rows of D."""
    f = tl.arange(0, MAX_COMPARED)
    slope = -2.0 * factor * tl.load(SHARPNESS + f, mask=f < D, other=0.0)
    here = DA + a[:, None] * D + f[None, :]
    tl.store(here, pulls * slope[None, :], mask=a_ok[:, None] & (f < D)[None, :])
