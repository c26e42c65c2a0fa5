"""Scores of a tile: products of the features of some owners and some others.

Legend: an owner is a row that a program keeps (A); the others (C) are walked over. F features. In
full precision, elements come as their `thirds`; queries whose middle and low thirds are all zero
are SHORT.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.thirds import add_product


@triton.jit
def tile(X, rows, columns, rows_ok, F: tl.constexpr, EVEN: tl.constexpr):
    """``X[rows, columns]``, and 0 where there is none; EVEN if all columns are there."""
    if EVEN:
        return tl.load(X + rows[:, None] * F + columns[None, :], mask=rows_ok[:, None], other=0.0)
    ok = rows_ok[:, None] & (columns < F)[None, :]
    return tl.load(X + rows[:, None] * F + columns[None, :], mask=ok, other=0.0)


@triton.jit
def tiles(
    X, rows, columns, rows_ok, apart, F: tl.constexpr, EVEN: tl.constexpr, SHORT: tl.constexpr
):  # fmt: skip
    """The same of the thirds of X, which lie ``apart``; if SHORT, thrice the high one."""
    high = tile(X, rows, columns, rows_ok, F, EVEN)
    middle, low = high, high
    if not SHORT:
        middle = tile(X + apart, rows, columns, rows_ok, F, EVEN)
        low = tile(X + 2 * apart, rows, columns, rows_ok, F, EVEN)
    return high, middle, low


@triton.jit
def first_features(
    A, a, a_ok, apart, F: tl.constexpr, BLOCK_F: tl.constexpr, PRECISION: tl.constexpr,
    SHORT: tl.constexpr,
):  # fmt: skip
    """The first features of A[a], in thirds if they are needed, else thrice the same."""
    columns = tl.arange(0, BLOCK_F)
    return tiles(A, a, columns, a_ok, apart, F, F % BLOCK_F == 0, SHORT or PRECISION != "float32")


@triton.jit
def scores(
    A, C, a, c, a_ok, c_ok, a_apart, c_apart, a_high, a_middle, a_low, OWNS_KEYS: tl.constexpr,
    F: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_F: tl.constexpr,
    PRECISION: tl.constexpr, SHORT: tl.constexpr,
):  # fmt: skip
    """``A[a] . C[c]``, shape [BLOCK_A, BLOCK_C], and C[c] as `first_features` gives A[a].

    If a tile holds every feature, A[a] is taken from there; else there is no use for C[c]. In full
    precision, a pair of query and key has the same bits whichever of them is the owner.
    """
    columns = tl.arange(0, BLOCK_F)
    EVEN: tl.constexpr = F % BLOCK_F == 0
    A_SHORT: tl.constexpr = SHORT and not OWNS_KEYS
    C_SHORT: tl.constexpr = SHORT and OWNS_KEYS
    if F <= BLOCK_F:
        high, middle, low = first_features(C, c, c_ok, c_apart, F, BLOCK_F, PRECISION, C_SHORT)
        if PRECISION == "float32":
            s = tl.zeros([BLOCK_A, BLOCK_C], tl.float32)
            s = add_product(
                s, a_high, a_middle, a_low,
                tl.trans(high), tl.trans(middle), tl.trans(low), OWNS_KEYS, SHORT,
            )  # fmt: skip
        else:
            s = tl.dot(a_high, tl.trans(high), input_precision=PRECISION)
    else:
        s = tl.zeros([BLOCK_A, BLOCK_C], tl.float32)
        for f in range(0, F, BLOCK_F):
            if PRECISION == "float32":
                x_high, x_middle, x_low = tiles(A, a, f + columns, a_ok, a_apart, F, EVEN, A_SHORT)
                y_high, y_middle, y_low = tiles(C, c, f + columns, c_ok, c_apart, F, EVEN, C_SHORT)
                s = add_product(
                    s, x_high, x_middle, x_low,
                    tl.trans(y_high), tl.trans(y_middle), tl.trans(y_low), OWNS_KEYS, SHORT,
                )  # fmt: skip
            else:
                left = tile(A, a, f + columns, a_ok, F, EVEN)
                right = tile(C, c, f + columns, c_ok, F, EVEN)
                s = tl.dot(left, tl.trans(right), s, input_precision=PRECISION)
        high, middle, low = a_high, a_middle, a_low
    return s, high, middle, low
