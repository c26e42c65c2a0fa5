"""Reductions over points that leave out blocks of them which cannot matter; see `boxes`.

Legend: M queries, N keys, F features. Of the score matrix, or of its transpose, a program keeps a
block of rows (A) and visits blocks of columns (C), both of them sorted. A pair matters to a maximum
if its score is not below one that was met before, and to a sum if its weight is at least 2^-cut.

Where a large share of the blocks matters, to search takes longer than it saves. So they are counted
first, for SAMPLES blocks of rows. If they are too many, the programs here return at once, and those
of `unpruned` do not. The device decides that, and the host does not wait for it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.best_keys import NOWHERE, top_and_first
from setwise.kernels.triton.boxes import bound, box_of, least, load_boxes, lowest, matters, seek
from setwise.kernels.triton.coordinates import (
    add_weighted,
    extended,
    features,
    key_scores,
    no_sums,
    slopes,
    store_sums,
)
from setwise.kernels.triton.weights import LN_2, finite_max, store_terms

# To search pays if fewer than one block in so many matters.
ONE_IN = tl.constexpr(4)


@triton.jit
def home_block(START, BLOCK: tl.constexpr):
    """The block of keys at the place on the curve where a block of queries is."""
    before = tl.load(START).to(tl.int32)
    return tl.maximum(before - 1, 0) // BLOCK


@triton.jit
def too_many(KEPT, blocks, SAMPLES: tl.constexpr):
    """Whether all columns are to be visited."""
    kept = tl.sum(tl.load(KEPT + tl.arange(0, SAMPLES)).to(tl.float32), 0)
    return kept * ONE_IN > blocks.to(tl.float32) * SAMPLES


@triton.jit
def _floor(term, cut, ROWS_ARE_KEYS: tl.constexpr):
    """What has to be reached to matter to a row by what the column adds to a score.

    Of a query that is its lse less the cut. Scores of a key are relative to the lse of columns, and
    its bias is the same in all.
    """
    return -cut - term if ROWS_ARE_KEYS else term - cut


@triton.jit
def count(
    A, C, BOXES, START, SHARPNESS, KEPT, n_a, stride_a, stride_c, blocks, cut,
    LOOKS: tl.constexpr, ROWS_ARE_KEYS: tl.constexpr, F: tl.constexpr, BLOCK_A: tl.constexpr,
    BLOCK: tl.constexpr, GROUP: tl.constexpr, SAMPLES: tl.constexpr,
):  # fmt: skip
    """How many blocks of columns a block of rows has to visit: KEPT [b, SAMPLES].

    If it LOOKS, the lse is not yet known, and the floor is that of a first look.
    """
    programs, b = tl.cdiv(n_a, BLOCK_A), (tl.program_id(0) // SAMPLES).to(tl.int64)
    sample = (tl.program_id(0) % SAMPLES).to(tl.int64)
    row_block = (sample * programs // SAMPLES).to(tl.int32)
    i = row_block * BLOCK_A + tl.arange(0, BLOCK_A)
    BOXES += b * (2 * F + 1) * blocks
    slope = slopes(SHARPNESS + b * F, F)
    if LOOKS:
        a = features(A + b * F * stride_a, i, stride_a, F)
        j = home_block(START + b * programs + row_block, BLOCK) * BLOCK + tl.arange(0, BLOCK)
        top = tl.max(key_scores(C + b * (F + 1) * stride_c, j, a, slope, stride_c, F), 1)
        floor = top - cut
    else:
        A += b * (F + (1 if ROWS_ARE_KEYS else 2)) * stride_a
        a = features(A, i, stride_a, F)
        floor = _floor(tl.load(A + F * stride_a + i), cut, ROWS_ARE_KEYS)
    floor = tl.where(i < n_a, floor, float("inf"))[:, None]
    rows, found = (), tl.zeros([GROUP], tl.int32)
    for f in tl.static_range(F):
        rows = extended(rows, a[f][:, None])
    for first in range(0, blocks, GROUP):
        low, high, best = load_boxes(BOXES, (first + tl.arange(0, GROUP))[None, :], blocks, F)
        s = tl.zeros([BLOCK_A, GROUP], tl.float32) + best
        found += tl.max((bound(s, rows, rows, low, high, slope, F) >= floor).to(tl.int32), 0)
    tl.store(KEPT + tl.program_id(0), tl.sum(found, 0))


@triton.jit
def argmax(
    Q, K, Q_ORDER, K_ORDER, BOXES, PARENTS, START, KEPT, SHARPNESS, INDEX,
    M, N, stride_q, stride_k, blocks,
    F: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
    SAMPLES: tl.constexpr,
):  # fmt: skip
    """``INDEX[b, i] = argmax_j score_ij``, the first of equals, as they were numbered unsorted."""
    programs, parents = tl.cdiv(M, BLOCK_A), blocks // GROUP
    row_block, b = tl.program_id(0) % programs, (tl.program_id(0) // programs).to(tl.int64)
    if too_many(KEPT + b * SAMPLES, blocks, SAMPLES):
        return
    i = row_block * BLOCK_A + tl.arange(0, BLOCK_A)
    ok = i < M
    q = features(Q + b * F * stride_q, i, stride_q, F)
    slope = slopes(SHARPNESS + b * F, F)
    K, K_ORDER = K + b * (F + 1) * stride_k, K_ORDER + b * N
    BOXES, PARENTS = BOXES + b * (2 * F + 1) * blocks, PARENTS + b * (2 * F + 1) * parents
    low, high = box_of(q, ok, F)
    best = tl.full([BLOCK_A], float("-inf"), tl.float32)
    where = tl.full([BLOCK_A], NOWHERE, tl.int32)
    block = home_block(START + b * programs + row_block, BLOCK)
    best, where = _better(K, K_ORDER, best, where, q, slope, block, N, stride_k, F, BLOCK)
    floor = least(best, ok)
    home = block // (GROUP * GROUP)
    step, group, parent = home * 0, home * 0, home * 0
    above, below = step.to(tl.int64), step.to(tl.int64)
    while (below != 0) | (above != 0) | (step < tl.cdiv(parents, GROUP)):
        if below == 0:
            step, group, above, parent, below = seek(
                BOXES, PARENTS, low, high, slope, floor, home, parents,
                step, group, above, parent, F, GROUP,
            )  # fmt: skip
        else:
            block = parent * GROUP + lowest(below)
            below &= below - 1
            if matters(BOXES, block, blocks, q, ok, slope, best, F):
                best, where = _better(
                    K, K_ORDER, best, where, q, slope, block, N, stride_k, F, BLOCK
                )
                floor = least(best, ok)
    for f in tl.static_range(F):
        where = tl.where(q[f] == q[f], where, 0)  # to what is no number all are equal
    origin = tl.load(Q_ORDER + b * M + i, mask=ok, other=0)
    tl.store(INDEX + b * M + origin, where.to(tl.int64), mask=ok)


@triton.jit
def _better(
    K, ORDER, best, where, q, slope, block, N, stride, F: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The best scores and where they are, with those of one more block."""
    j = block * BLOCK + tl.arange(0, BLOCK)
    s = key_scores(K, j, q, slope, stride, F)
    origin = tl.load(ORDER + j, mask=j < N, other=NOWHERE).to(tl.int32)
    top, first = top_and_first(s, origin[None, :])
    better = (top > best) | ((top == best) & (first < where))
    return tl.maximum(best, top), tl.where(better, first, where)


