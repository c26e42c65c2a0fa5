"""Entropic optimal transport: all of Sinkhorn's rounds in one launch.

Legend: B sets, M rows, N columns. See `setwise.kernels.sinkhorn` for the potentials, and `rounds`
for the programs that exchange them. Lines are rows or columns, and elements are what they meet.

A program has some rows of a set, and all of their costs. In a round it answers for its rows, asks
every column on behalf of them, and meets the others once; then each program adds up for itself what
all have asked of the columns, and writes what the others do, to the last bit, where they do. What a
round writes, the next one but one overwrites: by then all have met again, and nobody reads it any
more. What a line offers is the logarithm of its mass and its potential.

Inside, potentials and costs are in units of the temperature, and logarithms to base 2.
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
    NEVER,
    Grid,
    grid,
    meet,
    own_part,
    place_of,
    programs_for,
    settles,
    take_place,
    total_of,
)
from setwise.kernels.triton.tiles import power_of_2, sm_count
from setwise.kernels.triton.weights import LN_2, LOG2_E

# How many times as many columns are asked at once as rows answer, and are then added up by each. A
# thread keeps to its columns, so little is left to be added up over threads.
ASKED_AT_ONCE, ADDED_AT_ONCE = 4, 8
# Rows of a program: few, or many where it need not wait for others then, or where there are so many
# sets that a multiprocessor has some programs even so. They do less for columns in all. A program
# has the fewer rows, the more columns there are than WIDE.
FEW_ROWS, MANY_ROWS, LEAST_ROWS, WIDE, ENOUGH = 32, 64, 4, 1024, 2
# Programs for each multiprocessor, the best that was measured; some of them wait for room.
PER_SM = 5
OF_THREAD = 4  # elements of a tile


@triton.jit
def _log(mass):
    return tl.where(mass > 0.0, tl.log2(tl.where(mass > 0.0, mass, 1.0)), NEVER)


@triton.jit
def _add(total, top, v):
    """One more number to sums of powers of 2, which are relative to the largest of them."""
    ratio = tl.exp2(-tl.abs(v - top))
    return tl.where(v > top, total * ratio + 1.0, total + ratio), tl.maximum(top, v)


@triton.jit
def _answer(
    COSTS, OFFERS, line, line_ok, first, last, N, per_cost,
    BY_ROWS: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """``log2 sum_e 2^(offer_e - cost_le)`` of each line, over elements from the first on.

    Each place of a tile keeps a sum of its own, and they are added in the end.
    """
    top = tl.full([BLOCK_L, BLOCK_E], 2.0 * NEVER, tl.float32)
    total = top * 0.0
    for e0 in range(first, last, BLOCK_E):
        e = e0 + tl.arange(0, BLOCK_E)
        e_ok = e < last
        offer = tl.load(OFFERS + e, mask=e_ok, other=float("-inf"))
        ok, at = line_ok[:, None] & e_ok[None, :], place_of(line, e, N, BY_ROWS)
        v = offer[None, :] - tl.load(COSTS + at, mask=ok, other=0.0) * per_cost
        total, top = _add(total, top, v)
    peak = tl.max(top, 1)
    return peak + tl.log2(tl.sum(total * tl.exp2(top - peak[:, None]), 1))


@triton.jit
def _earned(mass, potential, r, UNBALANCED: tl.constexpr):
    """What masses earn by their potentials, in units of the temperature, and so is ``r``."""
    each = potential * LN_2
    if UNBALANCED:
        x = -each / r
        # exp(x) - 1, of which little would be left near 0.
        near = x * (1.0 + x * (0.5 + x * (1.0 / 6 + x * (1.0 / 24 + x * (1.0 / 120)))))
        far = tl.exp2(tl.minimum(x * LOG2_E, 126.0)) - 1.0
        each = -r * tl.where(tl.abs(x) < 0.1, near, far)
    return tl.where(mass > 0.0, mass * each, 0.0)


@triton.jit
def _start(B_, G, OFFERED, MOVED, N, BLOCK_C: tl.constexpr):
    """Columns without a potential yet."""
    for j0 in range(0, N, BLOCK_C):
        j = j0 + tl.arange(0, BLOCK_C)
        nothing = tl.zeros([BLOCK_C], tl.float32)
        tl.store(G + j, nothing, mask=j < N)
        tl.store(MOVED + j, nothing, mask=j < N)
        tl.store(OFFERED + j, _log(tl.load(B_ + j, mask=j < N, other=0.0)), mask=j < N)


@triton.jit
def _rows(
    COSTS, A, OFFERS, OFFERED, first, last, N, per_cost, share, r,
    UNBALANCED: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """The OFFERS of rows, whose potentials answer what columns have OFFERED; what they earn."""
    earned = tl.zeros([BLOCK_L], tl.float32)
    for i0 in range(first, last, BLOCK_L):
        i = i0 + tl.arange(0, BLOCK_L)
        ok = i < last
        f = -share * _answer(COSTS, OFFERED, i, ok, 0, N, N, per_cost, True, BLOCK_L, BLOCK_E)
        a = tl.load(A + i, mask=ok, other=0.0)
        tl.store(OFFERS + i, f + _log(a), mask=ok)
        earned += _earned(a, f, r, UNBALANCED)
    return tl.sum(earned, 0)


@triton.jit
def _ask(
    COSTS, OFFERS, ASKED, first, last, N, per_cost, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr
):  # fmt: skip
    """What some rows ask of every column, by their OFFERS."""
    for j0 in range(0, N, BLOCK_L):
        j = j0 + tl.arange(0, BLOCK_L)
        asked = _answer(COSTS, OFFERS, j, j < N, first, last, N, per_cost, False, BLOCK_L, BLOCK_E)
        tl.store(ASKED + j, asked, mask=j < N)


@triton.jit
def _columns(
    ASKED, B_, G, MOVED, AFTER, OFFERED, MOVED_NOW, N, share, r,
    UNBALANCED: tl.constexpr, PROGRAMS: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """The potentials AFTER those G of the columns, which answer what all programs have asked.

    What the old ones earned, less what was moved by them; and the change of that, by columns, since
    the round before.
    """
    earned, change = tl.zeros([BLOCK_C], tl.float32), tl.zeros([BLOCK_C], tl.float32)
    for j0 in range(0, N, BLOCK_C):
        j = j0 + tl.arange(0, BLOCK_C)
        ok = j < N
        top, total = tl.full([BLOCK_C], 2.0 * NEVER, tl.float32), tl.zeros([BLOCK_C], tl.float32)
        for p in tl.static_range(PROGRAMS):
            v = tl.load(ASKED + p * N + j, mask=ok, other=0.0)
            total, top = _add(total, top, v)
        asked = top + tl.log2(total)
        g, b = tl.load(G + j, mask=ok, other=0.0), tl.load(B_ + j, mask=ok, other=0.0)
        moved = tl.where(ok & (b > 0.0), b * tl.exp2(tl.minimum(g + asked, 126.0)), 0.0)
        change += tl.abs(moved - tl.load(MOVED + j, mask=ok, other=0.0))
        earned += _earned(b, g, r, UNBALANCED) - moved
        tl.store(MOVED_NOW + j, moved, mask=ok)
        tl.store(AFTER + j, -share * asked, mask=ok)
        tl.store(OFFERED + j, _log(b) - share * asked, mask=ok)
    return tl.sum(earned, 0), tl.sum(change, 0)


@triton.jit
def _plan(
    COSTS, OFFERS, OFFERED, PLAN, first, last, N, per_cost,
    BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    for i0 in range(first, last, BLOCK_L):
        i = i0 + tl.arange(0, BLOCK_L)
        offer = tl.load(OFFERS + i, mask=i < last, other=0.0)
        for j0 in range(0, N, BLOCK_E):
            j = j0 + tl.arange(0, BLOCK_E)
            offered = tl.load(OFFERED + j, mask=j < N, other=0.0)
            ok, at = (i < last)[:, None] & (j < N)[None, :], place_of(i, j, N, True)
            costs = tl.load(COSTS + at, mask=ok, other=0.0) * per_cost
            log = tl.minimum(offer[:, None] + offered[None, :] - costs, 126.0)
            tl.store(PLAN + at, tl.exp2(log), mask=ok)


@triton.jit
def sinkhorn_rounds(
    COSTS, A, B_, F, G, STATE, PLAN, VALUE, SETTLED, ASKED, EARNED, ARRIVED,
    B, M, N, groups, most, between, quiet, t, share, r,
    UNBALANCED: tl.constexpr, PROGRAMS: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
    ASK_L: tl.constexpr, ASK_E: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Rounds until a set has settled, ``most`` of them; then the plan, and potentials G.

    STATE, ASKED and EARNED have places for this round and for the next. The STATE of columns is
    their potentials, what they offer, and what was moved by the potentials before; F has what rows
    offer.
    """
    group, place = take_place(ARRIVED, groups, PROGRAMS)
    met = 0
    per_cost = LOG2_E / t
    for b in range(group, B, groups):
        start = b * M * N
        C, a, b_, f = COSTS + start, A + b * M, B_ + b * N, F + b * M
        i, i_end = own_part(M, place, PROGRAMS)
        state = b * 6
        _start(b_, STATE + state * N, STATE + (state + 1) * N, STATE + (state + 2) * N, N, BLOCK_C)
        tl.debug_barrier()
        rounds, value, settled = 0, 0.0, False
        while (rounds < most) & (settled == 0):
            now = b * 2 + rounds % 2
            state, after = now * 3, (b * 4 + 1 - now) * 3
            asked, earned = ASKED + now * PROGRAMS * N, EARNED + now * PROGRAMS
            by_rows = _rows(
                C, a, f, STATE + (state + 1) * N, i, i_end, N, per_cost, share, r,
                UNBALANCED, BLOCK_L, BLOCK_E,
            )  # fmt: skip
            tl.store(earned + place, by_rows)
            tl.debug_barrier()
            _ask(C, f, asked + place * N, i, i_end, N, per_cost, ASK_L, ASK_E)
            met = meet(ARRIVED + group, met, PROGRAMS)
            by_columns, change = _columns(
                asked, b_, STATE + state * N, STATE + (state + 2) * N,
                STATE + after * N, STATE + (after + 1) * N, STATE + (after + 2) * N, N, share, r,
                UNBALANCED, PROGRAMS, BLOCK_C,
            )  # fmt: skip
            if rounds % between == 0:
                before, value = value, (total_of(earned, PROGRAMS) + by_columns + 1.0) * t
                settled = settles(before, value, change, rounds, quiet)
            tl.debug_barrier()
            rounds += 1
        state = (b * 2 + rounds % 2) * 3
        at, offered = STATE + state * N, STATE + (state + 1) * N
        _rows(C, a, f, offered, i, i_end, N, per_cost, share, r, UNBALANCED, BLOCK_L, BLOCK_E)
        tl.debug_barrier()
        _plan(C, f, offered, PLAN + start, i, i_end, N, per_cost, BLOCK_L, BLOCK_E)
        if place == 0:
            for j0 in range(0, N, BLOCK_C):
                j = j0 + tl.arange(0, BLOCK_C)
                tl.store(G + b * N + j, tl.load(at + j, mask=j < N) / per_cost, mask=j < N)
            tl.store(VALUE + b, value)
            tl.store(SETTLED + b, settled)


