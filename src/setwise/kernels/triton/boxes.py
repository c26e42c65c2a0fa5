"""Points in blocks with a box around each: which of them can matter, told from the boxes.

Legend: B sets, n points, F features, all of them compared. Points are sorted along a curve that
fills space (Morton, "A computer oriented geodetic data base", 1966), so that BLOCK of them in a row
lie close together, and so do GROUP blocks in a row, a parent.

What a box holds, of blocks and of parents, is [2 F + 1] numbers: the lowest and the highest value
of each feature, and the best term, which is the largest bias of keys or the largest -lse of
queries. No score with a point in the box is larger than the one with its nearest corner or face and
the best term. Both are computed by the same operations, and rounding keeps their order. So a box is
left out if that score is below the floor, the score from which on a pair matters: exactly.

A box of points that are not numbers has an infinite best term, and is never left out.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.coordinates import extended
from setwise.kernels.triton.weights import LOG2_E


@triton.jit
def codes(
    X, TERM, MEAN, VARIANCE, SHARPNESS, CODE, n, blocks,
    TERMED: tl.constexpr, BITS: tl.constexpr, F: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The place of each point on the curve: BITS of each feature, the highest first, in turns.

    Features are measured as scores do, from the mean; z / (1 + |z|) gives those far away room, too,
    and leaves most of it to those that are near. A key that cannot be chosen comes last.
    """
    b = (tl.program_id(0) // blocks).to(tl.int64)
    i = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    spread = tl.full([], 1e-30, tl.float32)
    for f in tl.static_range(F):
        spread += tl.load(SHARPNESS + b * F + f) * tl.load(VARIANCE + b * F + f)
    code = tl.zeros([BLOCK], tl.int64)
    for f in tl.static_range(F):
        unit = tl.sqrt(tl.load(SHARPNESS + b * F + f) / spread)
        x = tl.load(X + (b * n + i) * F + f, mask=i < n, other=0.0).to(tl.float32)
        z = (x - tl.load(MEAN + b * F + f)) * unit
        z /= 1.0 + tl.abs(z)
        z = tl.where((z > -1.0) & (z < 1.0), z, 0.0)  # neither NaN nor infinite
        cell = ((z * 0.5 + 0.5) * (1 << BITS)).to(tl.int64)
        for bit in tl.static_range(BITS):
            code |= ((cell >> bit) & 1) << (bit * F + f)
    if TERMED:
        term = tl.load(TERM + b * n + i, mask=i < n, other=0.0)
        code = tl.where(term == float("-inf"), tl.full([BLOCK], 1, tl.int64) << 62, code)
    tl.store(CODE + b * n + i, code, mask=i < n)


@triton.jit
def build(
    X, TERM, WEIGHT, ORDER, SORTED, BOXES, PARENTS, n, stride, parents,
    TERMS: tl.constexpr, F: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Points in their ORDER as columns [F + TERMS, stride], and the boxes of blocks and parents.

    A program has a parent. There are TERMS: 0, and no boxes are wanted; 1, the bias of keys, which
    is stored in units of log 2; or 2, the lse and the WEIGHT of queries. The stride is that of
    whole parents; where there is no point, the terms are such that it does not count.
    """
    parent = tl.program_id(0) % parents
    b = (tl.program_id(0) // parents).to(tl.int64)
    block = parent * GROUP + tl.arange(0, GROUP)
    i = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    ok = i < n
    origin = tl.load(ORDER + b * n + i, mask=ok, other=0)
    SORTED += b * (F + TERMS) * stride
    blocks = parents * GROUP
    BOXES += b * (2 * F + 1) * blocks
    PARENTS += b * (2 * F + 1) * parents
    if TERMS > 0:
        SIGN: tl.constexpr = 1.0 if TERMS == 1 else -1.0
        term = tl.load(TERM + b * n + origin, mask=ok, other=float("-inf") * SIGN)
        if TERMS == 1:
            term *= LOG2_E
        tl.store(SORTED + F * stride + i, term)
        best = term * SIGN
        counts = best > float("-inf")
        odd = term != term
    if TERMS == 2:
        weight = tl.load(WEIGHT + b * n + origin, mask=ok, other=0.0)
        tl.store(SORTED + (F + 1) * stride + i, weight)
    for f in tl.static_range(F):
        x = tl.load(X + (b * n + origin) * F + f, mask=ok, other=0.0).to(tl.float32)
        tl.store(SORTED + f * stride + i, x)
        if TERMS > 0:
            odd |= x != x
            low = tl.min(tl.where(counts & (x == x), x, float("inf")), 1)
            high = tl.max(tl.where(counts & (x == x), x, float("-inf")), 1)
            tl.store(BOXES + f * blocks + block, low)
            tl.store(BOXES + (F + f) * blocks + block, high)
            tl.store(PARENTS + f * parents + parent, tl.min(low, 0))
            tl.store(PARENTS + (F + f) * parents + parent, tl.max(high, 0))
    if TERMS > 0:
        best = tl.max(tl.where(odd, float("inf"), best), 1)
        tl.store(BOXES + 2 * F * blocks + block, best)
        tl.store(PARENTS + 2 * F * parents + parent, tl.max(best, 0))


@triton.jit
def bound(s, low_a, high_a, low, high, slope, F: tl.constexpr):
    """No score of points in two boxes is larger, if ``s`` is the best term; see `coordinates`."""
    for f in tl.static_range(F):
        apart = tl.maximum(tl.maximum(low[f] - high_a[f], low_a[f] - high[f]), 0.0)
        s = tl.fma(-(slope[f] * apart), apart, s)
    return s


@triton.jit
def box_of(a, ok, F: tl.constexpr):
    """The box of rows, two tuples of F numbers; what is no number widens none."""
    low, high = (), ()
    for f in tl.static_range(F):
        counts = ok & (a[f] == a[f])
        low = extended(low, tl.min(tl.where(counts, a[f], float("inf")), 0))
        high = extended(high, tl.max(tl.where(counts, a[f], float("-inf")), 0))
    return low, high


@triton.jit
def load_boxes(BOXES, k, count, F: tl.constexpr):
    """Of count boxes those k: lows, highs and best terms."""
    low, high = (), ()
    for f in tl.static_range(F):
        low = extended(low, tl.load(BOXES + f * count + k, mask=k < count, other=0.0))
        at = BOXES + (F + f) * count + k
        high = extended(high, tl.load(at, mask=k < count, other=0.0))
    best = tl.load(BOXES + 2 * F * count + k, mask=k < count, other=float("-inf"))
    return low, high, best


@triton.jit
def least(floor, ok):
    """The least floor of some rows; of one that is no number, the least there is."""
    return tl.min(tl.where(ok, tl.where(floor == floor, floor, float("-inf")), float("inf")), 0)


@triton.jit
def _matter(
    BOXES, first, count, low_a, high_a, slope, floor, F: tl.constexpr, GROUP: tl.constexpr
):  # fmt: skip
    """Which of GROUP boxes may matter to rows in a box: a bit for each."""
    lane = tl.arange(0, GROUP)
    low, high, best = load_boxes(BOXES, first + lane, count, F)
    s = bound(best, low_a, high_a, low, high, slope, F)
    bit = tl.full([GROUP], 1, tl.int64) << lane
    return tl.sum(tl.where((s < floor) | (first + lane >= count), 0, bit), 0)


@triton.jit
def lowest(bits):
    """The place of the lowest bit, of up to 62: the exponent of that power of two."""
    power = (bits & -bits).to(tl.float32)
    return (power.to(tl.int32, bitcast=True) >> 23) - 127


@triton.jit
def seek(
    BOXES, PARENTS, low_a, high_a, slope, floor, home, parents, step, group, above, parent,
    F: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Look at one more group of parents, or of the blocks ``below`` one of them.

    Parents are looked at in groups, from the one at home outwards along the curve; ``above`` are
    those of the last group that may matter and are still to be looked into. All have been when
    there are none, after as many steps as there are groups.
    """
    below = tl.zeros([], tl.int64)
    if above == 0:
        groups = tl.cdiv(parents, GROUP)
        away = (step + 1) // 2
        group = (home + tl.where(step % 2 == 1, away, groups - away)) % groups
        above = _matter(PARENTS, group * GROUP, parents, low_a, high_a, slope, floor, F, GROUP)
        step += 1
    else:
        parent = group * GROUP + lowest(above)
        above &= above - 1
        blocks = parents * GROUP
        below = _matter(BOXES, parent * GROUP, blocks, low_a, high_a, slope, floor, F, GROUP)
    return step, group, above, parent, below


@triton.jit
def matters(BOXES, block, blocks, a, ok, slope, floor, F: tl.constexpr):
    """Whether a block may matter to one of the rows by itself: finer than by the box of them."""
    low, high, best = load_boxes(BOXES, block, blocks, F)
    s = bound(best, a, a, low, high, slope, F)
    return tl.max((ok & ((s >= floor) | (s != s) | (floor != floor))).to(tl.int32), 0) != 0
