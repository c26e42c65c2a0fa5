"""Kernels before and after a sum over matchings of many small sets: one program a set.

Legend: B sets b, M targets i, N outputs j, F features. The sum itself is `subset_sums` or `bethe`;
here elements become its scores, and the probabilities of its pairs the gradient of the outputs.
"""

from __future__ import annotations

from functools import lru_cache

import triton
import triton.language as tl

from setwise.kernels.triton.element import Element
from setwise.kernels.triton.elements import store_loss
from setwise.kernels.triton.families import softplus
from setwise.kernels.triton.fused_plans import tile
from setwise.kernels.triton.launch import launcher
from setwise.kernels.triton.plans import Plan
from setwise.kernels.triton.rounds import valid
from setwise.kernels.triton.small_losses import add_costs, store_gradient


@triton.jit
def store_scores(
    X, Z, VALID, TARGET_VALID, WEIGHT, EXISTS, NUMBERS, SCORES, ROWS, COLUMNS, BASE,
    M, N, factor, presence_weight,
    MASKED: tl.constexpr, TARGET_MASKED: tl.constexpr, WEIGHTED: tl.constexpr,
    PRESENCE: tl.constexpr, KINDS: tl.constexpr, WIDTHS: tl.constexpr, STARTS: tl.constexpr,
    PADDED: tl.constexpr, F: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """``SCORES_ij = -WEIGHT_i H_ij``; with PRESENCE, of logits EXISTS, that also adds its odds.

    BASE_b is then ``factor`` times the cost of leaving all outputs out. If either side is masked,
    ROWS [b, M] and COLUMNS [b, N] get what is valid on both, and BASE_b is infinite where there are
    more targets than outputs.
    """
    b = tl.program_id(0).to(tl.int64)
    X, Z = X + b * M * F, Z + b * N * F
    i, j = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    h = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in tl.static_range(len(KINDS)):
        h = add_costs(
            h, X, Z, tl.load(NUMBERS + k), i, j, M, N,
            KINDS[k], STARTS[k], WIDTHS[k], PADDED[k], F,
        )  # fmt: skip
    s = -h
    if WEIGHTED:
        s *= tl.load(WEIGHT + b * M + i, mask=i < M, other=0.0)[:, None]
    column_ok = valid(VALID + b * N, j, N, MASKED)
    base = 0.0
    if PRESENCE:
        exists = tl.load(EXISTS + b * N + j, mask=j < N, other=0.0)
        s += (presence_weight * exists)[None, :]
        absent = tl.sum(tl.where(column_ok, softplus(exists), 0.0), 0)
        base = factor * presence_weight * absent
    at = (b * M + i)[:, None] * N + j[None, :]
    tl.store(SCORES + at, s, mask=(i < M)[:, None] & (j < N)[None, :])
    if MASKED or TARGET_MASKED:
        row_ok = valid(TARGET_VALID + b * M, i, M, TARGET_MASKED)
        tl.store(ROWS + b * M + i, row_ok.to(tl.uint8), mask=i < M)
        tl.store(COLUMNS + b * N + j, column_ok.to(tl.uint8), mask=j < N)
        impossible = tl.sum(row_ok.to(tl.int32), 0) > tl.sum(column_ok.to(tl.int32), 0)
        base = tl.where(impossible, float("inf"), base)
    if PRESENCE or MASKED or TARGET_MASKED:
        tl.store(BASE + b, base)


@triton.jit(do_not_specialize=["parts"])
def store_gradients(
    X, Z, PAIRS, VALID, WEIGHT, EXISTS, NUMBERS, VALUE, BASE, LOSS, DZ, D_EXISTS,
    M, N, parts, factor, presence_weight,
    MASKED: tl.constexpr, TARGET_MASKED: tl.constexpr, WEIGHTED: tl.constexpr,
    PRESENCE: tl.constexpr, TOTALLED: tl.constexpr, KINDS: tl.constexpr, WIDTHS: tl.constexpr,
    STARTS: tl.constexpr, PADDED: tl.constexpr, F: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The loss ``BASE_b - factor VALUE_b`` and its gradients, which are 0 where it is infinite.

    PAIRS [b, M, N] are the probabilities of pairs. The loss is that of each set, or TOTALLED over
    the sets, of which there are as many as ``parts``.
    """
    b = tl.program_id(0).to(tl.int64)
    BASED: tl.constexpr = PRESENCE or MASKED or TARGET_MASKED
    if TOTALLED:
        if b == 0:
            base_parts = parts if BASED else 0
            store_loss(VALUE, BASE, LOSS, VALUE, -factor, parts, base_parts, False, 512)
    else:
        base_parts = 1 if BASED else 0
        store_loss(VALUE + b, BASE + b, LOSS + b, VALUE, -factor, 1, base_parts, False, 2)
    if MASKED or TARGET_MASKED:
        factor = tl.where(tl.load(BASE + b) == float("inf"), 0.0, factor)
    X, Z, DZ = X + b * M * F, Z + b * N * F, DZ + b * N * F
    i, j = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    at = (b * M + i)[:, None] * N + j[None, :]
    p = factor * tl.load(PAIRS + at, mask=(i < M)[:, None] & (j < N)[None, :], other=0.0)
    if PRESENCE:
        exists = tl.load(EXISTS + b * N + j, mask=j < N, other=0.0)
        column_ok = valid(VALID + b * N, j, N, MASKED)
        d = tl.where(column_ok, factor * tl.sigmoid(exists), 0.0) - tl.sum(p, 0)
        tl.store(D_EXISTS + b * N + j, presence_weight * d, mask=j < N)
    if WEIGHTED:
        p *= tl.load(WEIGHT + b * M + i, mask=i < M, other=0.0)[:, None]
    for k in tl.static_range(len(KINDS)):
        store_gradient(
            X, Z, DZ, p, tl.load(NUMBERS + k), i, j, M, N,
            KINDS[k], STARTS[k], WIDTHS[k], PADDED[k], F,
        )  # fmt: skip


_cached = lru_cache(maxsize=1024)


def _kind(masked: bool, target_masked: bool, weighted: bool, presence: bool) -> dict[str, bool]:
    kind = {"MASKED": masked, "TARGET_MASKED": target_masked}
    return kind | {"WEIGHTED": weighted, "PRESENCE": presence}


@_cached
def scores_plan(
    element: Element,
    B: int,
    M: int,
    N: int,
    F: int,
    masked: bool,
    target_masked: bool,
    weighted: bool,
    presence: bool,
) -> Plan:
    constants, warps = tile(element, M, N, F)
    kind = _kind(masked, target_masked, weighted, presence)
    return Plan(launcher(store_scores, kind | constants, warps, 2), (B, 1, 1))


@_cached
def gradients_plan(
    element: Element,
    B: int,
    M: int,
    N: int,
    F: int,
    masked: bool,
    target_masked: bool,
    weighted: bool,
    presence: bool,
    totalled: bool,
) -> Plan:
    constants, warps = tile(element, M, N, F)
    kind = _kind(masked, target_masked, weighted, presence) | {"TOTALLED": totalled}
    return Plan(launcher(store_gradients, kind | constants, warps, 2), (B, 1, 1))
