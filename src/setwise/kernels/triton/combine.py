"""Kernels that put together the partial results of split loops, in the order of the splits.

Legend: M queries, F features; rows are the elements that get a gradient.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.rounding import as_half
from setwise.kernels.triton.weights import (
    LN_2,
    exponential,
    finite_max,
    logarithm,
    lse_for_backward,
    store_terms,
    store_weight,
    weighted_sum,
)


@triton.jit
def logsumexp(
    PARTIAL, WEIGHT, CENTRE, LSE, LOSS, TERMS, M, batch, splits, factor,
    SUMMED: tl.constexpr, WEIGHTED: tl.constexpr, CENTRED: tl.constexpr, TERMED: tl.constexpr,
    BASE_2: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``LSE[b, i] = logsumexp_split PARTIAL[split, b, i]``.

    With SUMMED, LOSS [b, block of i] gets ``factor sum_i WEIGHT_i LSE_i``, and with CENTRED the LSE
    that is summed has CENTRE[b] added to it; LSE is then for gradients, see `lse_for_backward`.
    With BASE_2 PARTIAL and LSE are in bits. With TERMED, PARTIAL holds the TERMS of all splits,
    [split, b, 2, i]; those of the whole are stored, and the LSE in natural units. If it is also
    SUMMED, it is the weight of `weights.store_weight` that is stored, and the LSE as it comes.
    """
    blocks = tl.cdiv(M, BLOCK)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    i = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    rows = 2 * M if TERMED else M
    for split in range(0, splits):
        partial = tl.load(PARTIAL + (split * batch + b) * rows + i, mask=i < M, other=float("-inf"))
        top = tl.maximum(top, partial)
    anchor = finite_max(top)
    total = tl.zeros([BLOCK], tl.float32)
    for split in range(0, splits):
        here = PARTIAL + (split * batch + b) * rows + i
        below = tl.load(here, mask=i < M, other=float("-inf")) - anchor
        if TERMED:
            below += tl.load(here + M, mask=i < M, other=0.0)
        total += exponential(below, BASE_2)
    lse = anchor + logarithm(total, BASE_2)
    if SUMMED:
        centre = tl.load(CENTRE + b) if CENTRED else 0.0
        nats = lse * LN_2 if BASE_2 else lse
        summed = weighted_sum(nats + centre, WEIGHT + b * M, i, i < M, WEIGHTED)
        tl.store(LOSS + tl.program_id(0), factor * summed)
        if TERMED:
            lse = store_weight(TERMS + b * M, WEIGHT + b * M, anchor, total, i, M, WEIGHTED, BASE_2)
        lse = lse_for_backward(lse)
    elif TERMED:
        store_terms(TERMS + b * 2 * M, anchor, logarithm(total, BASE_2), i, M)
        lse = lse * LN_2 if BASE_2 else lse
    tl.store(LSE + b * M + i, lse, mask=i < M)


@triton.jit
def gradients(
    PARTIAL, WEIGHTS, A, DA, DBIAS, n, splits, panel, n_a, first,
    WEIGHED: tl.constexpr, SIGMOID: tl.constexpr, DIVIDED: tl.constexpr, ROUNDED: tl.constexpr,
    F: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """``DA_a = sum_split PARTIAL[split, a]``, ``DBIAS_a = sum_split WEIGHTS[split, a]``.

    PARTIAL is of n rows: of each set the ``panel`` that begins with ``first``, of n_a.

    There are weights if WEIGHED. With SIGMOID the share of the bias is added to DA, with DIVIDED it
    is divided by the weight, as `matmul.gradients` does itself if a loop is whole. DBIAS is not
    written in either case. A is as it was given, and ROUNDED here if it was for the loop.
    """
    row = tl.program_id(0) * BLOCK_A + tl.arange(0, BLOCK_A).to(tl.int64)
    f = tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F)
    place = first + row % panel
    row_ok = (row < n) & (place < n_a)
    a = row // panel * n_a + place
    ok = row_ok[:, None] & (f < F)[None, :]
    sums = tl.zeros([BLOCK_A, BLOCK_F], tl.float32)
    weight = tl.zeros([BLOCK_A], tl.float32)
    for _ in range(0, splits):
        sums += tl.load(PARTIAL + row[:, None] * F + f[None, :], mask=ok, other=0.0)
        if WEIGHED:
            weight += tl.load(WEIGHTS + row, mask=row_ok, other=0.0)
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
        tl.store(DBIAS + a, weight, mask=row_ok)
