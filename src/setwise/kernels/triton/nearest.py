"""Kernels for losses of nearest elements, once it is known which they are.

Legend: M targets i, N outputs j, F features; B sets b. The cost of a pair and its derivative are
evaluated on the pair itself, where nothing cancels; what an output gets is the sum over the targets
that it is nearest to, always in the same order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.bf16x6 import split_bf16x3
from setwise.kernels.triton.elements import slope, store_loss
from setwise.kernels.triton.families import BERNOULLI, SQUARE, choice_terms, logs


@triton.jit
def pair_costs(
    X, Z, number, i, j, ok, GRADIENT: tl.constexpr, KIND: tl.constexpr, FROM: tl.constexpr,
    W: tl.constexpr, PADDED: tl.constexpr, F: tl.constexpr,
):  # fmt: skip
    """The costs of a block of targets i with outputs j, and their derivative to z_j [i, width]."""
    f = tl.arange(0, PADDED)
    there = ok[:, None] & (f < W)[None, :]
    at = (FROM + f)[None, :]
    x = tl.load(X + i[:, None] * F + at, mask=there, other=0.0)
    z = tl.load(Z + j[:, None] * F + at, mask=there, other=0.0)
    if KIND == SQUARE:
        apart = z - x
        cost = number * tl.sum(apart * apart, 1)
        d = 2.0 * number * apart
    else:
        if KIND == BERNOULLI:
            log_p, log_not_p = logs(z, f, z, f, z, KIND)
        else:
            total, best, others = choice_terms(z, f, there, KIND)
            log_p, log_not_p = logs(
                z, f[None, :], total[:, None], best[:, None], others[:, None], KIND
            )
        spent = x * log_p + (1.0 - x) * log_not_p
        cost = -number * tl.sum(tl.where(there, spent, 0.0), 1)
        d = z
        if GRADIENT:
            once = tl.full([i.shape[0]], 1.0, tl.float32)
            d = -slope(z, x, once, f, there, number, KIND)
    return cost, d


@triton.jit
def store_block(
    U, d, e, ok, FROM: tl.constexpr, W: tl.constexpr, PADDED: tl.constexpr, F: tl.constexpr
):
    """Derivatives of a block of features, in the rows U_e."""
    f = tl.arange(0, PADDED)
    there = ok[:, None] & (f < W)[None, :]
    tl.store(U + e[:, None] * F + (FROM + f)[None, :], d, mask=there)


@triton.jit
def _share(WEIGHT, at, ok, size, WEIGHTED: tl.constexpr, AVERAGED: tl.constexpr):
    """What an element counts: its WEIGHT or 1, if AVERAGED 1 of their number."""
    if WEIGHTED:
        return tl.load(WEIGHT + at, mask=ok, other=0.0)
    elif AVERAGED:
        return tl.where(ok, 1.0 / size, 0.0)
    else:
        return tl.where(ok, 1.0, 0.0)


@triton.jit
def pairs(
    X, Z, NEAREST, CLOSEST, WEIGHT, SHARE, NUMBERS, COST, COST_BACK, U, U_BACK, PARTS,
    M, N, blocks, factor,
    MODE: tl.constexpr, BOTH: tl.constexpr, WEIGHTED: tl.constexpr, SHARED: tl.constexpr,
    GRADIENT: tl.constexpr, KINDS: tl.constexpr, WIDTHS: tl.constexpr, STARTS: tl.constexpr,
    PADDED: tl.constexpr, F: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """COST_i [b, i] of each target with its NEAREST output, times its WEIGHT; if BOTH, COST_BACK
    [b, j] of each output with its CLOSEST target, times its SHARE.

    If the MODE is "mean", PARTS [b, block] add up to ``factor`` times the loss. U and U_BACK are
    the derivatives of the costs before they are weighted.
    """
    b = (tl.program_id(0) // blocks).to(tl.int64)
    e = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    X, Z = X + b * M * F, Z + b * N * F
    AVERAGED: tl.constexpr = MODE == "mean"
    ok = e < M
    j = tl.load(NEAREST + b * M + e, mask=ok, other=0)
    cost = tl.zeros([BLOCK], tl.float32)
    for k in tl.static_range(len(KINDS)):
        spent, d = pair_costs(
            X, Z, tl.load(NUMBERS + k), e, j, ok,
            GRADIENT, KINDS[k], STARTS[k], WIDTHS[k], PADDED[k], F,
        )  # fmt: skip
        cost += spent
        if GRADIENT:
            store_block(U + b * M * F, d, e, ok, STARTS[k], WIDTHS[k], PADDED[k], F)
    w = _share(WEIGHT, b * M + e, ok, M, WEIGHTED, AVERAGED)
    cost = tl.where(w != 0, w * cost, 0.0)
    tl.store(COST + b * M + e, cost, mask=ok)
    part = tl.sum(cost, 0)
    if BOTH:
        ok = e < N
        i = tl.load(CLOSEST + b * N + e, mask=ok, other=0)
        cost = tl.zeros([BLOCK], tl.float32)
        for k in tl.static_range(len(KINDS)):
            spent, d = pair_costs(
                X, Z, tl.load(NUMBERS + k), i, e, ok,
                GRADIENT, KINDS[k], STARTS[k], WIDTHS[k], PADDED[k], F,
            )  # fmt: skip
            cost += spent
            if GRADIENT:
                store_block(U_BACK + b * N * F, d, e, ok, STARTS[k], WIDTHS[k], PADDED[k], F)
        share = _share(SHARE, b * N + e, ok, N, SHARED, AVERAGED)
        cost = tl.where(share != 0, share * cost, 0.0)
        tl.store(COST_BACK + b * N + e, cost, mask=ok)
        part += tl.sum(cost, 0)
    if AVERAGED:
        tl.store(PARTS + tl.program_id(0), factor * part)


@triton.jit
def _largest(COST, size, BLOCK: tl.constexpr):
    """The largest of costs; NaN if any is."""
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    unknown = tl.zeros([BLOCK], tl.int32)
    for first in range(0, size, BLOCK):
        at = first + tl.arange(0, BLOCK)
        cost = tl.load(COST + at, mask=at < size, other=float("-inf"))
        best = tl.maximum(best, cost)
        unknown |= (cost != cost).to(tl.int32)
    return tl.where(tl.max(unknown, 0) > 0, float("nan"), tl.max(best, 0))


@triton.jit
def _count(COST, size, largest, BLOCK: tl.constexpr):
    """How many costs are the largest."""
    found = tl.zeros([BLOCK], tl.float32)
    for first in range(0, size, BLOCK):
        at = first + tl.arange(0, BLOCK)
        cost = tl.load(COST + at, mask=at < size, other=float("-inf"))
        found += (cost == largest).to(tl.float32)
    return tl.sum(found, 0)


@triton.jit
def worst(
    COST, COST_BACK, PARTS, WORST, TIES, M, N, factor, BOTH: tl.constexpr, BLOCK: tl.constexpr
):
    """The largest of the costs of a set, WORST [b], and PARTS of the loss.

    TIES [b, 2] are how many share the gradient, in either direction; if both are as bad, each
    direction gets half of it.
    """
    b = tl.program_id(0).to(tl.int64)
    largest = _largest(COST + b * M, M, BLOCK)
    ties = _count(COST + b * M, M, largest, BLOCK)
    if BOTH:
        back = _largest(COST_BACK + b * N, N, BLOCK)
        ties *= tl.where(largest == back, 2.0, 1.0)
        ties_back = _count(COST_BACK + b * N, N, back, BLOCK) * tl.where(largest == back, 2.0, 1.0)
        tl.store(TIES + 2 * b + 1, ties_back)
        largest = tl.where((largest > back) | (largest != largest), largest, back)
    tl.store(WORST + b, largest)
    tl.store(TIES + 2 * b, ties)
    tl.store(PARTS + b, factor * largest)


@triton.jit
def _grad(COST, WEIGHT, at, ok, largest, ties, size, MODE: tl.constexpr, WEIGHTED: tl.constexpr):
    """The derivative of the loss to the cost of elements, before it is weighted."""
    g = _share(WEIGHT, at, ok, size, WEIGHTED, MODE == "mean")
    if MODE == "worst":
        # Equally bad ones share it.
        cost = tl.load(COST + at, mask=ok, other=0.0)
        g = tl.where(cost == largest, g / ties, 0.0)
    return g


@triton.jit(do_not_specialize=["parts"])
def gather(
    NEAREST, WEIGHT, SHARE, COST, COST_BACK, WORST, TIES, U, U_BACK, DZ, PARTS, LOSS,
    M, N, blocks, parts, factor,
    MODE: tl.constexpr, BOTH: tl.constexpr, WEIGHTED: tl.constexpr, SHARED: tl.constexpr,
    TOTALLED: tl.constexpr, F: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_F: tl.constexpr,
):  # fmt: skip
    """``DZ_j``: the sum of the derivatives of all pairs that output j is part of, times factor.

    Which targets it is nearest to is asked of all of them, as a product with zeros and ones: by
    tensor cores, and exact, for the derivatives come in parts (`bf16x6`). With TOTALLED also
    ``LOSS = sum PARTS``.
    """
    if TOTALLED and (tl.program_id(0) == 0) & (tl.program_id(1) == 0):
        store_loss(PARTS, PARTS, LOSS, PARTS, 1.0, parts, 0, False, 512)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    j = tl.program_id(0) % blocks * BLOCK_N + tl.arange(0, BLOCK_N)
    f = tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F)
    f_ok = (f < F)[None, :]
    largest, ties, ties_back = 0.0, 1.0, 1.0
    if MODE == "worst":
        largest, ties = tl.load(WORST + b), tl.load(TIES + 2 * b)
        if BOTH:
            ties_back = tl.load(TIES + 2 * b + 1)
    sums = tl.zeros([BLOCK_N, BLOCK_F], tl.float32)
    for first in range(0, M, BLOCK_M):
        i = first + tl.arange(0, BLOCK_M)
        at = b * M + i
        g = _grad(COST, WEIGHT, at, i < M, largest, ties, M, MODE, WEIGHTED)
        there = (i < M)[:, None] & f_ok
        u = tl.load(U + at[:, None] * F + f[None, :], mask=there, other=0.0)
        high, middle, low = split_bf16x3(u * (factor * g)[:, None], False)
        nearest = tl.load(NEAREST + at, mask=i < M, other=-1).to(tl.int32)
        hit = (j[:, None] == nearest[None, :]).to(high.dtype)
        sums += tl.dot(hit, high, tl.dot(hit, middle, tl.dot(hit, low)))
    at = b * N + j
    here = at[:, None] * F + f[None, :]
    there = (j < N)[:, None] & f_ok
    if BOTH:
        g = _grad(COST_BACK, SHARE, at, j < N, largest, ties_back, N, MODE, SHARED)
        sums += (factor * g)[:, None] * tl.load(U_BACK + here, mask=there, other=0.0)
    tl.store(DZ + here, sums, mask=there)


@triton.jit
def _hits_any(nearest, first, SIZE: tl.constexpr):
    """Whether any of these numbers is among the SIZE from the first on."""
    return tl.max(((nearest >= first) & (nearest < first + SIZE)).to(tl.int32), 0) > 0


@triton.jit
def _add_hits(sums, hit, U, i, i_ok, g, f: tl.constexpr, F: tl.constexpr):
    """Feature f of the derivatives of targets i, added where they hit an output."""
    if f < F:
        u = tl.load(U + i * F + f, mask=i_ok, other=0.0) * g
        return sums + tl.where(hit, u[None, :], 0.0)
    else:
        return sums


@triton.jit
def _store_sums(DZ, U_BACK, sums, g, at, ok, f: tl.constexpr, F: tl.constexpr, BOTH: tl.constexpr):
    """Feature f of the gradient."""
    if f < F:
        total = tl.sum(sums, 1)
        if BOTH:
            total += g * tl.load(U_BACK + at * F + f, mask=ok, other=0.0)
        tl.store(DZ + at * F + f, total, mask=ok)


@triton.jit(do_not_specialize=["parts"])
def gather_points(
    NEAREST, WEIGHT, SHARE, COST, COST_BACK, WORST, TIES, U, U_BACK, DZ, PARTS, LOSS,
    M, N, blocks, parts, factor,
    MODE: tl.constexpr, BOTH: tl.constexpr, WEIGHTED: tl.constexpr, SHARED: tl.constexpr,
    TOTALLED: tl.constexpr, F: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """`gather` of at most four features: sums are kept per slot of the tile, as in `points`.

    Tiles are small, so that in large sets most have no hit, and are passed over.
    """
    if TOTALLED and tl.program_id(0) == 0:
        store_loss(PARTS, PARTS, LOSS, PARTS, 1.0, parts, 0, False, 512)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    first_j = tl.program_id(0) % blocks * BLOCK_N
    j = first_j + tl.arange(0, BLOCK_N)
    largest, ties, ties_back = 0.0, 1.0, 1.0
    if MODE == "worst":
        largest, ties = tl.load(WORST + b), tl.load(TIES + 2 * b)
        if BOTH:
            ties_back = tl.load(TIES + 2 * b + 1)
    sum0 = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    sum1 = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    sum2 = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    sum3 = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for first in tl.range(0, M, BLOCK_M, num_stages=STAGES):
        i = first + tl.arange(0, BLOCK_M)
        at = b * M + i
        nearest = tl.load(NEAREST + at, mask=i < M, other=-1).to(tl.int32)
        if _hits_any(nearest, first_j, BLOCK_N):
            g = factor * _grad(COST, WEIGHT, at, i < M, largest, ties, M, MODE, WEIGHTED)
            hit = j[:, None] == nearest[None, :]
            sum0 = _add_hits(sum0, hit, U, at, i < M, g, 0, F)
            sum1 = _add_hits(sum1, hit, U, at, i < M, g, 1, F)
            sum2 = _add_hits(sum2, hit, U, at, i < M, g, 2, F)
            sum3 = _add_hits(sum3, hit, U, at, i < M, g, 3, F)
    at = b * N + j
    g = tl.zeros([BLOCK_N], tl.float32)
    if BOTH:
        g = factor * _grad(COST_BACK, SHARE, at, j < N, largest, ties_back, N, MODE, SHARED)
    _store_sums(DZ, U_BACK, sum0, g, at, j < N, 0, F, BOTH)
    _store_sums(DZ, U_BACK, sum1, g, at, j < N, 1, F, BOTH)
    _store_sums(DZ, U_BACK, sum2, g, at, j < N, 2, F, BOTH)
    _store_sums(DZ, U_BACK, sum3, g, at, j < N, 3, F, BOTH)
