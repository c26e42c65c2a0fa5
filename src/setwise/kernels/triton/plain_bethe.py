"""Bethe's approximation of the sum over all matchings, in plain numbers: all rounds in one launch.

Legend: B sets, M targets, N outputs. See `plain_messages` for a round, and `rounds` for the
programs that exchange them. Outputs that are shared, and sets of very many, are left to `bethe`,
and so are sets that do not settle for scores that are very far apart.

A program has some targets of a set. What it asks of outputs it leaves for the others, and meets
them once a round; then every program adds up for itself what all have asked, in the same order.
What one round leaves, the next but one overwrites: by then all have met again. What is judged at a
look is overwritten at the next look, before which there are other rounds.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from setwise.kernels.fixed_point import ROUNDS_BETWEEN_LOOKS, tolerance
from setwise.kernels.triton.launch import Launcher, launcher
from setwise.kernels.triton.plain_messages import (
    EASY,
    STRAINED,
    answer,
    ask,
    beliefs,
    start,
)
from setwise.kernels.triton.rounds import (
    MOST_ROUNDS,
    NEVER,
    Grid,
    count,
    largest_of,
    meet,
    own_part,
    programs_for,
    settles,
    take_place,
    total_of,
)
from setwise.kernels.triton.tiles import blocks_in, power_of_2, sm_count
from setwise.kernels.triton.weights import LN_2

# Outputs of a set, and of a chunk: a thread keeps what it knows of some of each. Wide chunks leave
# more of the last one idle, but with more than five a kernel takes long to compile.
MOST_OUTPUTS, CHUNK, WIDE_CHUNK, MOST_CHUNKS = 512, 64, 128, 5
# Targets of a tile: one for each warp, which needs no other to add up their terms then. Where one
# chunk is enough, as many as are a tile of so many pairs.
WARPS, SMALL_TILE = 4, 1024
# Targets of a program: few where there are not enough sets to keep the device busy otherwise.
MANY, FEW, ALONE = 28, 12, 64
# Programs on each multiprocessor, for which there is room if a thread has so many registers; and as
# many as there may be of such that wait for nobody.
PER_SM, REGISTERS, MOST_PER_SM = 3, 160, 32
AT_ONCE = 256  # outputs that answer
# Numbers that the device fetches together. Pieces of memory have a multiple of them, or threads
# would read one at a time.
ALIGNED = 32
# What is judged at a look has one place only, which is read while others may be a round further.
assert ROUNDS_BETWEEN_LOOKS > 1


@triton.jit
def plain_rounds(
    SCORES, ODDS, ROWS, COLUMNS, ANSWERS, PAIRS, OWN, SHARED, VALUE, SETTLED, LEFT, ARRIVED,
    B, M, N, groups, own_numbers, shared_numbers, most, between, quiet,
    MASKED: tl.constexpr, PRESENCE: tl.constexpr, PROGRAMS: tl.constexpr, WIDTH: tl.constexpr,
    CHUNKS: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Rounds until a set has settled, ``most`` of them; then PAIRS and ANSWERS.

    OWN has so many numbers of each program, for itself. SHARED has so many of each set, which its
    programs leave for each other: what they ask, with places for this round and for the next; and
    of each its share of the value, by how much it is apart, how strained, and what was strange at
    first. LEFT are the sets that are left to logarithms, with ANSWERS of 0.
    """
    group, place = take_place(ARRIVED, groups, PROGRAMS)
    program = group * PROGRAMS + place
    rows = tl.cdiv(tl.cdiv(M, PROGRAMS), BLOCK_L) * BLOCK_L
    S = OWN + program * own_numbers
    Q = S + rows * WIDTH
    T = Q + rows * WIDTH
    state = T + rows * BLOCK_E
    of_rows = state + 4 * WIDTH
    met = 0
    for b in range(group, B, groups):
        start_of_set = b * M * N
        D, R, C = ODDS + b * N, ROWS + b * M, COLUMNS + b * N
        of_set = SHARED + b * shared_numbers
        P = of_set + 4 * PROGRAMS * WIDTH
        i, end = own_part(M, place, PROGRAMS)
        targets = count(R, M, MASKED, BLOCK_C)
        outputs = count(C, N, MASKED, BLOCK_C)
        # With as many targets as outputs none is left over: no message should wait for that.
        unused = tl.where(targets == outputs, NEVER, 0.0)
        # What is impossible has no answer, and is not asked for one.
        hopeless = targets > outputs
        last = tl.where(hopeless, i, end)
        strange = start(
            SCORES + start_of_set, S, Q, T, state, R, C, i, last, rows, N,
            MASKED, WIDTH, CHUNKS, BLOCK_L, BLOCK_E,
        )  # fmt: skip
        tl.store(P + 3 * PROGRAMS + place, strange)
        tl.debug_barrier()
        rounds, value, strain, settled = 0, 0.0, 0.0, hopeless
        while (rounds < most) & (settled == 0):
            look = rounds % between == 0
            offered = of_set + rounds % 2 * PROGRAMS * 2 * WIDTH
            own = offered + place * 2 * WIDTH
            if look:
                by_rows, apart, strained = ask(
                    S, Q, T, state, of_rows, own, R, i, last, rows,
                    True, MASKED, WIDTH, CHUNKS, BLOCK_L, BLOCK_E, BLOCK_C,
                )  # fmt: skip
                tl.store(P + place, by_rows * LN_2)
                tl.store(P + PROGRAMS + place, apart)
                tl.store(P + 2 * PROGRAMS + place, strained)
            else:
                ask(
                    S, Q, T, state, of_rows, own, R, i, last, rows,
                    False, MASKED, WIDTH, CHUNKS, BLOCK_L, BLOCK_E, BLOCK_C,
                )  # fmt: skip
            met = meet(ARRIVED + group, met, PROGRAMS)
            by_columns, of_columns = answer(
                offered, state, D, C, N, unused, look,
                MASKED, PRESENCE, PROGRAMS, WIDTH, BLOCK_C,
            )  # fmt: skip
            if look:
                before = value
                value = total_of(P, PROGRAMS) + by_columns * LN_2
                change = largest_of(P + PROGRAMS, PROGRAMS)
                strain = tl.maximum(largest_of(P + 2 * PROGRAMS, PROGRAMS), of_columns)
                # Where a total is held back, all may seem quiet.
                settled = settles(before, value, change, rounds, quiet) & (strain < STRAINED)
            tl.debug_barrier()
            rounds += 1
        strange = 0.0
        if rounds > 0:
            strange = total_of(P + 3 * PROGRAMS, PROGRAMS)
        left = (settled == 0) & (strain > EASY) & (strange == 0.0)
        beliefs(
            S, Q, PAIRS + start_of_set, ANSWERS + start_of_set, T, state, R, C, i, last, end, rows,
            N, left, MASKED, WIDTH, CHUNKS, BLOCK_L, BLOCK_E,
        )  # fmt: skip
        if place == 0:
            tl.store(VALUE + b, value + strange)
            tl.store(SETTLED + b, settled & (strange == 0.0))
            tl.store(LEFT + b, left)
        tl.debug_barrier()


