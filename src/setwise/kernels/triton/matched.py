"""Kernels for losses of one matching: before it is known, and once it is.

Legend: M targets i, N outputs j, F features; B sets b. Where outputs have a PRESENCE c_j, the use
of one gains ``presence_weight c_j`` over leaving it out, which costs softplus of the same.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.families import softplus
from setwise.kernels.triton.nearest import pair_costs, store_block
from setwise.kernels.triton.small_losses import add_costs, store_gradient

# Targets that are asked at once whether they have an output.
AT_ONCE = tl.constexpr(64)


@triton.jit
def _tile(
    X, Z, WEIGHT, PRESENCE, NUMBERS, b, i, j, M, N, presence_weight,
    ROOT: tl.constexpr, WEIGHTED: tl.constexpr, PRESENT: tl.constexpr, KINDS: tl.constexpr,
    WIDTHS: tl.constexpr, STARTS: tl.constexpr, PADDED: tl.constexpr, F: tl.constexpr,
):  # fmt: skip
    """What each pair costs [i, j], with its weight and what the output's existence gains."""
    h = tl.zeros([i.shape[0], j.shape[0]], tl.float32)
    for k in tl.static_range(len(KINDS)):
        h = add_costs(
            h, X + b * M * F, Z + b * N * F, tl.load(NUMBERS + k), i, j, M, N,
            KINDS[k], STARTS[k], WIDTHS[k], PADDED[k], F,
        )  # fmt: skip
    if ROOT:
        h = tl.sqrt(h)
    if WEIGHTED:
        h *= tl.load(WEIGHT + b * M + i, mask=i < M, other=0.0)[:, None]
    if PRESENT:
        h -= presence_weight * tl.load(PRESENCE + b * N + j, mask=j < N, other=0.0)[None, :]
    return h


