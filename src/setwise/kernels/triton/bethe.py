"""Bethe's approximation of the sum over all matchings: all rounds of messages in one launch.

Legend: B sets, M targets, N outputs. See `messages` for a round, and `rounds` for the programs that
exchange them.

A program has some targets of a set. It weighs what it is answered for them, asks all outputs on
behalf of them, and meets the others once in a round; then each program adds up for itself what
targets of all programs weigh for the outputs. What a round writes, the next one but one overwrites:
by then all have met again, and nobody reads it any more.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from setwise.kernels.fixed_point import ROUNDS_BETWEEN_LOOKS, tolerance
from setwise.kernels.triton.launch import launcher
from setwise.kernels.triton.messages import add_logs, ask, beliefs, log_expm1, weigh_targets
from setwise.kernels.triton.rounds import (
    MOST_ROUNDS,
    NEVER,
    Grid,
    grid,
    largest_of,
    meet,
    own_part,
    place_of,
    settles,
    take_place,
    total_of,
    valid,
)
from setwise.kernels.triton.weights import LN_2, LOG2_E

# Programs on each multiprocessor: with more, the messages of all would not fit in the cache.
PER_SM = 2
# See `setwise.kernels.bethe`.
CERTAIN = tl.constexpr(100.0)


@triton.jit
def _count(VALID, size, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    """How many elements there are."""
    found = tl.zeros([BLOCK], tl.int32)
    for e0 in range(0, size, BLOCK):
        found += valid(VALID, e0 + tl.arange(0, BLOCK), size, MASKED).to(tl.int32)
    return tl.sum(found, 0)


@triton.jit
def _spread_of_odds(ODDS, COLUMNS, N, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    high = tl.full([BLOCK], NEVER, tl.float32)
    low = -high
    for j0 in range(0, N, BLOCK):
        j = j0 + tl.arange(0, BLOCK)
        ok = valid(COLUMNS, j, N, MASKED)
        odds = tl.load(ODDS + j, mask=ok, other=0.0)
        high, low = (
            tl.maximum(high, tl.where(ok, odds, NEVER)),
            tl.minimum(low, tl.where(ok, odds, -NEVER)),
        )
    return tl.maximum(tl.max(high, 0) - tl.min(low, 0), 0.0)


@triton.jit
def _measure(
    SCORES, ROWS, COLUMNS, first, last, N,
    MASKED: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """The largest score of some targets, and the least, with its sign changed."""
    high = tl.full([BLOCK_L, BLOCK_E], NEVER, tl.float32)
    low = high
    for i0 in range(first, last, BLOCK_L):
        i = i0 + tl.arange(0, BLOCK_L)
        i_ok = valid(ROWS, i, last, MASKED)
        for j0 in range(0, N, BLOCK_E):
            j = j0 + tl.arange(0, BLOCK_E)
            ok = i_ok[:, None] & valid(COLUMNS, j, N, MASKED)[None, :]
            s = tl.load(SCORES + place_of(i, j, N, True), mask=ok, other=0.0)
            high = tl.maximum(high, tl.where(ok, s, NEVER))
            low = tl.maximum(low, tl.where(ok, -s, NEVER))
    return tl.max(tl.max(high, 1), 0), tl.max(tl.max(low, 1), 0)


@triton.jit
def _exclusivity(E, b, SHARED: tl.constexpr):
    """Of a set: the number, its logarithm, and that of what it lacks."""
    e = 1.0
    lone, some = 0.0, NEVER
    if SHARED:
        e = tl.load(E + b)
        lone = tl.where(e > 0.0, tl.log2(tl.where(e > 0.0, e, 1.0)), NEVER)
        some = tl.where(e < 1.0, tl.log2(tl.where(e < 1.0, 1.0 - e, 1.0)), NEVER)
    return e, lone, some


@triton.jit
def _add_up(
    SHARES, OUTPUTS, ODDS, USED, COLUMNS, N, unused, lone, some,
    MASKED: tl.constexpr, PRESENCE: tl.constexpr, SHARED: tl.constexpr,
    PROGRAMS: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """What outputs weigh, by the shares of all programs, and that none may use them; the value."""
    value = tl.zeros([BLOCK_C], tl.float32)
    for j0 in range(0, N, BLOCK_C):
        j = j0 + tl.arange(0, BLOCK_C)
        ok = valid(COLUMNS, j, N, MASKED)
        odds, several = tl.zeros([BLOCK_C], tl.float32), tl.zeros([BLOCK_C], tl.float32)
        if PRESENCE:
            odds = tl.load(ODDS + j, mask=ok, other=0.0) * LOG2_E
        single = odds + lone
        top, second, total = unused - single, several + NEVER, several
        for p in tl.static_range(PROGRAMS):
            share = SHARES + p * 4 * N + j
            largest = tl.load(share, mask=ok, other=NEVER)
            next_to_it = tl.load(share + N, mask=ok, other=NEVER)
            rest = tl.load(share + 2 * N, mask=ok, other=0.0)
            lesser = tl.minimum(top, largest)
            high = tl.maximum(lesser, tl.maximum(second, next_to_it))
            total = total * tl.exp2(second - high) + rest * tl.exp2(next_to_it - high)
            total += tl.exp2(lesser - high)
            top, second = tl.maximum(top, largest), high
            if SHARED:
                several += tl.load(share + 3 * N, mask=ok, other=0.0)
        others = second + tl.log2(total)
        everything = add_logs(top, others)
        allowed = everything + single
        if SHARED:
            allowed = add_logs(allowed, odds + some + log_expm1(several))
            use = 1.0 - tl.exp2(tl.minimum(unused - allowed, 0.0))
            tl.store(USED + j, tl.where(ok, use, 0.0), mask=j < N)
            tl.store(OUTPUTS + 3 * N + j, several, mask=ok)
        tl.store(OUTPUTS + j, everything, mask=ok)
        tl.store(OUTPUTS + N + j, others, mask=ok)
        tl.store(OUTPUTS + 2 * N + j, second, mask=ok)
        value += tl.where(ok & (allowed > 0.5 * NEVER), allowed, 0.0)
    return tl.sum(value, 0)


@triton.jit
def bethe_rounds(
    SCORES, ODDS, E, ROWS, COLUMNS, ANSWERS, ASKED, USED, VALUE, SETTLED, TARGETS, OUTPUTS, SHARES,
    PARTS, ARRIVED,
    B, M, N, groups, most, between, quiet,
    MASKED: tl.constexpr, PRESENCE: tl.constexpr, SHARED: tl.constexpr,
    PROGRAMS: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
    ASK_L: tl.constexpr, ASK_E: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Rounds until a set has settled, ``most`` of them; in the end ASKED has the probabilities.

    OUTPUTS, SHARES and PARTS have places for this round and for the next.
    """
    group, place = take_place(ARRIVED, groups, PROGRAMS)
    met = 0
    for b in range(group, B, groups):
        start = b * M * N
        S, A, Q = SCORES + start, ANSWERS + start, ASKED + start
        D, U, R, C = ODDS + b * N, USED + b * N, ROWS + b * M, COLUMNS + b * N
        T, W, P = TARGETS + b * 3 * M, OUTPUTS + b * 8 * N, PARTS + b * 4 * PROGRAMS
        shares = SHARES + b * 8 * PROGRAMS * N
        i, i_end = own_part(M, place, PROGRAMS)
        high, low = _measure(S, R, C, i, i_end, N, MASKED, BLOCK_L, BLOCK_E)
        tl.store(P + 2 * PROGRAMS + place, high)
        tl.store(P + 3 * PROGRAMS + place, low)
        met = meet(ARRIVED + group, met, PROGRAMS)
        high, low = largest_of(P + 2 * PROGRAMS, PROGRAMS), largest_of(P + 3 * PROGRAMS, PROGRAMS)
        spread = tl.maximum(high + low, 0.0)
        if PRESENCE:
            spread += _spread_of_odds(D, C, N, MASKED, BLOCK_C)
        limit = (spread * M * 2.0 + CERTAIN) * LOG2_E
        rows, columns = _count(R, M, MASKED, BLOCK_C), _count(C, N, MASKED, BLOCK_C)
        e, lone, some = _exclusivity(E, b, SHARED)
        # With as many targets as outputs none is left over: no message should wait for that.
        unused = tl.where((rows == columns) & (e == 1.0), NEVER, 0.0)
        hopeless = (rows > columns) & (e == 1.0)
        rounds, value, settled = 0, 0.0, False
        while (rounds < most) & (settled == 0):
            now, look = rounds % 2, rounds % between == 0
            at, here = W + now * 4 * N, shares + now * 4 * PROGRAMS * N
            parts = P + now * 2 * PROGRAMS
            by_targets = weigh_targets(
                S, Q, T, at, D, R, C, i, i_end, M, N, rounds > 0, lone, some, limit,
                MASKED, PRESENCE, SHARED, BLOCK_L, BLOCK_E,
            )  # fmt: skip
            tl.debug_barrier()
            by_pairs, apart = ask(
                S, Q, T, at, here + place * 4 * N, D, R, C, i, i_end, M, N, rounds > 0, look,
                lone, some, limit, MASKED, PRESENCE, SHARED, ASK_L, ASK_E,
            )  # fmt: skip
            tl.store(parts + place, by_targets + by_pairs)
            tl.store(parts + PROGRAMS + place, apart)
            met = meet(ARRIVED + group, met, PROGRAMS)
            by_outputs = _add_up(
                here, W + (1 - now) * 4 * N, D, U, C, N, unused, lone, some,
                MASKED, PRESENCE, SHARED, PROGRAMS, BLOCK_C,
            )  # fmt: skip
            if look:
                before, value = value, (total_of(parts, PROGRAMS) + by_outputs) * LN_2
                # The largest, not the sum: that would be judged by the number of programs as well.
                change = tl.where(hopeless, 0.0, largest_of(parts + PROGRAMS, PROGRAMS))
                settled = settles(before, value, change, rounds, quiet)
            tl.debug_barrier()
            rounds += 1
        at = W + rounds % 2 * 4 * N
        weigh_targets(
            S, Q, T, at, D, R, C, i, i_end, M, N, True, lone, some, limit,
            MASKED, PRESENCE, SHARED, BLOCK_L, BLOCK_E,
        )  # fmt: skip
        tl.debug_barrier()
        beliefs(
            S, Q, A, T, at, D, R, C, i, i_end, N, lone, some, limit,
            MASKED, PRESENCE, SHARED, BLOCK_L, BLOCK_E,
        )  # fmt: skip
        if place == 0:
            tl.store(VALUE + b, value)
            tl.store(SETTLED + b, settled)