@triton.jit
def logsumexp(
    Q, K, Q_ORDER, BOXES, PARENTS, START, KEPT, SHARPNESS, LSE, TERMS,
    M, N, stride_q, stride_k, blocks, cut,
    F: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
    SAMPLES: tl.constexpr,
):  # fmt: skip
    """``LSE[b, i] = logsumexp_j score_ij``; TERMS [b, 2, i] are those of `weights.store_terms`."""
    programs, parents = tl.cdiv(M, BLOCK_A), blocks // GROUP
    row_block, b = tl.program_id(0) % programs, (tl.program_id(0) // programs).to(tl.int64)
    if too_many(KEPT + b * SAMPLES, blocks, SAMPLES):
        return
    i = row_block * BLOCK_A + tl.arange(0, BLOCK_A)
    ok = i < M
    q = features(Q + b * F * stride_q, i, stride_q, F)
    slope = slopes(SHARPNESS + b * F, F)
    K += b * (F + 1) * stride_k
    BOXES, PARENTS = BOXES + b * (2 * F + 1) * blocks, PARENTS + b * (2 * F + 1) * parents
    low, high = box_of(q, ok, F)
    block = home_block(START + b * programs + row_block, BLOCK)
    # A first look, for the floor alone: the block will be visited in its turn.
    top = tl.max(key_scores(K, block * BLOCK + tl.arange(0, BLOCK), q, slope, stride_k, F), 1)
    total = tl.zeros([BLOCK_A], tl.float32)
    floor = least(top - cut, ok)
    home = block // (GROUP * GROUP)
    step, group, parent = home * 0, home * 0, home * 0
    above, below = step.to(tl.int64), step.to(tl.int64)
    while (below != 0) | (above != 0) | (step < tl.cdiv(parents, GROUP)):
        if below == 0:
            step, group, above, parent, below = seek(
                BOXES, PARENTS, low, high, slope, floor, home, parents,
                step, group, above, parent, F, GROUP,
            )  # fmt: skip
        else:
            block = parent * GROUP + lowest(below)
            below &= below - 1
            if matters(BOXES, block, blocks, q, ok, slope, top - cut, F):
                j = block * BLOCK + tl.arange(0, BLOCK)
                s = key_scores(K, j, q, slope, stride_k, F)
                higher = tl.maximum(top, tl.max(s, 1))
                anchor = finite_max(higher)
                total *= tl.exp2(top - anchor)
                total += tl.sum(tl.exp2(s - anchor[:, None]), 1)
                top = higher
                floor = least(top - cut, ok)
    anchor, over = finite_max(top), tl.log2(total)
    origin = tl.load(Q_ORDER + b * M + i, mask=ok, other=M).to(tl.int32)
    store_terms(TERMS + b * 2 * M, anchor, over, origin, M)
    tl.store(LSE + b * M + origin, (anchor + over) * LN_2, mask=ok)


@triton.jit
def gradients(
    A, C, ORDER, BOXES, PARENTS, KEPT, SHARPNESS, DA, DBIAS,
    n_a, stride_a, stride_c, blocks, cut,
    ROWS_ARE_KEYS: tl.constexpr, F: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK: tl.constexpr,
    GROUP: tl.constexpr, SAMPLES: tl.constexpr,
):  # fmt: skip
    """Gradient of one side, whose points A are the rows, and of the bias if they are keys."""
    programs, parents = tl.cdiv(n_a, BLOCK_A), blocks // GROUP
    row_block, b = tl.program_id(0) % programs, (tl.program_id(0) // programs).to(tl.int64)
    if too_many(KEPT + b * SAMPLES, blocks, SAMPLES):
        return
    i = row_block * BLOCK_A + tl.arange(0, BLOCK_A)
    ok = i < n_a
    A += b * (F + (1 if ROWS_ARE_KEYS else 2)) * stride_a
    C += b * (F + (2 if ROWS_ARE_KEYS else 1)) * stride_c
    a, term = features(A, i, stride_a, F), tl.load(A + F * stride_a + i)
    slope = slopes(SHARPNESS + b * F, F)
    BOXES, PARENTS = BOXES + b * (2 * F + 1) * blocks, PARENTS + b * (2 * F + 1) * parents
    low, high = box_of(a, ok, F)
    row_floor = _floor(term, cut, ROWS_ARE_KEYS)
    floor = least(row_floor, ok)
    sums = no_sums(BLOCK_A, BLOCK, F)
    home = row_block * 0  # wherever one begins
    step, group, parent = home, home, home
    above, below = step.to(tl.int64), step.to(tl.int64)
    while (below != 0) | (above != 0) | (step < tl.cdiv(parents, GROUP)):
        if below == 0:
            step, group, above, parent, below = seek(
                BOXES, PARENTS, low, high, slope, floor, home, parents,
                step, group, above, parent, F, GROUP,
            )  # fmt: skip
        else:
            block = parent * GROUP + lowest(below)
            below &= below - 1
            if matters(BOXES, block, blocks, a, ok, slope, row_floor, F):
                c = block * BLOCK + tl.arange(0, BLOCK)
                sums = add_weighted(sums, C, c, a, term, slope, stride_c, ROWS_ARE_KEYS, F)
    store_sums(
        sums, A, ORDER + b * n_a, SHARPNESS + b * F, DA + b * n_a * F, DBIAS + b * n_a,
        i, n_a, stride_a, ROWS_ARE_KEYS, F,
    )  # fmt: skip