@triton.jit
def costs(
    X, Z, WEIGHT, PRESENCE, NUMBERS, COST, M, N, presence_weight,
    ROOT: tl.constexpr, WEIGHTED: tl.constexpr, PRESENT: tl.constexpr, TURNED: tl.constexpr,
    KINDS: tl.constexpr, WIDTHS: tl.constexpr, STARTS: tl.constexpr, PADDED: tl.constexpr,
    F: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The costs of all pairs of small sets, [b, M, N], or if TURNED [b, N, M].

    Or their ROOT, if elements are points and costs are squares.
    """
    b = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    h = _tile(
        X, Z, WEIGHT, PRESENCE, NUMBERS, b, i, j, M, N, presence_weight,
        ROOT, WEIGHTED, PRESENT, KINDS, WIDTHS, STARTS, PADDED, F,
    )  # fmt: skip
    at = j[None, :] * M + i[:, None] if TURNED else i[:, None] * N + j[None, :]
    tl.store(COST + b * M * N + at, h, mask=(i < M)[:, None] & (j < N)[None, :])


@triton.jit
def pull(
    X, Z, NUMBERS, DCOST, DZ, M, N, KINDS: tl.constexpr, WIDTHS: tl.constexpr,
    STARTS: tl.constexpr, PADDED: tl.constexpr, F: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The gradient DZ [b, j, f] of outputs of small sets from that of all costs [b, M, N]."""
    b = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    at, ok = i[:, None] * N + j[None, :], (i < M)[:, None] & (j < N)[None, :]
    p = tl.load(DCOST + b * M * N + at, mask=ok, other=0.0)
    for k in tl.static_range(len(KINDS)):
        store_gradient(
            X + b * M * F, Z + b * N * F, DZ + b * N * F, p, tl.load(NUMBERS + k), i, j, M, N,
            KINDS[k], STARTS[k], WIDTHS[k], PADDED[k], F,
        )  # fmt: skip


@triton.jit
def stable(
    X, Z, VALID, TARGET_VALID, WEIGHT, PRESENCE, NUMBERS, MATCHING, M, N, presence_weight,
    MASKED: tl.constexpr, TARGET_MASKED: tl.constexpr, WEIGHTED: tl.constexpr,
    PRESENT: tl.constexpr, KINDS: tl.constexpr, WIDTHS: tl.constexpr, STARTS: tl.constexpr,
    PADDED: tl.constexpr, F: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The stable MATCHING [b, i] of small sets: over and over, the cheapest pair that is left.

    Why that is stable is said in `kernels.stable`. A cost of NaN comes first: it has to be seen.
    """
    b = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    h = _tile(
        X, Z, WEIGHT, PRESENCE, NUMBERS, b, i, j, M, N, presence_weight,
        False, WEIGHTED, PRESENT, KINDS, WIDTHS, STARTS, PADDED, F,
    )  # fmt: skip
    h = tl.where(h == h, tl.minimum(h, 3.4e38), float("-inf"))  # infinity is of what is closed
    targets, outputs = i < M, j < N
    if TARGET_MASKED:
        targets &= tl.load(TARGET_VALID + b * M + i, mask=i < M, other=0) != 0
    if MASKED:
        outputs &= tl.load(VALID + b * N + j, mask=j < N, other=0) != 0
    h = tl.where(targets[:, None] & outputs[None, :], h, float("inf"))
    number = i[:, None] * BLOCK_N + j[None, :]
    matching = tl.full([BLOCK_M], -1, tl.int32)
    for _ in range(0, tl.minimum(M, N)):
        least = tl.min(tl.min(h, 1), 0)
        is_least = (h == least) & (h < float("inf"))
        first = tl.min(tl.min(tl.where(is_least, number, BLOCK_M * BLOCK_N), 1), 0)
        target, output = first // BLOCK_N, first % BLOCK_N
        matching = tl.where(i == target, output, matching)
        # Of a set that is done there is no such target, and nothing is left to be closed.
        h = tl.where((i == target)[:, None] | (j == output)[None, :], float("inf"), h)
    tl.store(MATCHING + b * M + i, matching.to(tl.int64), mask=i < M)


@triton.jit
def loss(
    X, Z, VALID, TARGET_VALID, WEIGHT, PRESENCE, NUMBERS, MATCHING, PARTS, DZ, DPRESENCE,
    M, N, blocks, factor, presence_weight,
    ROOT: tl.constexpr, MASKED: tl.constexpr, TARGET_MASKED: tl.constexpr,
    WEIGHTED: tl.constexpr, PRESENT: tl.constexpr, GRADIENT: tl.constexpr, KINDS: tl.constexpr,
    WIDTHS: tl.constexpr, STARTS: tl.constexpr, PADDED: tl.constexpr, F: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """PARTS [b, block] that add up to ``factor`` times the loss under a MATCHING [b, i].

    A program has a BLOCK of outputs: a matching gives each at most one target, so that their
    gradients DZ [b, j, f] and DPRESENCE [b, j] are whole. A set of which a target is left without
    an output costs infinity, and has a gradient of 0. With ROOT a pair costs the root of a square,
    which has no gradient at 0.
    """
    b = (tl.program_id(0) // blocks).to(tl.int64)
    j = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    owner = tl.full([BLOCK], -1, tl.int32)
    unpaired = 0
    for first in range(0, M, AT_ONCE):
        i = first + tl.arange(0, AT_ONCE)
        there = i < M
        output = tl.load(MATCHING + b * M + i, mask=there, other=-1).to(tl.int32)
        if TARGET_MASKED:
            there &= tl.load(TARGET_VALID + b * M + i, mask=there, other=0) != 0
        unpaired += tl.sum((there & (output < 0)).to(tl.int32), 0)
        of_mine = tl.where(output[None, :] == j[:, None], i[None, :], -1)
        owner = tl.maximum(owner, tl.max(of_mine, 1))
    used = owner >= 0
    i = tl.maximum(owner, 0)
    w = tl.where(used, 1.0, 0.0)
    if WEIGHTED:
        w = tl.load(WEIGHT + b * M + i, mask=used, other=0.0)
    g = tl.where(unpaired > 0, 0.0, factor * w)
    cost = tl.zeros([BLOCK], tl.float32)
    for k in tl.static_range(len(KINDS)):
        spent, d = pair_costs(
            X + b * M * F, Z + b * N * F, tl.load(NUMBERS + k), i, j, used,
            GRADIENT, KINDS[k], STARTS[k], WIDTHS[k], PADDED[k], F,
        )  # fmt: skip
        if ROOT:
            spent = tl.sqrt(spent)
            d *= (0.5 / tl.where(spent > 0, spent, float("inf")))[:, None]
        cost += spent
        if GRADIENT:
            d = tl.where((g != 0)[:, None], g[:, None] * d, 0.0)
            store_block(DZ + b * N * F, d, j, j < N, STARTS[k], WIDTHS[k], PADDED[k], F)
    cost = tl.where(used, w * cost, 0.0)
    if PRESENT:
        exists = j < N
        if MASKED:
            exists &= tl.load(VALID + b * N + j, mask=j < N, other=0) != 0
        c = tl.load(PRESENCE + b * N + j, mask=j < N, other=0.0)
        absent = tl.where(exists, softplus(c), 0.0)
        cost += presence_weight * (absent - tl.where(used, c, 0.0))
        if GRADIENT:
            d_c = tl.where(exists, tl.sigmoid(c), 0.0) - tl.where(used, 1.0, 0.0)
            d_c = tl.where(unpaired > 0, 0.0, factor * presence_weight * d_c)
            tl.store(DPRESENCE + b * N + j, d_c, mask=j < N)
    part = tl.where(unpaired > 0, float("inf"), factor * tl.sum(cost, 0))
    tl.store(PARTS + tl.program_id(0), part)