def constants(grid: Grid, N: int, masked: bool, presence: bool, shared: bool) -> dict[str, int]:
    """What the kernel is compiled for."""
    kind = {"MASKED": masked, "PRESENCE": presence, "SHARED": shared}
    return kind | grid.tiles(N)


def bethe(
    scores: Tensor,
    odds: Tensor | None,
    exclusivity: Tensor | None,
    masks: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What `setwise.kernels.bethe.bethe` gives, of float32 scores that are not empty.

    Without odds they are 0; without ``masks``, of rows and columns, all elements are valid.
    """
    value, pairs, used, settled, answers = bethe_of_arrays(scores, odds, exclusivity, masks)
    return value, pairs, pairs.sum(1) if used is None else used, settled, answers


def bethe_of_arrays(
    scores: Tensor,
    odds: Tensor | None,
    exclusivity: Tensor | None,
    masks: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]:
    """The same in one launch: of outputs' use nothing where it is the sum of their pairs."""
    B, M, N = scores.shape
    plan = grid(B, M, N, scores.device, PER_SM)
    answers, pairs = scores.new_empty(B, M, N), scores.new_empty(B, M, N)
    value, settled = scores.new_empty(B), scores.new_empty(B, dtype=torch.bool)
    used = None if exclusivity is None else scores.new_empty(B, N)
    given = [value if t is None else t.contiguous() for t in (odds, exclusivity)]
    given += [value] * 2 if masks is None else [m.contiguous().view(torch.uint8) for m in masks]
    kind = constants(plan, N, masks is not None, odds is not None, exclusivity is not None)
    launch = launcher(bethe_rounds, kind, plan.warps, 1)
    launch(
        (plan.programs * plan.groups, 1, 1),
        (
            scores.contiguous(),
            *given,
            answers,
            pairs,
            value if used is None else used,
            value,
            settled.view(torch.uint8),
            scores.new_empty(B, 3, M),
            scores.new_empty(B, 2, 4, N),
            scores.new_empty(B, 2, plan.programs, 4, N),
            scores.new_empty(B, 2, 2, plan.programs),
            plan.arrived(scores),
        ),
        (B, M, N, plan.groups, MOST_ROUNDS, ROUNDS_BETWEEN_LOOKS, tolerance(scores.dtype)),
    )
    return value, pairs, used, settled, answers
