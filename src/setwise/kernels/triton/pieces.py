"""Kernels that put together what the pieces of a split walk gave, in the order of the pieces.

Legend: M queries, F features; owners are the elements that get a gradient.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.rounding import as_half
from setwise.kernels.triton.weights import (
    LN_2,
    anchored,
    exponential,
    logarithm,
    weighted_sum,
    without_weight,
)


@triton.jit
def logsumexp(
    PIECES, WEIGHT, CENTRE, LSE, LOSS, M, batch, splits, factor,
    SUMMED: tl.constexpr, WEIGHTED: tl.constexpr, CENTRED: tl.constexpr, BASE_2: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """``LSE[b, i] = logsumexp_split PIECES[split, b, i]``.

    With SUMMED, LOSS [b, block of i] gets ``factor sum_i WEIGHT_i LSE_i``, and with CENTRED the LSE
    that is summed has CENTRE[b] added to it; LSE is then for gradients, see `without_weight`. With
    BASE_2 pieces and LSE are in bits.
    """
    blocks = tl.cdiv(M, BLOCK)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    i = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    for split in range(0, splits):
        piece = tl.load(PIECES + (split * batch + b) * M + i, mask=i < M, other=float("-inf"))
        top = tl.maximum(top, piece)
    anchor = anchored(top)
    total = tl.zeros([BLOCK], tl.float32)
    for split in range(0, splits):
        piece = tl.load(PIECES + (split * batch + b) * M + i, mask=i < M, other=float("-inf"))
        total += exponential(piece - anchor, BASE_2)
    lse = anchor + logarithm(total, BASE_2)
    if SUMMED:
        centre = tl.load(CENTRE + b) if CENTRED else 0.0
        nats = lse * LN_2 if BASE_2 else lse
        summed = weighted_sum(nats + centre, WEIGHT + b * M, i, i < M, WEIGHTED)
        tl.store(LOSS + tl.program_id(0), factor * summed)
        lse = without_weight(lse)
    tl.store(LSE + b * M + i, lse, mask=i < M)


@triton.jit
def gradients(
    PIECES, WEIGHTS, A, DA, DBIAS, n, splits, strip, n_a, first,
    WEIGHED: tl.constexpr, SIGMOID: tl.constexpr, DIVIDED: tl.constexpr, ROUNDED: tl.constexpr,
    F: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """``DA_a = sum_split PIECES[split, a]``, ``DBIAS_a = sum_split WEIGHTS[split, a]``.

    The pieces are of n owners: of each set the ``strip`` that begins with ``first``, of n_a.

    There are weights if WEIGHED. With SIGMOID the share of the bias is added to DA, with DIVIDED it
    is divided by the weight, as `products.gradients` does itself if a walk is whole. DBIAS is not
    written in either case. A is as it was given, and ROUNDED here if it was for the walk.
    """
    row = tl.program_id(0) * BLOCK_A + tl.arange(0, BLOCK_A).to(tl.int64)
    f = tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F)
    place = first + row % strip
    rows_ok = (row < n) & (place < n_a)
    a = row // strip * n_a + place
    ok = rows_ok[:, None] & (f < F)[None, :]
    sums = tl.zeros([BLOCK_A, BLOCK_F], tl.float32)
    weight = tl.zeros([BLOCK_A], tl.float32)
    for _ in range(0, splits):
        sums += tl.load(PIECES + row[:, None] * F + f[None, :], mask=ok, other=0.0)
        if WEIGHED:
            weight += tl.load(WEIGHTS + row, mask=rows_ok, other=0.0)
        row += n
    at = a[:, None] * F + f[None, :]
    if SIGMOID:
        z = tl.load(A + at, mask=ok, other=0.0)
        if ROUNDED:
            z = as_half(z)
        sums -= weight[:, None] * tl.sigmoid(z.to(tl.float32))
    if DIVIDED:
        sums /= tl.where(weight > 0, weight, 1.0)[:, None]
    tl.store(DA + at, sums, mask=ok)
    if WEIGHED and not (SIGMOID or DIVIDED) and tl.program_id(1) == 0:
        tl.store(DBIAS + a, weight, mask=rows_ok)
