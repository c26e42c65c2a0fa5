"""Bethe's approximation of the sum over all matchings: all rounds of messages in one launch.

Legend: B sets, M targets, N outputs. See `messages` for a round, and `rounds` for the programs that
exchange them. Sets whose outputs are exclusive, and not very many, are left to `plain_bethe`, and
come back if they are too much for it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from setwise.kernels.fixed_point import ROUNDS_BETWEEN_LOOKS, tolerance
from setwise.kernels.triton import plain_bethe
from setwise.kernels.triton.launch import launcher
from setwise.kernels.triton.messages import answer, ask, beliefs
from setwise.kernels.triton.rounds import (
    LINES,
    MOST_ROUNDS,
    NEVER,
    Grid,
    count,
    grid,
    largest_of,
    meet,
    own_part,
    place_of,
    programs_for,
    settles,
    take_place,
    total_of,
    valid,
)
from setwise.kernels.triton.weights import LN_2, LOG2_E

# Programs on each multiprocessor: with more, the messages of all would not fit in the cache.
PER_SM = 2
# Elements that a thread has of a tile: few, so that there is room for more threads while others
# wait. With exclusivity kernels want more registers for each.
FEW, MORE = 2, 4
# See `setwise.kernels.bethe`.
CERTAIN = tl.constexpr(100.0)


@triton.jit
def _strange(x):
    """NaN for NaN and for infinity, which maxima and clamps would hide; 0 for all others."""
    return tl.where(x == float("-inf"), 0.0, x - x)


@triton.jit
def _measure(
    SCORES, ROWS, COLUMNS, first, last, N,
    MASKED: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """The largest score of some targets, the least with its sign changed; and what is strange."""
    high = tl.full([BLOCK_L, BLOCK_E], NEVER, tl.float32)
    low, strange = high, tl.zeros([BLOCK_L, BLOCK_E], tl.float32)
    for i0 in range(first, last, BLOCK_L):
        i = i0 + tl.arange(0, BLOCK_L)
        i_ok = valid(ROWS, i, last, MASKED)
        for j0 in range(0, N, BLOCK_E):
            j = j0 + tl.arange(0, BLOCK_E)
            ok = i_ok[:, None] & valid(COLUMNS, j, N, MASKED)[None, :]
            s = tl.load(SCORES + place_of(i, j, N, True), mask=ok, other=0.0)
            high = tl.maximum(high, tl.where(ok, s, NEVER))
            low = tl.maximum(low, tl.where(ok, -s, NEVER))
            strange += _strange(s)
    return tl.max(tl.max(high, 1), 0), tl.max(tl.max(low, 1), 0), tl.sum(tl.sum(strange, 1), 0)


@triton.jit
def _reach_of_odds(
    ODDS, COLUMNS, N,
    MASKED: tl.constexpr, PRESENCE: tl.constexpr, SHARED: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """The spread of odds, with the largest of them; and what is strange."""
    high = tl.full([BLOCK_E], NEVER, tl.float32)
    low, strange = high, tl.zeros([BLOCK_E], tl.float32)
    if PRESENCE:
        for j0 in range(0, N, BLOCK_E):
            j = j0 + tl.arange(0, BLOCK_E)
            ok = valid(COLUMNS, j, N, MASKED)
            odds = tl.load(ODDS + j, mask=ok, other=0.0)
            high = tl.maximum(high, tl.where(ok, odds, NEVER))
            low = tl.maximum(low, tl.where(ok, -odds, NEVER))
            strange += odds - odds if SHARED else _strange(odds)
    most, least = tl.max(high, 0), tl.max(low, 0)
    reach = tl.maximum(most + least, 0.0) + tl.maximum(tl.maximum(most, least), 0.0)
    return reach, tl.sum(strange, 0)


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
def _rounds_of_set(
    SCORES, ODDS, E, ROWS, COLUMNS, ANSWERS, ASKED, USED, VALUE, SETTLED, PARTS, ARRIVED,
    b, group, place, met, M, N, most, between, quiet,
    MASKED: tl.constexpr, PRESENCE: tl.constexpr, SHARED: tl.constexpr,
    PROGRAMS: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Rounds until set b has settled; how often the programs of its group have met by then."""
    start = b * M * N
    S, A, Q = SCORES + start, ANSWERS + start, ASKED + start
    D, U, R, C = ODDS + b * N, USED + b * N, ROWS + b * M, COLUMNS + b * N
    P = PARTS + b * 3 * PROGRAMS
    i, i_end = own_part(M, place, PROGRAMS)
    j, j_end = own_part(N, place, PROGRAMS)
    high, low, strange = _measure(S, R, C, i, i_end, N, MASKED, BLOCK_L, BLOCK_E)
    tl.store(P + place, high)
    tl.store(P + PROGRAMS + place, low)
    tl.store(P + 2 * PROGRAMS + place, strange)
    met = meet(ARRIVED + group, met, PROGRAMS)
    spread = largest_of(P, PROGRAMS) + largest_of(P + PROGRAMS, PROGRAMS)
    rows, columns = count(R, M, MASKED, BLOCK_L), count(C, N, MASKED, BLOCK_E)
    of_odds, strange_odds = _reach_of_odds(D, C, N, MASKED, PRESENCE, SHARED, BLOCK_E)
    limit = ((tl.maximum(spread, 0.0) + of_odds) * M * 2.0 + CERTAIN) * LOG2_E
    e, lone, some = _exclusivity(E, b, SHARED)
    strange = total_of(P + 2 * PROGRAMS, PROGRAMS) + strange_odds
    if SHARED:
        strange += e - e
    # With as many targets as outputs none is left over: no message should wait for that.
    unused = tl.where((rows == columns) & (e == 1.0), NEVER, 0.0)
    hopeless = (rows > columns) & (e == 1.0)
    rounds, value, settled = 0, 0.0, False
    while (rounds < most) & (settled == 0):
        look = rounds % between == 0
        by_rows = ask(S, A, Q, R, C, i, i_end, N, limit, MASKED, BLOCK_L, BLOCK_E)
        met = meet(ARRIVED + group, met, PROGRAMS)
        by_columns, apart = answer(
            S, Q, A, D, U, R, C, j, j_end, M, N, unused, lone, some, limit, look,
            MASKED, PRESENCE, SHARED, BLOCK_L, BLOCK_E,
        )  # fmt: skip
        if look:
            tl.store(P + place, (by_rows + by_columns) * LN_2)
            tl.store(P + PROGRAMS + place, tl.where(hopeless, 0.0, apart))
        met = meet(ARRIVED + group, met, PROGRAMS)
        if look:
            before, value = value, total_of(P, PROGRAMS)
            # The largest, not the sum: that would be judged by the number of programs as well.
            change = largest_of(P + PROGRAMS, PROGRAMS)
            settled = settles(before, value, change, rounds, quiet)
        rounds += 1
    beliefs(S, A, Q, R, C, i, i_end, N, MASKED, BLOCK_L, BLOCK_E)
    if place == 0:
        tl.store(VALUE + b, value + strange)
        tl.store(SETTLED + b, settled & (strange == 0.0))
    return met