def constants(grid: Grid, N: int, unbalanced: bool) -> dict[str, int]:
    """What the kernel is compiled for."""
    asked, added = (
        min(times * grid.lines, power_of_2(N)) for times in (ASKED_AT_ONCE, ADDED_AT_ONCE)
    )
    tile = {"PROGRAMS": grid.programs, "BLOCK_L": grid.lines, "BLOCK_E": grid.elements}
    tile |= {"ASK_L": asked, "ASK_E": max(1, grid.lines * grid.elements // asked)}
    return {"UNBALANCED": unbalanced, **tile, "BLOCK_C": added}


def _programs(B: int, M: int, N: int, device: torch.device) -> int:
    """How many share the rows of a set."""
    many = programs_for(M, MANY_ROWS)
    if device.type == "cuda" and B * many >= ENOUGH * sm_count(device):
        return many
    if N > WIDE:
        return programs_for(M, max(LEAST_ROWS, FEW_ROWS * WIDE // N))
    return 1 if many == 1 else programs_for(M, FEW_ROWS)


def transport(
    costs: Tensor, a: Tensor, b: Tensor, t: float, r: float | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `setwise.kernels.sinkhorn.transport` gives, of float32 costs that are not empty."""
    B, M, N = costs.shape
    plan = grid(B, M, N, _programs(B, M, N, costs.device), costs.device, PER_SM, OF_THREAD)
    f, g, pairs, value = (costs.new_empty(B, *size) for size in ((M,), (N,), (M, N), ()))
    settled = costs.new_empty(B, dtype=torch.bool)
    share = 1.0 if r is None else r / (r + t)
    launch = launcher(sinkhorn_rounds, constants(plan, N, r is not None), plan.warps, 1)
    launch(
        (plan.programs * plan.groups, 1, 1),
        (
            costs.contiguous(),
            a.contiguous(),
            b.contiguous(),
            f,
            g,
            costs.new_empty(B, 2, 3, N),
            pairs,
            value,
            settled.view(torch.uint8),
            costs.new_empty(B, 2, plan.programs, N),
            costs.new_empty(B, 2, plan.programs),
            plan.arrived(costs),
        ),
        (
            *(B, M, N, plan.groups, MOST_ROUNDS, ROUNDS_BETWEEN_LOOKS),
            *(tolerance(costs.dtype), t, share, 1.0 if r is None else r / t),
        ),
    )
    return value, pairs, settled, g
