"""Bethe's approximation of the sum over all matchings: all rounds of messages in one launch.

Legend: B sets, M targets, N outputs. See `setwise.kernels.bethe` for the messages, and `rounds` for
the programs that exchange them. Lines are targets or outputs, and elements are what they meet.

Each half of a round goes over its lines twice: to weigh the elements of a line, and to tell each of
them what the others weigh. Numbers are logarithms to base 2.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from setwise.kernels.fixed_point import ROUNDS_BETWEEN_LOOKS, tolerance
from setwise.kernels.triton.launch import launcher
from setwise.kernels.triton.rounds import (
    MOST_ROUNDS,
    WARPS,
    grid,
    meet,
    own_part,
    place_of,
    settles,
    take_place,
)
from setwise.kernels.triton.subset_sums import NEVER
from setwise.kernels.triton.weights import LN_2, LOG2_E

# See `setwise.kernels.bethe`.
CERTAIN = tl.constexpr(100.0)


@triton.jit
def _asked(SCORES, MESSAGES, at, ok, BY_ROWS: tl.constexpr):
    """What the elements of a line weigh: a score and an answer, or what targets ask."""
    v = tl.load(MESSAGES + at, mask=ok, other=0.0)
    if BY_ROWS:
        v += tl.load(SCORES + at, mask=ok, other=0.0) * LOG2_E
    return tl.where(ok, v, float("-inf"))


@triton.jit
def _add(top, second, total, peak, next_to_it, rest):
    """Two weighings in one: the largest, the second, and the sum of all but the largest by that."""
    lesser = tl.minimum(top, peak)
    largest = tl.maximum(tl.maximum(second, next_to_it), lesser)
    total = (
        total * tl.exp2(second - largest)
        + rest * tl.exp2(next_to_it - largest)
        + tl.exp2(lesser - largest)
    )
    return tl.maximum(top, peak), largest, total


@triton.jit
def _weigh(
    SCORES, MESSAGES, E_VALID, line, line_ok, alone, elements, N,
    BY_ROWS: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Of each line, with ``alone`` as one more element: all, all but the largest, the second."""
    top, second, total = alone, tl.full([BLOCK_L], NEVER, tl.float32), tl.zeros_like(alone)
    for e0 in range(0, elements, BLOCK_E):
        e = e0 + tl.arange(0, BLOCK_E)
        e_ok = tl.load(E_VALID + e, mask=e < elements, other=0) != 0
        ok = line_ok[:, None] & e_ok[None, :]
        v = _asked(SCORES, MESSAGES, place_of(line, e, N, BY_ROWS), ok, BY_ROWS)
        peak, where = tl.max(v, 1, return_indices=True)
        v = tl.where(e[None, :] - e0 == where[:, None], float("-inf"), v)
        next_to_it = tl.maximum(tl.max(v, 1), NEVER)
        rest = tl.sum(tl.exp2(v - next_to_it[:, None]), 1)
        top, second, total = _add(top, second, total, peak, next_to_it, rest)
    others = second + tl.log2(tl.maximum(total, 1.0))  # at least the second, if there is one
    return top + tl.log2(1.0 + tl.exp2(others - top)), others, second


