"""Rounds of messages in one launch: several programs work on a set, and meet between two steps.

A group of programs takes one set after the other. What each of them has written is there for the
others when all have met. A group is complete before the next one begins, for programs take their
places in the order in which they start, and it has no more of them than the device has
multiprocessors: so nobody waits for a program that has no room there. In Triton's interpreter,
which runs one program after the other, groups have one member.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from setwise.kernels.fixed_point import ROUNDS_BETWEEN_LOOKS, looks
from setwise.kernels.triton.tiles import blocks_in, power_of_2, sm_count

# The logarithm of nothing, see `setwise.kernels.permanent`.
NEVER = tl.constexpr(-1e30)
# Lines of a set that a program has in hand at once, and elements of them. A warp reads these side
# by side, and needs no other to add up what it finds.
LINES, ELEMENTS = 32, 32
STAGES = tl.constexpr(1)
MAX_PROGRAMS = tl.constexpr(16)  # for one set
# A look is at the messages of the round before: one round comes first, to look at the start.
MOST_ROUNDS = looks(torch.float32).stop * ROUNDS_BETWEEN_LOOKS + 1


@triton.jit
def take_place(ARRIVED, groups, PROGRAMS: tl.constexpr):
    """The group of this program, in 64 bits as it becomes the number of a set; its place there."""
    ticket = tl.program_id(0)
    if PROGRAMS > 1:
        ticket = tl.atomic_add(ARRIVED + groups, 1)
    return (ticket // PROGRAMS).to(tl.int64), ticket % PROGRAMS


@triton.jit
def meet(ARRIVED, met, PROGRAMS: tl.constexpr):
    """Wait for all programs of a group, whose counter this is; ``met`` times they have done so."""
    tl.debug_barrier()  # all threads have written
    if PROGRAMS > 1:
        # Who sees the last member arrive sees what each had written, all threads of it, before.
        # With more than "acquire" each question would wait for the writes of who asks.
        tl.atomic_add(ARRIVED, 1, sem="release")
        while tl.atomic_add(ARRIVED, 0, sem="acquire") < PROGRAMS * (met + 1):
            pass
        tl.debug_barrier()
    return met + 1


@triton.jit
def own_part(size, place, PROGRAMS: tl.constexpr):
    """The first and the last, and one, of the lines that are a program's to work on."""
    each = (size + PROGRAMS - 1) // PROGRAMS
    return tl.minimum(place * each, size), tl.minimum((place + 1) * each, size)


@triton.jit
def place_of(line, e, N, BY_ROWS: tl.constexpr):
    """Of lines and their elements in a matrix of N columns."""
    return line[:, None] * N + e[None, :] if BY_ROWS else e[None, :] * N + line[:, None]


@triton.jit
def valid(VALID, e, size, MASKED: tl.constexpr):
    """Which elements there are; without a mask all of them."""
    return tl.load(VALID + e, mask=e < size, other=0) != 0 if MASKED else e < size


@triton.jit
def count(VALID, size, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    """How many elements there are."""
    total = tl.zeros([BLOCK], tl.int32)
    for e0 in range(0, size, BLOCK):
        total += valid(VALID, e0 + tl.arange(0, BLOCK), size, MASKED).to(tl.int32)
    return tl.sum(total, 0)


@triton.jit
def total_of(PARTS, PROGRAMS: tl.constexpr):
    """The sum of the numbers that the programs of a group have stored."""
    place = tl.arange(0, MAX_PROGRAMS)
    return tl.sum(tl.load(PARTS + place, mask=place < PROGRAMS, other=0.0), 0)


@triton.jit
def largest_of(PARTS, PROGRAMS: tl.constexpr):
    """The largest of them."""
    place = tl.arange(0, MAX_PROGRAMS)
    return tl.max(tl.load(PARTS + place, mask=place < PROGRAMS, other=NEVER), 0)


@triton.jit
def settles(before, value, change, rounds, quiet):
    """Whether a set has, by its value of now and of the last look, and by what has changed.

    The rule is that of `setwise.kernels.fixed_point.settle`. All programs of a group must come to
    the same end: what they judge by has to be the same to the last bit.
    """
    still = tl.abs(value - before) <= quiet * (1.0 + tl.abs(value))
    return (rounds > 0) & (change <= quiet) & still


class Grid(NamedTuple):
    """How many programs work on one set, on how many sets at once, and their tiles."""

    programs: int
    groups: int
    lines: int
    elements: int
    warps: int

    def arrived(self, like: Tensor) -> Tensor:
        """Counters of the groups, and that of the programs that have started."""
        return torch.zeros(self.groups + 1, dtype=torch.int32, device=like.device)


def programs_for(lines: int, each: int) -> int:
    """How many share the lines of a set, if one has ``each`` of them or, of very many, more."""
    return min(MAX_PROGRAMS.value, blocks_in(lines, each))


def warps_of(tile: int, of_thread: int) -> int:
    """How many warps a tile takes, of which a thread has so many elements."""
    return max(1, tile // (32 * of_thread))


@lru_cache(maxsize=1024)
def grid(
    B: int, M: int, N: int, programs: int, device: torch.device, per_sm: int, of_thread: int
) -> Grid:
    """With so many programs a set, and on each multiprocessor: while one waits, others work.

    A thread has so many elements of a tile.
    """
    size = max(M, N)
    lines, elements = (min(most, max(2, power_of_2(size))) for most in (LINES, ELEMENTS))
    warps = warps_of(lines * elements, of_thread)
    if device.type != "cuda":
        return Grid(1, B, lines, elements, warps)
    programs = min(programs, sm_count(device))
    # Alone, a program waits for nobody, and the device may run as many as it has room for.
    groups = B if programs == 1 else min(B, max(1, per_sm * sm_count(device) // programs))
    return Grid(programs, groups, lines, elements, warps)
