"""The sum over all matchings, exactly, in one launch: `setwise.kernels.permanent`, fused.

Legend: B sets, M targets, N outputs; T a subset of the targets, and q its size.

One program a set. After j outputs, q targets are matched and ``k = j - q`` outputs are left over; a
subset may become all targets while k is at most the number of outputs that may be. So ``WAYS`` is
kept by k and T, and where N = M it is as large as the number of subsets. Subsets are listed by
their size: those that count after j outputs are neighbours there, and no others are looked at.

Numbers are logarithms to base 2, of scores relative to the largest of their target. Between two
outputs the threads of a program wait for each other, as they read what others have written.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from setwise.kernels.triton.launch import launcher
from setwise.kernels.triton.memory import floats
from setwise.kernels.triton.plans import Plan
from setwise.kernels.triton.rounds import NEVER, valid
from setwise.kernels.triton.tiles import power_of_2
from setwise.kernels.triton.weights import LN_2, LOG2_E

# How many numbers the subsets of the sets that are worked on together may hold: 1 GB.
STORED = 2**28


@triton.jit
def _scores_of(
    SCORES, ODDS, COLUMNS, i, j, row_ok, M, N, MASKED: tl.constexpr, PRESENCE: tl.constexpr
):  # fmt: skip
    """Of all targets with output j: 0 of those that are not valid, NEVER if that is not."""
    j += tl.zeros_like(i)
    column_ok = valid(COLUMNS, j, N, MASKED)
    s = tl.load(SCORES + i * N + j, mask=(i < M) & column_ok, other=0.0)
    if PRESENCE:
        s += tl.load(ODDS + j, mask=column_ok, other=0.0)
    return tl.where(row_ok, tl.where(column_ok, s, NEVER), 0.0)


@triton.jit
def _logsumexp(one, stay):
    """``log2(sum_i 2^one_ti + 2^stay_t)``"""
    top = tl.maximum(tl.max(one, 1), stay)
    total = tl.sum(tl.exp2(one - top[:, None]), 1) + tl.exp2(stay - top)
    return top + tl.log2(total)


@triton.jit
def _subsets(ORDER, t, last, i):
    """Subsets by their places in the list: themselves, what they hold [T, i], and their size."""
    subset = tl.load(ORDER + t, mask=t < last, other=0)
    holds = ((subset[:, None] >> i[None, :]) & 1) != 0
    return subset, holds, tl.sum(holds.to(tl.int32), 1)


@triton.jit
def log_permanent(
    SCORES, ODDS, ROWS, COLUMNS, ORDER, START, WAYS, REST, VALUE, PAIRS, USED, M, N, size, slots,
    MASKED: tl.constexpr, PRESENCE: tl.constexpr, RECORD: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """``VALUE`` and, to RECORD, the probabilities of pairs and of use; ``size = max(M, N)``.

    ``START`` says where the subsets of each size begin in ``ORDER``. WAYS has room for as many
    numbers k as there are ``slots``; without a way back two are enough.
    """
    b = tl.program_id(0).to(tl.int64)
    subsets = 1 << M
    spare = size - M  # outputs that are left over in the end
    SCORES, PAIRS = SCORES + b * M * N, PAIRS + b * M * N
    ODDS, COLUMNS, USED = ODDS + b * N, COLUMNS + b * N, USED + b * N
    WAYS, REST = WAYS + b * slots * subsets, REST + b * 2 * subsets
    i = tl.arange(0, BLOCK_M)
    bit = (1 << i)[None, :]
    row_ok = valid(ROWS + b * M, i, M, MASKED)
    top = tl.full([BLOCK_M], NEVER, tl.float32)
    for j in range(0, N):
        top = tl.maximum(
            top, _scores_of(SCORES, ODDS, COLUMNS, i, j, row_ok, M, N, MASKED, PRESENCE)
        )
    top = tl.where(row_ok, top, 0.0)

    tl.store(WAYS, 0.0)
    tl.debug_barrier()
    for j in range(1, size + 1):
        s = _scores_of(SCORES, ODDS, COLUMNS, i, j - 1, row_ok, M, N, MASKED, PRESENCE)
        s = ((s - top) * LOG2_E)[None, :]
        last = tl.load(START + tl.minimum(j, M) + 1)
        for t0 in range(tl.load(START + tl.maximum(0, j - spare)), last, BLOCK_T):
            t = t0 + tl.arange(0, BLOCK_T)
            subset, holds, q = _subsets(ORDER, t, last, i)
            k = j - q
            stay = tl.load(
                WAYS + (k - 1) % slots * subsets + subset,
                mask=(t < last) & (k > 0), other=NEVER,
            )  # fmt: skip
            one = tl.load(
                WAYS + (k % slots * subsets)[:, None] + (subset[:, None] ^ bit),
                mask=(t < last)[:, None] & holds, other=NEVER,
            )  # fmt: skip
            ways = _logsumexp(one + s, stay)
            tl.store(WAYS + k % slots * subsets + subset, ways, mask=t < last)
        tl.debug_barrier()
    total = tl.load(WAYS + spare % slots * subsets + subsets - 1)

    # The targets that are not valid take, in any order, outputs that are left.
    targets = tl.sum(row_ok.to(tl.int32), 0)
    orders = tl.sum(tl.where(i < M - targets, tl.log2((spare + 1 + i).to(tl.float32)), 0.0), 0)
    value = (total - orders) * LN_2 + tl.sum(top, 0)
    tl.store(VALUE + b, tl.where(targets > 0, value, 0.0))

    if RECORD:
        tl.store(REST + spare % 2 * subsets + subsets - 1, 0.0)
        tl.debug_barrier()
        for back in range(1, size + 1):
            j = size - back
            s = _scores_of(SCORES, ODDS, COLUMNS, i, j, row_ok, M, N, MASKED, PRESENCE)
            s = ((s - top) * LOG2_E)[None, :]
            last = tl.load(START + tl.minimum(j, M) + 1)
            pairs = tl.zeros([BLOCK_M], tl.float32)
            for t0 in range(tl.load(START + tl.maximum(0, j - spare)), last, BLOCK_T):
                t = t0 + tl.arange(0, BLOCK_T)
                subset, holds, q = _subsets(ORDER, t, last, i)
                k = j - q
                stay = tl.load(
                    REST + (k + 1) % 2 * subsets + subset,
                    mask=(t < last) & (k < spare), other=NEVER,
                )  # fmt: skip
                new = (t < last)[:, None] & (i < M)[None, :] & ~holds
                one = tl.load(
                    REST + (k % 2 * subsets)[:, None] + (subset[:, None] | bit),
                    mask=new, other=NEVER,
                )  # fmt: skip
                one += s
                rest = _logsumexp(one, stay)
                tl.store(REST + k % 2 * subsets + subset, rest, mask=t < last)
                known = tl.load(WAYS + k * subsets + subset, mask=t < last, other=NEVER)
                # Where nothing can be matched, differences of what never is may be anything.
                share = tl.minimum(known[:, None] - total + one, 0.0)
                pairs += tl.sum(tl.where(new, tl.exp2(share), 0.0), 0)
            if j < N:
                pairs = tl.where(row_ok, pairs, 0.0)
                if MASKED:
                    pairs = tl.where(tl.load(COLUMNS + j) != 0, pairs, 0.0)
                tl.store(PAIRS + i * N + j, pairs, mask=i < M)
                tl.store(USED + j, tl.sum(pairs, 0))
            tl.debug_barrier()


@lru_cache(maxsize=64)
def listed(M: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The subsets of M targets by their size [2^M], and where each size begins [M + 2]."""
    sizes = np.array([subset.bit_count() for subset in range(2**M)])
    order = torch.from_numpy(np.argsort(sizes, kind="stable").astype(np.int32))
    start = torch.tensor([0, *np.cumsum([math.comb(M, q) for q in range(M + 1)])])
    return order.to(device), start.to(device, torch.int32)


