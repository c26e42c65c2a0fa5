"""Kernels for the gradient of elements of many features, a panel of rows at a time.

A program of `matmul.gradients` computes the scores of its rows anew, and has room for the sums of
some hundred features. Of more, several programs would have to share the rows, and each of them
would compute the same scores. Here the weights of a panel of rows are computed once and kept in
memory until they have been multiplied. A panel is narrow enough that its weights take no more
memory than the sets, unless it is a single tile.

Legend as in `matmul`: rows A, which get a gradient; columns C; n_a and n_c of them in a set.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.bf16x6 import all_bf16, dot_bf16x6, split_bf16x3
from setwise.kernels.triton.scores import scores, tile, tiles
from setwise.kernels.triton.weights import (
    FLOAT16_SCALE,
    largest_weight,
    query_grad,
    rounded_weights,
    set_grad,
    store_gradient,
    term,
    weights_of_scores,
)

# Totals that are loaded together; each for itself would be waited for.
AT_ONCE = tl.constexpr(16)


@triton.jit
def weights(
    A, C, NOT_BF16, ALPHA, GAMMA, WEIGHT, LARGEST, LIST, COUNT, P, TOTAL,
    n_a, n_c, columns_per_split, batch, first, panel,
    ROWS_ARE_KEYS: tl.constexpr, WEIGHTED: tl.constexpr, SCALED: tl.constexpr,
    LISTED: tl.constexpr, F_PADDED: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr,
    BLOCK_F: tl.constexpr, PRECISION: tl.constexpr, BASE_2: tl.constexpr,
):  # fmt: skip
    """The weights ``p_ac`` of `matmul.gradients`, times WEIGHT_c if the rows are keys.

    Of the ``panel`` of rows that begins with ``first``: P [b, panel, columns], or its three parts,
    and TOTAL [tile of columns, b, panel]. One program a tile; the tiles in a LIST are put side by
    side, at the start of their split, and the space of the others is left as it is.
    """
    blocks, places = panel // BLOCK_A, tl.cdiv(n_c, BLOCK_C)
    # All along one dimension: the others of a grid end at 65535.
    b = (tl.program_id(0) // (blocks * places)).to(tl.int64)
    place, block = tl.program_id(0) // blocks % places, tl.program_id(0) % blocks
    a0, c0 = first + block * BLOCK_A, place * BLOCK_C
    if a0 >= n_a:
        return  # the last panel may have fewer rows
    if LISTED:
        split = c0 // columns_per_split
        nth = place - split * columns_per_split // BLOCK_C
        rows = b * tl.cdiv(n_a, BLOCK_A) + first // BLOCK_A + block
        listed = rows * tl.cdiv(n_c, columns_per_split) + split
        if nth >= tl.load(COUNT + listed):
            return
        nth = tl.load(LIST + listed * (columns_per_split // BLOCK_C) + nth)
        c0 = split * columns_per_split + nth * BLOCK_C
    A, C, ALPHA, GAMMA = (
        A + b * n_a * F_PADDED,
        C + b * n_c * F_PADDED,
        ALPHA + b * n_a,
        GAMMA + b * n_c,
    )
    WEIGHT += b * (n_c if ROWS_ARE_KEYS else n_a)
    stride_a, stride_c = (
        tl.cast(batch, tl.int64) * n_a * F_PADDED,
        tl.cast(batch, tl.int64) * n_c * F_PADDED,
    )
    a, c = a0 + tl.arange(0, BLOCK_A), c0 + tl.arange(0, BLOCK_C)
    if ROWS_ARE_KEYS:
        NOT_BF16 += b * n_c + c0
        queries = tl.minimum(BLOCK_C, n_c - c0)
    else:
        NOT_BF16 += b * n_a + a0
        queries = tl.minimum(BLOCK_A, n_a - a0)
    if PRECISION == "float32" and all_bf16(NOT_BF16, 0, queries):
        s, _, _, _ = scores(
            A, C, a, c, a < n_a, c < n_c, stride_a, stride_c, a, a, a, ROWS_ARE_KEYS,
            F_PADDED, BLOCK_A, BLOCK_C, BLOCK_F, PRECISION, True,
        )  # fmt: skip
    else:
        s, _, _, _ = scores(
            A, C, a, c, a < n_a, c < n_c, stride_a, stride_c, a, a, a, ROWS_ARE_KEYS,
            F_PADDED, BLOCK_A, BLOCK_C, BLOCK_F, PRECISION, False,
        )  # fmt: skip
    largest = largest_weight(LARGEST, ROWS_ARE_KEYS, WEIGHTED, SCALED)
    alpha = term(ALPHA, a, a < n_a, not ROWS_ARE_KEYS)
    gamma = term(GAMMA, c, c < n_c, ROWS_ARE_KEYS)
    p = weights_of_scores(
        s, alpha, gamma, WEIGHT, c, c < n_c, largest,
        ROWS_ARE_KEYS, WEIGHTED, SCALED, BASE_2, F_PADDED,
    )  # fmt: skip
    width = places * BLOCK_C
    row = b * panel + block * BLOCK_A + tl.arange(0, BLOCK_A)
    P += row[:, None] * width + place * BLOCK_C + tl.arange(0, BLOCK_C)[None, :]
    if PRECISION == "float32":
        total = tl.sum(p, 1)
        stride = tl.cast(batch, tl.int64) * panel * width
        high, middle, low = split_bf16x3(p, True)
        tl.store(P, high)
        tl.store(P + stride, middle)
        tl.store(P + 2 * stride, low)
    else:
        p = rounded_weights(p, P.dtype.element_ty, PRECISION)
        total = tl.sum(p.to(tl.float32), 1)
        tl.store(P, p)
    tl.store(TOTAL + tl.cast(place, tl.int64) * batch * panel + row, total)


@triton.jit
def gradients(
    P, TOTAL, C, A, NOT_BF16, SCALE, WEIGHT, LARGEST, LIST, COUNT, DA, DBIAS,
    n_a, n_c, columns_per_split, batch, scale_set, factor, first, panel,
    ROWS_ARE_KEYS: tl.constexpr, SIGMOID: tl.constexpr, UNIT: tl.constexpr, WEIGHTED: tl.constexpr,
    WHOLE: tl.constexpr, TRANSPOSED: tl.constexpr, SCALED: tl.constexpr, LISTED: tl.constexpr,
    F: tl.constexpr, F_PADDED: tl.constexpr, BLOCK_A: tl.constexpr, TILE_C: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_D: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """As `matmul.gradients`, of weights that are there: ``sum_c P_ac C_c`` of BLOCK_D features.

    The partial results of a loop that is not WHOLE are [split, b, panel], not of all rows.

    P and TOTAL come from tiles of TILE_C columns, BLOCK_C of which are multiplied at a time. C is
    TRANSPOSED to [b, F, n_c] if it is of 32 bits; see `matmul.gradients`.
    """
    blocks, chunks = panel // BLOCK_A, tl.cdiv(F, BLOCK_D)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    if first + block * BLOCK_A >= n_a:
        return
    chunk, split = tl.program_id(1) % chunks, tl.program_id(1) // chunks
    start = split * columns_per_split
    end = tl.minimum(start + columns_per_split, n_c)
    tiles_there = tl.cdiv(end - start, TILE_C)
    if LISTED:
        rows = b * tl.cdiv(n_a, BLOCK_A) + first // BLOCK_A + block
        listed = rows * tl.cdiv(n_c, columns_per_split) + split
        LIST += listed * (columns_per_split // TILE_C)
        tiles_there = tl.load(COUNT + listed)
    width = tl.cdiv(n_c, TILE_C) * TILE_C
    row = b * panel + block * BLOCK_A + tl.arange(0, BLOCK_A)
    stride = tl.cast(batch, tl.int64) * panel * width
    P += row[:, None] * width + start
    C += b * n_c * (F if TRANSPOSED else F_PADDED)
    d = chunk * BLOCK_D + tl.arange(0, BLOCK_D)
    if PRECISION == "float32" and ROWS_ARE_KEYS and all_bf16(NOT_BF16 + b * n_c, start, end):
        sums = _sums(
            P, C, LIST, d, n_c, start, end, tiles_there, batch, stride,
            TRANSPOSED, LISTED, F, F_PADDED, BLOCK_A, TILE_C, BLOCK_C, BLOCK_D, PRECISION, True,
        )  # fmt: skip
    else:
        sums = _sums(
            P, C, LIST, d, n_c, start, end, tiles_there, batch, stride,
            TRANSPOSED, LISTED, F, F_PADDED, BLOCK_A, TILE_C, BLOCK_C, BLOCK_D, PRECISION, False,
        )  # fmt: skip
    weight = tl.zeros([BLOCK_A], tl.float32)
    for at in range(0, tiles_there, AT_ONCE):
        place = start // TILE_C + at + tl.arange(0, AT_ONCE).to(tl.int64)
        totals = TOTAL + place[:, None] * batch * panel + row[None, :]
        there = at + tl.arange(0, AT_ONCE) < tiles_there
        weight += tl.sum(tl.load(totals, mask=there[:, None], other=0.0), 0)
    factor = set_grad(SCALE, b * scale_set, factor, UNIT)
    if SCALED:
        largest = largest_weight(LARGEST, ROWS_ARE_KEYS, WEIGHTED, SCALED)
        sums *= 1.0 / FLOAT16_SCALE
        weight *= 1.0 / FLOAT16_SCALE
        sums *= largest
        weight *= largest
    if ROWS_ARE_KEYS:
        sums *= factor
        weight *= factor
    a = first + block * BLOCK_A + tl.arange(0, BLOCK_A)
    a_ok = a < n_a
    g = tl.full([BLOCK_A], 1.0, tl.float32)
    if not ROWS_ARE_KEYS:
        g = query_grad(WEIGHT + b * n_a, a, a_ok, factor, WEIGHTED)
        if WHOLE:
            g /= tl.where(weight > 0, weight, 1.0)
    at = b * n_a if WHOLE else (split * batch + b) * panel - first
    stride_a = tl.cast(batch, tl.int64) * n_a * F_PADDED
    store_gradient(
        sums, weight, g, A + b * n_a * F_PADDED, DA + at * F, a, a_ok, d, stride_a,
        SIGMOID and WHOLE, ROWS_ARE_KEYS, F, F_PADDED, PRECISION,
    )  # fmt: skip
    if not (SIGMOID and WHOLE) and chunk == 0:
        tl.store(DBIAS + at + a, weight, mask=a_ok)


@triton.jit
def _sums(
    P, C, LIST, d, n_c, start, end, tiles_there, batch, stride,
    TRANSPOSED: tl.constexpr, LISTED: tl.constexpr, F: tl.constexpr, F_PADDED: tl.constexpr,
    BLOCK_A: tl.constexpr, TILE_C: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_D: tl.constexpr,
    PRECISION: tl.constexpr, IS_BF16: tl.constexpr,
):  # fmt: skip
    """``sum_c P_ac C_cd`` over the tiles there are."""
    stride_c = tl.cast(batch, tl.int64) * n_c * F_PADDED
    sums = tl.zeros([BLOCK_A, BLOCK_D], tl.float32)
    if LISTED:
        upcoming = tl.load(LIST, mask=tiles_there > 0, other=0)
    for at in range(0, tiles_there * TILE_C, BLOCK_C):
        c0 = at
        if LISTED:
            c0 = upcoming * TILE_C + at % TILE_C
            # A step ahead, as in `matmul.gradients`.
            ahead = (at + BLOCK_C) // TILE_C
            upcoming = tl.load(LIST + ahead, mask=ahead < tiles_there, other=0)
        c = start + c0 + tl.arange(0, BLOCK_C)
        c_ok = c < end
        here = P + at + tl.arange(0, BLOCK_C)[None, :]
        if PRECISION == "float32":
            high, middle, low = tiles(
                C, c, d, c_ok, stride_c, F_PADDED, F_PADDED % BLOCK_D == 0, IS_BF16
            )
            sums += dot_bf16x6(
                tl.load(here), tl.load(here + stride), tl.load(here + 2 * stride),
                high, middle, low, IS_BF16,
            )  # fmt: skip
        else:
            if TRANSPOSED:
                ok = (d < F)[:, None] & c_ok[None, :]
                columns = tl.trans(tl.load(C + d[:, None] * n_c + c[None, :], mask=ok, other=0.0))
            else:
                columns = tile(C, c, d, c_ok, F_PADDED, F_PADDED % BLOCK_D == 0)
            sums = tl.dot(tl.load(here), columns, sums, input_precision=PRECISION)
    return sums
