"""Kernels for the gradient of elements of many features, a strip of owners at a time.

A program of `products.gradients` computes the scores of its owners anew, and has room for the sums
of some hundred features. Of more, several programs would have to share the owners, and each of them
would compute the same scores. Here the weights of a strip of owners are computed once and kept in
memory until they have been multiplied. A strip is narrow enough that its weights take no more
memory than the sets, unless it is a single tile.

Legend as in `products`: owners A, which get a gradient; others C; n_a and n_c of them in a set.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.scores import scores, tile, tiles
from setwise.kernels.triton.thirds import all_short, product, thirds
from setwise.kernels.triton.weights import (
    HALF_RANGE,
    largest_weight,
    of_query,
    of_set,
    rounded_weights,
    store_gradient,
    term,
    weights_of_scores,
)

# Totals that are loaded together; each for itself would be waited for.
AT_ONCE = tl.constexpr(16)


@triton.jit
def weights(
    A, C, LONG, ALPHA, GAMMA, WEIGHT, LARGEST, LIST, COUNT, P, TOTAL,
    n_a, n_c, others_per_split, batch, first, strip,
    OWNS_KEYS: tl.constexpr, WEIGHTED: tl.constexpr, SCALED: tl.constexpr,
    LISTED: tl.constexpr, ROW: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr,
    BLOCK_F: tl.constexpr, PRECISION: tl.constexpr, BASE_2: tl.constexpr,
):  # fmt: skip
    """The weights ``p_ac`` of `products.gradients`, times WEIGHT_c if the owners are keys.

    Of the ``strip`` of owners that begins with ``first``: P [b, strip, others], or its thirds, and
    TOTAL [tile of others, b, strip]. One program a tile; the tiles in a LIST are put side by side,
    at the start of their split, and the space of the others is left as it is.
    """
    blocks, places = strip // BLOCK_A, tl.cdiv(n_c, BLOCK_C)
    # All along one dimension: the others of a grid end at 65535.
    b = (tl.program_id(0) // (blocks * places)).to(tl.int64)
    place, block = tl.program_id(0) // blocks % places, tl.program_id(0) % blocks
    a0, c0 = first + block * BLOCK_A, place * BLOCK_C
    if a0 >= n_a:
        return  # the last strip may have fewer owners
    if LISTED:
        split = c0 // others_per_split
        nth = place - split * others_per_split // BLOCK_C
        owners = b * tl.cdiv(n_a, BLOCK_A) + first // BLOCK_A + block
        piece = owners * tl.cdiv(n_c, others_per_split) + split
        if nth >= tl.load(COUNT + piece):
            return
        nth = tl.load(LIST + piece * (others_per_split // BLOCK_C) + nth)
        c0 = split * others_per_split + nth * BLOCK_C
    A, C, ALPHA, GAMMA = A + b * n_a * ROW, C + b * n_c * ROW, ALPHA + b * n_a, GAMMA + b * n_c
    WEIGHT += b * (n_c if OWNS_KEYS else n_a)
    a_apart, c_apart = tl.cast(batch, tl.int64) * n_a * ROW, tl.cast(batch, tl.int64) * n_c * ROW
    a, c = a0 + tl.arange(0, BLOCK_A), c0 + tl.arange(0, BLOCK_C)
    if OWNS_KEYS:
        LONG += b * n_c + c0
        queries = tl.minimum(BLOCK_C, n_c - c0)
    else:
        LONG += b * n_a + a0
        queries = tl.minimum(BLOCK_A, n_a - a0)
    if PRECISION == "float32" and all_short(LONG, 0, queries):
        s, _, _, _ = scores(
            A, C, a, c, a < n_a, c < n_c, a_apart, c_apart, a, a, a, OWNS_KEYS,
            ROW, BLOCK_A, BLOCK_C, BLOCK_F, PRECISION, True,
        )  # fmt: skip
    else:
        s, _, _, _ = scores(
            A, C, a, c, a < n_a, c < n_c, a_apart, c_apart, a, a, a, OWNS_KEYS,
            ROW, BLOCK_A, BLOCK_C, BLOCK_F, PRECISION, False,
        )  # fmt: skip
    largest = largest_weight(LARGEST, OWNS_KEYS, WEIGHTED, SCALED)
    alpha = term(ALPHA, a, a < n_a, not OWNS_KEYS)
    gamma = term(GAMMA, c, c < n_c, OWNS_KEYS)
    p = weights_of_scores(
        s, alpha, gamma, WEIGHT, c, c < n_c, largest, OWNS_KEYS, WEIGHTED, SCALED, BASE_2, ROW
    )  # fmt: skip
    width = places * BLOCK_C
    row = b * strip + block * BLOCK_A + tl.arange(0, BLOCK_A)
    P += row[:, None] * width + place * BLOCK_C + tl.arange(0, BLOCK_C)[None, :]
    if PRECISION == "float32":
        total = tl.sum(p, 1)
        apart = tl.cast(batch, tl.int64) * strip * width
        high, middle, low = thirds(p, True)
        tl.store(P, high)
        tl.store(P + apart, middle)
        tl.store(P + 2 * apart, low)
    else:
        p = rounded_weights(p, P.dtype.element_ty, PRECISION)
        total = tl.sum(p.to(tl.float32), 1)
        tl.store(P, p)
    tl.store(TOTAL + tl.cast(place, tl.int64) * batch * strip + row, total)


@triton.jit
def gradients(
    P, TOTAL, C, A, LONG, SCALE, WEIGHT, LARGEST, LIST, COUNT, DA, DBIAS,
    n_a, n_c, others_per_split, batch, scale_set, factor, first, strip,
    OWNS_KEYS: tl.constexpr, SIGMOID: tl.constexpr, UNIT: tl.constexpr, WEIGHTED: tl.constexpr,
    WHOLE: tl.constexpr, TRANSPOSED: tl.constexpr, SCALED: tl.constexpr, LISTED: tl.constexpr,
    F: tl.constexpr, ROW: tl.constexpr, BLOCK_A: tl.constexpr, TILE_C: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_D: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """As `products.gradients`, of weights that are there: ``sum_c P_ac C_c`` of BLOCK_D features.

    The pieces of a walk that is not WHOLE are [split, b, strip], not of all owners.

    P and TOTAL come from tiles of TILE_C others, BLOCK_C of which are multiplied at a time. C is
    TRANSPOSED to [b, F, n_c] if it is of 32 bits; see `products.gradients`.
    """
    blocks, chunks = strip // BLOCK_A, tl.cdiv(F, BLOCK_D)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    if first + block * BLOCK_A >= n_a:
        return
    chunk, split = tl.program_id(1) % chunks, tl.program_id(1) // chunks
    start = split * others_per_split
    end = tl.minimum(start + others_per_split, n_c)
    tiles_there = tl.cdiv(end - start, TILE_C)
    if LISTED:
        owners = b * tl.cdiv(n_a, BLOCK_A) + first // BLOCK_A + block
        piece = owners * tl.cdiv(n_c, others_per_split) + split
        LIST += piece * (others_per_split // TILE_C)
        tiles_there = tl.load(COUNT + piece)
    width = tl.cdiv(n_c, TILE_C) * TILE_C
    row = b * strip + block * BLOCK_A + tl.arange(0, BLOCK_A)
    apart = tl.cast(batch, tl.int64) * strip * width
    P += row[:, None] * width + start
    C += b * n_c * (F if TRANSPOSED else ROW)
    d = chunk * BLOCK_D + tl.arange(0, BLOCK_D)
    if PRECISION == "float32" and OWNS_KEYS and all_short(LONG + b * n_c, start, end):
        sums = _sums(
            P, C, LIST, d, n_c, start, end, tiles_there, batch, apart,
            TRANSPOSED, LISTED, F, ROW, BLOCK_A, TILE_C, BLOCK_C, BLOCK_D, PRECISION, True,
        )  # fmt: skip
    else:
        sums = _sums(
            P, C, LIST, d, n_c, start, end, tiles_there, batch, apart,
            TRANSPOSED, LISTED, F, ROW, BLOCK_A, TILE_C, BLOCK_C, BLOCK_D, PRECISION, False,
        )  # fmt: skip
    weight = tl.zeros([BLOCK_A], tl.float32)
    for at in range(0, tiles_there, AT_ONCE):
        place = start // TILE_C + at + tl.arange(0, AT_ONCE).to(tl.int64)
        totals = TOTAL + place[:, None] * batch * strip + row[None, :]
        there = at + tl.arange(0, AT_ONCE) < tiles_there
        weight += tl.sum(tl.load(totals, mask=there[:, None], other=0.0), 0)
    factor = of_set(SCALE, b * scale_set, factor, UNIT)
    if SCALED:
        largest = largest_weight(LARGEST, OWNS_KEYS, WEIGHTED, SCALED)
        sums *= 1.0 / HALF_RANGE
        weight *= 1.0 / HALF_RANGE
        sums *= largest
        weight *= largest
    if OWNS_KEYS:
        sums *= factor
        weight *= factor
    a = first + block * BLOCK_A + tl.arange(0, BLOCK_A)
    a_ok = a < n_a
    g = tl.full([BLOCK_A], 1.0, tl.float32)
    if not OWNS_KEYS:
        g = of_query(WEIGHT + b * n_a, a, a_ok, factor, WEIGHTED)
        if WHOLE:
            g /= tl.where(weight > 0, weight, 1.0)
    at = b * n_a if WHOLE else (split * batch + b) * strip - first
    a_apart = tl.cast(batch, tl.int64) * n_a * ROW
    store_gradient(
        sums, weight, g, A + b * n_a * ROW, DA + at * F, a, a_ok, d, a_apart,
        SIGMOID and WHOLE, OWNS_KEYS, F, ROW, PRECISION,
    )  # fmt: skip
    if not (SIGMOID and WHOLE) and chunk == 0:
        tl.store(DBIAS + at + a, weight, mask=a_ok)


@triton.jit
def _sums(
    P, C, LIST, d, n_c, start, end, tiles_there, batch, apart,
    TRANSPOSED: tl.constexpr, LISTED: tl.constexpr, F: tl.constexpr, ROW: tl.constexpr,
    BLOCK_A: tl.constexpr, TILE_C: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_D: tl.constexpr,
    PRECISION: tl.constexpr, SHORT: tl.constexpr,
):  # fmt: skip
    """``sum_c P_ac C_cd`` over the tiles there are."""
    c_apart = tl.cast(batch, tl.int64) * n_c * ROW
    sums = tl.zeros([BLOCK_A, BLOCK_D], tl.float32)
    if LISTED:
        upcoming = tl.load(LIST, mask=tiles_there > 0, other=0)
    for at in range(0, tiles_there * TILE_C, BLOCK_C):
        c0 = at
        if LISTED:
            c0 = upcoming * TILE_C + at % TILE_C
            # A step ahead, as in `products.gradients`.
            ahead = (at + BLOCK_C) // TILE_C
            upcoming = tl.load(LIST + ahead, mask=ahead < tiles_there, other=0)
        c = start + c0 + tl.arange(0, BLOCK_C)
        c_ok = c < end
        here = P + at + tl.arange(0, BLOCK_C)[None, :]
        if PRECISION == "float32":
            high, middle, low = tiles(C, c, d, c_ok, c_apart, ROW, ROW % BLOCK_D == 0, SHORT)
            sums += product(
                tl.load(here), tl.load(here + apart), tl.load(here + 2 * apart),
                high, middle, low, SHORT,
            )  # fmt: skip
        else:
            if TRANSPOSED:
                ok = (d < F)[:, None] & c_ok[None, :]
                others = tl.trans(tl.load(C + d[:, None] * n_c + c[None, :], mask=ok, other=0.0))
            else:
                others = tile(C, c, d, c_ok, ROW, ROW % BLOCK_D == 0)
            sums = tl.dot(tl.load(here), others, sums, input_precision=PRECISION)
    return sums