@triton.jit
def bethe_rounds(
    SCORES, ODDS, E, ROWS, COLUMNS, ANSWERS, ASKED, USED, VALUE, SETTLED, LEFT, PARTS, ARRIVED,
    B, M, N, groups, most, between, quiet,
    MASKED: tl.constexpr, PRESENCE: tl.constexpr, SHARED: tl.constexpr, SOME: tl.constexpr,
    PROGRAMS: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Rounds until a set has settled, ``most`` of them; in the end ASKED has the probabilities.

    If only of SOME, then of those that are LEFT.
    """
    group, place = take_place(ARRIVED, groups, PROGRAMS)
    met = 0
    for b in range(group, B, groups):
        mine = True
        if SOME:
            mine = tl.load(LEFT + b) != 0
        if mine:
            met = _rounds_of_set(
                SCORES, ODDS, E, ROWS, COLUMNS, ANSWERS, ASKED, USED, VALUE, SETTLED, PARTS,
                ARRIVED, b, group, place, met, M, N, most, between, quiet,
                MASKED, PRESENCE, SHARED, PROGRAMS, BLOCK_L, BLOCK_E,
            )  # fmt: skip


def constants(grid: Grid, masked: bool, presence: bool, shared: bool, some: bool) -> dict[str, int]:
    """What the kernel is compiled for."""
    kind = {"MASKED": masked, "PRESENCE": presence, "SHARED": shared, "SOME": some}
    return kind | {"PROGRAMS": grid.programs, "BLOCK_L": grid.lines, "BLOCK_E": grid.elements}


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
    """The same in two launches at most: of outputs' use nothing where it is the sum of pairs."""
    B, M, N = scores.shape
    left: Tensor | None = None
    if exclusivity is None and N <= plain_bethe.MOST_OUTPUTS:
        value, pairs, settled, answers, left = plain_bethe.plain_bethe(scores, odds, masks)
    else:
        answers, pairs = scores.new_zeros(B, M, N), scores.new_empty(B, M, N)
        value, settled = scores.new_empty(B), scores.new_empty(B, dtype=torch.bool)
    of_thread = FEW if exclusivity is None else MORE
    plan = grid(B, M, N, programs_for(max(M, N), LINES), scores.device, PER_SM, of_thread)
    used = None if exclusivity is None else scores.new_empty(B, N)
    given = [value if t is None else t.contiguous() for t in (odds, exclusivity)]
    given += [value] * 2 if masks is None else [m.contiguous().view(torch.uint8) for m in masks]
    kind = (masks is not None, odds is not None, exclusivity is not None, left is not None)
    launch = launcher(bethe_rounds, constants(plan, *kind), plan.warps, 1)
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
            (settled if left is None else left).view(torch.uint8),
            scores.new_empty(B, 3, plan.programs),
            plan.arrived(scores),
        ),
        (B, M, N, plan.groups, MOST_ROUNDS, ROUNDS_BETWEEN_LOOKS, tolerance(scores.dtype)),
    )
    return value, pairs, used, settled, answers