@triton.jit
def _half_round(
    SCORES, FROM, TO, ODDS, L_VALID, E_VALID, first, last, elements, N, unused, limit, look,
    BY_ROWS: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Messages of lines from ``first`` on; their share of the value, and by how much they differ.

    FROM has what comes in, TO is replaced by what goes out. Probabilities by the old answers and by
    the new ones are compared if to ``look``, and by outputs.
    """
    value, apart = tl.zeros([BLOCK_L], tl.float32), tl.zeros([BLOCK_L], tl.float32)
    for line0 in range(first, last, BLOCK_L):
        line = line0 + tl.arange(0, BLOCK_L)
        line_ok = tl.load(L_VALID + line, mask=line < last, other=0) != 0
        if BY_ROWS:
            gain = tl.zeros([BLOCK_L], tl.float32)
            alone = tl.full([BLOCK_L], NEVER, tl.float32)
        else:
            gain = tl.load(ODDS + line, mask=line_ok, other=0.0) * LOG2_E
            alone = unused - gain
        everything, others, second = _weigh(
            SCORES, FROM, E_VALID, line, line_ok, alone, elements, N, BY_ROWS, BLOCK_L, BLOCK_E
        )
        there = line_ok & (everything > 0.5 * NEVER)
        value += tl.where(there, everything + gain, 0.0)
        for e0 in range(0, elements, BLOCK_E):
            e = e0 + tl.arange(0, BLOCK_E)
            e_ok = tl.load(E_VALID + e, mask=e < elements, other=0) != 0
            ok, at = line_ok[:, None] & e_ok[None, :], place_of(line, e, N, BY_ROWS)
            v = _asked(SCORES, FROM, at, ok, BY_ROWS)
            share = tl.exp2(v - everything[:, None])
            # The share of any but the largest is at most a half: nothing is lost in 1 - share.
            largest = v > second[:, None]
            lost = tl.log2(1.0 - tl.where(largest, 0.0, share))
            lost = tl.where(largest, (others - everything)[:, None], lost)
            if BY_ROWS:
                own = tl.load(SCORES + at, mask=ok, other=0.0) * LOG2_E
            else:
                own = tl.zeros_like(v)
                if look:
                    before = v + tl.load(TO + at, mask=ok, other=0.0)
                    change = tl.abs(1.0 / (1.0 + tl.exp2(tl.minimum(-before, 126.0))) - share)
                    apart = tl.maximum(apart, tl.max(tl.where(ok, change, 0.0), 1))
            own -= everything[:, None]
            lost = tl.maximum(lost, own - limit)
            if BY_ROWS:
                value += tl.sum(tl.where(ok & there[:, None], lost, 0.0), 1)
            tl.store(TO + at, tl.maximum(own - lost, -limit), mask=ok)
    return tl.sum(value, 0), tl.max(apart, 0)


@triton.jit
def _beliefs(
    SCORES, ANSWERS, PAIRS, ROWS, COLUMNS, first, last, N,
    BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """The probabilities of pairs; answers become natural logarithms."""
    for i0 in range(first, last, BLOCK_L):
        i = i0 + tl.arange(0, BLOCK_L)
        i_ok = tl.load(ROWS + i, mask=i < last, other=0) != 0
        alone = tl.full([BLOCK_L], NEVER, tl.float32)
        everything, _, _ = _weigh(
            SCORES, ANSWERS, COLUMNS, i, i_ok, alone, N, N, True, BLOCK_L, BLOCK_E
        )
        for j0 in range(0, N, BLOCK_E):
            j = j0 + tl.arange(0, BLOCK_E)
            j_ok = tl.load(COLUMNS + j, mask=j < N, other=0) != 0
            ok, at = i_ok[:, None] & j_ok[None, :], place_of(i, j, N, True)
            v = _asked(SCORES, ANSWERS, at, ok, True)
            there = (i < last)[:, None] & (j < N)[None, :]
            tl.store(PAIRS + at, tl.exp2(v - everything[:, None]), mask=there)
            tl.store(ANSWERS + at, tl.load(ANSWERS + at, mask=there) * LN_2, mask=there)


@triton.jit
def _measure(
    SCORES, ODDS, ROWS, COLUMNS, M, N, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr
):  # fmt: skip
    """The spread of scores and odds, to base 2, and the numbers of valid targets and outputs."""
    high = tl.full([BLOCK_L, BLOCK_E], NEVER, tl.float32)
    low, high_odds = -high, tl.full([BLOCK_E], NEVER, tl.float32)
    low_odds = -high_odds
    rows, columns = tl.zeros([BLOCK_L], tl.int32), tl.zeros([BLOCK_E], tl.int32)
    for i0 in range(0, M, BLOCK_L):
        i = i0 + tl.arange(0, BLOCK_L)
        rows += (tl.load(ROWS + i, mask=i < M, other=0) != 0).to(tl.int32)
    for j0 in range(0, N, BLOCK_E):
        j = j0 + tl.arange(0, BLOCK_E)
        j_ok = tl.load(COLUMNS + j, mask=j < N, other=0) != 0
        columns += j_ok.to(tl.int32)
        odds = tl.load(ODDS + j, mask=j_ok, other=0.0)
        high_odds = tl.maximum(high_odds, tl.where(j_ok, odds, NEVER))
        low_odds = tl.minimum(low_odds, tl.where(j_ok, odds, -NEVER))
        for i0 in range(0, M, BLOCK_L):
            i = i0 + tl.arange(0, BLOCK_L)
            i_ok = tl.load(ROWS + i, mask=i < M, other=0) != 0
            ok = i_ok[:, None] & j_ok[None, :]
            s = tl.load(SCORES + place_of(i, j, N, True), mask=ok, other=0.0)
            high = tl.maximum(high, tl.where(ok, s, NEVER))
            low = tl.minimum(low, tl.where(ok, s, -NEVER))
    spread = tl.maximum(tl.max(tl.max(high, 1), 0) - tl.min(tl.min(low, 1), 0), 0.0)
    spread += tl.maximum(tl.max(high_odds, 0) - tl.min(low_odds, 0), 0.0)
    return spread * LOG2_E, tl.sum(rows, 0), tl.sum(columns, 0)


@triton.jit
def bethe_rounds(
    SCORES, ODDS, ROWS, COLUMNS, ANSWERS, ASKED, VALUE, SETTLED, PARTS, ARRIVED,
    B, M, N, groups, most, between, quiet,
    PROGRAMS: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Rounds until a set has settled, ``most`` of them; in the end ASKED has the probabilities."""
    group, place = take_place(ARRIVED, groups, PROGRAMS)
    met = 0
    for b in range(group, B, groups):
        start = b * M * N
        S, A, Q = SCORES + start, ANSWERS + start, ASKED + start
        D, R, C = ODDS + b * N, ROWS + b * M, COLUMNS + b * N
        P = PARTS + b * 2 * PROGRAMS
        spread, rows, columns = _measure(S, D, R, C, M, N, BLOCK_L, BLOCK_E)
        limit = spread * M * 2.0 + LOG2_E * CERTAIN
        # With as many targets as outputs none is left over: no message should wait for that.
        unused = tl.where(rows == columns, NEVER, 0.0)
        i, i_end = own_part(M, place, PROGRAMS)
        j, j_end = own_part(N, place, PROGRAMS)
        rounds, value, settled = 0, 0.0, False
        while (rounds < most) & (settled == 0):
            look = rounds % between == 0
            by_rows, _ = _half_round(
                S, A, Q, D, R, C, i, i_end, N, N, unused, limit, look, True, BLOCK_L, BLOCK_E
            )
            met = meet(ARRIVED + group, met, PROGRAMS)
            by_columns, apart = _half_round(
                S, Q, A, D, C, R, j, j_end, M, N, unused, limit, look, False, BLOCK_L, BLOCK_E
            )
            if look:
                tl.store(P + place, (by_rows + by_columns) * LN_2)
                tl.store(P + PROGRAMS + place, tl.where(rows > columns, 0.0, apart))
            met = meet(ARRIVED + group, met, PROGRAMS)
            if look:
                settled, value = settles(P, value, rounds, quiet, PROGRAMS)
            rounds += 1
        _beliefs(S, A, Q, R, C, i, i_end, N, BLOCK_L, BLOCK_E)
        if place == 0:
            tl.store(VALUE + b, value)
            tl.store(SETTLED + b, settled)


def bethe(
    scores: Tensor, odds: Tensor, rows: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What `setwise.kernels.bethe.bethe` gives, of float32 scores that are not empty."""
    B, M, N = scores.shape
    plan = grid(B, M, N, scores.device)
    answers, pairs = scores.new_zeros(B, M, N), scores.new_empty(B, M, N)
    value, settled = scores.new_empty(B), rows.new_empty(B)
    constants = {"PROGRAMS": plan.programs, "BLOCK_L": plan.lines, "BLOCK_E": plan.elements}
    launch = launcher(bethe_rounds, constants, WARPS, 1)
    launch(
        (plan.programs * plan.groups, 1, 1),
        (
            scores.contiguous(),
            odds.contiguous(),
            rows.contiguous().view(torch.uint8),
            columns.contiguous().view(torch.uint8),
            answers,
            pairs,
            value,
            settled.view(torch.uint8),
            scores.new_empty(B, 2, plan.programs),
            plan.arrived(scores),
        ),
        (B, M, N, plan.groups, MOST_ROUNDS, ROUNDS_BETWEEN_LOOKS, tolerance(scores.dtype)),
    )
    return value, pairs, pairs.sum(1), settled, answers