@lru_cache(maxsize=1024)
def _plan(B: int, M: int, masked: bool, presence: bool, record: bool) -> Plan:
    few = M < 12
    block_m = max(2, power_of_2(M))
    # Subsets of one size at most, which are what a step has where all outputs are needed.
    block_t = min(power_of_2(math.comb(M, M // 2)), (2048 if few else 8192) // block_m)
    kind = {"MASKED": masked, "PRESENCE": presence, "RECORD": record}
    constants = {**kind, "BLOCK_M": block_m, "BLOCK_T": max(2, block_t)}
    return Plan(launcher(log_permanent, constants, 4 if few else 8, 1), (B, 1, 1))


def fits(M: int, N: int) -> bool:
    """Whether what is kept of a set can be counted in the 32 bits that the kernel has for that."""
    return (max(M, N) - M + 1) * 2**M < 2**31


def log_sum(
    scores: Tensor,
    odds: Tensor | None,
    masks: tuple[Tensor, Tensor] | None,
    record: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The log of the sum [B]; to ``record``, probabilities of pairs [B, M, N] and of use [B, N].

    Of float32 scores [B, M, N], none of these 0, that `fits`, and odds [B, N]; ``masks`` [B, M] and
    [B, N] tell which targets and outputs are valid. See `matchings.sum_matchings`.
    """
    odds = None if odds is None else odds.contiguous()
    rows, columns = (
        None if m is None else m.contiguous().view(torch.uint8) for m in masks or (None, None)
    )
    value, pairs, used = log_sum_of_arrays(scores.contiguous(), odds, rows, columns, record)
    if pairs is None or used is None:
        B, _, N = scores.shape
        return value, scores.new_empty(B, 0, N), scores.new_zeros(B, N)
    return value, pairs, used


def log_sum_of_arrays(
    scores: Tensor,
    odds: Tensor | None,
    rows: Tensor | None,
    columns: Tensor | None,
    record: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The same of arrays as the kernel reads them, masks of bytes; by launches alone."""
    (B, M, N), device = scores.shape, scores.device
    slots = max(M, N) - M + 1
    slots = slots if record else min(slots, 2)
    at_once = max(1, STORED // ((slots + 2) * 2**M))
    value = floats(device, B)
    pairs = floats(device, B, M, N) if record else value
    used = floats(device, B, N) if record else value
    ways = floats(device, min(B, at_once), slots, 2**M)
    rest = floats(device, min(B, at_once), 2, 2**M) if record else ways
    tables = listed(M, device)
    masked = rows is not None
    given = [value if array is None else array for array in (odds, rows, columns)]
    arrays = (scores, *given, value, pairs, used)
    parts = [arrays] if at_once >= B else zip(*(a.split(at_once) for a in arrays), strict=True)
    for *problem, v, p, u in parts:
        launch, grid = _plan(len(v), M, masked, odds is not None, record)
        launch(grid, (*problem, *tables, ways, rest, v, p, u), (M, N, max(M, N), slots))
    return (value, pairs, used) if record else (value, None, None)