def grid(B: int, M: int, N: int, device: torch.device) -> Grid:
    """Programs for a set, sets at once, and the tiles of a program."""
    elements = min(CHUNK if N <= MOST_CHUNKS * CHUNK else WIDE_CHUNK, max(2, power_of_2(N)))
    lines, warps = WARPS, WARPS
    if elements >= N:
        lines = min(SMALL_TILE // elements, max(2, power_of_2(M)))
        warps = max(1, lines * elements * WARPS // SMALL_TILE)
    if device.type != "cuda":
        return Grid(1, B, lines, elements, warps)
    room = PER_SM * sm_count(device)
    programs = 1 if max(M, N) <= ALONE else programs_for(M, MANY)
    if max(M, N) > ALONE and B * programs < room:
        programs = programs_for(M, FEW)
    programs = min(programs, sm_count(device))
    if programs == 1:
        room = MOST_PER_SM * sm_count(device)
    return Grid(programs, min(B, max(1, room // programs)), lines, elements, warps)


def constants(grid: Grid, N: int, masked: bool, presence: bool) -> dict[str, int]:
    """What the kernel is compiled for."""
    chunks = blocks_in(N, grid.elements)
    kind = {"MASKED": masked, "PRESENCE": presence, "PROGRAMS": grid.programs}
    kind |= {"WIDTH": chunks * grid.elements, "CHUNKS": chunks}
    tile = {"BLOCK_L": grid.lines, "BLOCK_E": grid.elements}
    return kind | tile | {"BLOCK_C": min(AT_ONCE, max(2, power_of_2(N)))}


def numbers(M: int, grid: Grid, width: int) -> tuple[int, int]:
    """How many a program keeps for itself, and how many those of a set share.

    Of each target, in whole tiles: its logarithms, what it asks, and its total, for each thread of
    a chunk. Then the state of the outputs, and what the rows of a tile ask if that is put together
    from several chunks. What is shared is the largest and the rest of what is asked of each output,
    for two rounds, and four numbers of each program.
    """
    rows = blocks_in(blocks_in(M, grid.programs), grid.lines) * grid.lines
    own = rows * (2 * width + grid.elements) + 4 * width
    if width > grid.elements:
        own += 2 * grid.lines * width
    shared = 4 * grid.programs * (width + 1)
    return blocks_in(own, ALIGNED) * ALIGNED, blocks_in(shared, ALIGNED) * ALIGNED


class Plan(NamedTuple):
    """What a launch for sets of some sizes is made of: it takes time to find out."""

    launch: Launcher
    grid: Grid
    own: int  # numbers of each program
    shared: int  # and of each set


@lru_cache(maxsize=1024)
def planned(B: int, M: int, N: int, masked: bool, presence: bool, device: torch.device) -> Plan:
    """Rounds of so many sets."""
    found = grid(B, M, N, device)
    kind = constants(found, N, masked, presence)
    launch = launcher(plain_rounds, kind, found.warps, 1, REGISTERS)
    return Plan(launch, found, *numbers(M, found, kind["WIDTH"]))


def plain_bethe(
    scores: Tensor, odds: Tensor | None, masks: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Value [B], probabilities of pairs [B, M, N], which have settled [B], answers [B, M, N].

    And which sets [B] are left to logarithms.
    """
    B, M, N = scores.shape
    plan = planned(B, M, N, masks is not None, odds is not None, scores.device)
    programs = plan.grid.programs * plan.grid.groups
    value = scores.new_empty(B)
    settled, left = (scores.new_empty(B, dtype=torch.bool) for _ in range(2))
    answers, pairs = scores.new_empty(B, M, N), scores.new_empty(B, M, N)
    given = [value if odds is None else odds.contiguous()]
    given += [value] * 2 if masks is None else [m.contiguous().view(torch.uint8) for m in masks]
    plan.launch(
        (programs, 1, 1),
        (
            scores.contiguous(),
            *given,
            answers,
            pairs,
            scores.new_empty(programs * plan.own),
            scores.new_empty(B * plan.shared),
            value,
            settled.view(torch.uint8),
            left.view(torch.uint8),
            plan.grid.arrived(scores),
        ),
        (
            *(B, M, N, plan.grid.groups, plan.own, plan.shared),
            *(MOST_ROUNDS, ROUNDS_BETWEEN_LOOKS, tolerance(scores.dtype)),
        ),
    )
    return value, pairs, settled, answers, left
