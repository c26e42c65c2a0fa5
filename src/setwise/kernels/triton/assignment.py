"""Minimum-cost assignment: shortest augmenting paths, one program a problem.

Legend: B problems; S elements of the shorter side, L of the longer one. Of these the valid ones are
matched: rows are those of the side that has fewer, columns those of the other, so that each row
gets a column.

The method is that of Jonker and Volgenant (1987). A column has a dual ``v``, at most 0; a row keeps
to columns whose ``cost - v`` is least to it, which is its own dual ``u``. First come rounds
in which all free rows bid at once: each offers for the column it likes best what its second choice
is worse by, and the highest offer drives out the row that was there. The rows that are left are
matched one by one, each along the shortest path of reduced costs to a free column.

All that is summed is in float64: for costs of float32, sums are exact but for roundings that no
cost could tell. Whatever the costs are, programs end, and find every place inside their arrays: a
search closes one column at a time, and there are more columns than matched rows.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from setwise.kernels.triton.launch import Launcher, launcher

# At most so many rounds of bids: paths would hardly get shorter by more.
ROUNDS = 10
# So few rows are left to the paths.
FEW_ROWS = tl.constexpr(4)
# What a program has of each problem besides vectors: three numbers, see `_bid`. Vectors that begin
# anywhere are read one number at a time, as costs are, so that threads need not swap columns.
BOUNDS = tl.constexpr(3)


def solve(cost: Tensor, row_valid: Tensor | None, column_valid: Tensor | None) -> Tensor:
    """The column of each row of ``cost`` [B, M, N], at least total cost; -1 where it has none."""
    B, M, N = cost.shape
    costs = cost.mT.contiguous() if M > N else cost.contiguous()
    rows, columns = (None if t is None else t.contiguous() for t in (row_valid, column_valid))
    matching = torch.empty(B, M, dtype=torch.long, device=cost.device)
    solve_into(matching, costs, rows, columns)
    return matching


def solve_into(
    matching: Tensor, costs: Tensor, row_valid: Tensor | None, column_valid: Tensor | None
) -> None:
    """`solve` costs [B, S, L] whose rows are those of ``matching`` [B, M], or columns if M > N."""
    (B, S, L), M, device = costs.shape, matching.shape[1], costs.device
    tall = M > S
    short, long = (column_valid, row_valid) if tall else (row_valid, column_valid)
    block = max(32, triton.next_power_of_2(L))
    numbers = torch.empty(B, BOUNDS.value + 2 * block, dtype=torch.float64, device=device)
    state = torch.empty(B, 3 * block + 1, dtype=torch.int32, device=device)
    masks = tuple(costs if valid is None else valid.view(torch.uint8) for valid in (short, long))
    bid, match = _launchers(block, short is not None, long is not None, tall)
    bid((B, 1, 1), (costs, *masks, numbers, state), (S, L))
    match((B, 1, 1), (costs, *masks, numbers, state, matching), (S, L))


class Plan(NamedTuple):
    """How much a program does at once."""

    tile: int  # rows that bid at a time
    warps_to_bid: int
    warps_to_match: int


def _plan(block: int) -> Plan:
    """On an H200, 1,000 columns were matched fastest by eight warps; 300 by any number alike."""
    if block <= 128:
        return Plan(min(16, 1024 // block), 1, 1)
    if block <= 512:
        return Plan(2048 // block, 4, 4)
    return Plan(max(1, 4096 // block), 8, 16 if block > 2048 else 8)


@cache
def _launchers(
    block: int, short_masked: bool, long_masked: bool, tall: bool
) -> tuple[Launcher, Launcher]:
    plan = _plan(block)
    masked = {"SHORT_MASKED": short_masked, "LONG_MASKED": long_masked}
    constants = {**masked, "BLOCK": block, "TILE": plan.tile, "ROUNDS": ROUNDS}
    bid = launcher(_bid, constants, plan.warps_to_bid, 1)
    constants = {**masked, "BLOCK": block, "TALL": tall}
    return bid, launcher(_match, constants, plan.warps_to_match, 1)


@triton.jit
def _valid(VALID, j, size, MASKED: tl.constexpr):
    """1 of what is valid, else 0."""
    if MASKED:
        return tl.load(VALID + j, mask=j < size, other=0).to(tl.int32)
    else:
        return (j < size).to(tl.int32)


@triton.jit
def _sides(SHORT, LONG, S, L, b, j, SHORT_MASKED: tl.constexpr, LONG_MASKED: tl.constexpr):
    """Which of the numbers j are rows and columns, how far these lie apart, and if sides changed.

    ``SHORT`` [B, S] and ``LONG`` [B, L] say what is valid where a side is masked; else all is.
    """
    if SHORT_MASKED or LONG_MASKED:
        of_short = _valid(SHORT + b * S, j, S, SHORT_MASKED)
        of_long = _valid(LONG + b * L, j, L, LONG_MASKED)
        turned = tl.sum(of_short) > tl.sum(of_long)
        is_row = tl.where(turned, of_long, of_short) != 0
        is_column = tl.where(turned, of_short, of_long) != 0
        # Beyond the end stands the last one again: what is there can be read without asking.
        place = tl.minimum(j, tl.where(turned, S, L) - 1) * tl.where(turned, L, 1)
        return is_row, is_column, tl.where(turned, 1, L), place, turned
    return j < S, j < L, L, tl.minimum(j, L - 1), False


@triton.jit(do_not_specialize=["S", "L"])
def _bid(
    COST, SHORT, LONG, NUMBERS, STATE, S, L,
    SHORT_MASKED: tl.constexpr, LONG_MASKED: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
    ROUNDS: tl.constexpr,
):  # fmt: skip
    """Match what can be by bids. ``COST`` is [B, S, L].

    ``NUMBERS`` [B, BOUNDS + 2 * BLOCK] gets a number well below all costs; what a forbidden pair
    shall cost, infinity if there is none; 1 if all costs can be compared, else 0; and the duals of
    columns and of matched rows. ``STATE`` [B, 3 * BLOCK + 1] gets the row of each column and the
    column of each row, -1 where there is none.
    """
    b = tl.program_id(0).to(tl.int64)
    COST += b * S * L
    NUMBERS += b * (BOUNDS + 2 * BLOCK)
    OWNER = STATE + b * (3 * BLOCK + 1)
    CHOSEN = OWNER + BLOCK
    LIST = CHOSEN + BLOCK  # the rows that are free
    j = tl.arange(0, BLOCK)
    is_row, is_column, row_step, place, turned = _sides(
        SHORT, LONG, S, L, b, j, SHORT_MASKED, LONG_MASKED
    )
    column_step = tl.where(turned, L, 1)
    v = tl.zeros([BLOCK], tl.float64)
    owner = tl.full([BLOCK], -1, tl.int32)
    tl.store(CHOSEN + j, owner)
    low = tl.full([BLOCK], float("inf"), tl.float64)
    high = tl.full([BLOCK], float("-inf"), tl.float64)
    is_wrong, is_forbidden = tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.int32)
    free = is_row
    rows_free = tl.sum(free.to(tl.int32))
    done = 0
    while (rows_free > tl.where(done == 0, 0, FEW_ROWS)) & (done < ROUNDS):
        tl.store(LIST + tl.cumsum(free.to(tl.int32), 0) - 1, j, mask=free)
        tl.debug_barrier()
        best = tl.full([BLOCK], -1.0, tl.float64)
        bidder = tl.full([BLOCK], -1, tl.int32)
        for first in range(0, rows_free, TILE):
            number = first + tl.arange(0, TILE)
            rows = tl.load(LIST + number, mask=number < rows_free, other=0)
            ok = (number < rows_free)[:, None] & is_column[None, :]
            here = COST + rows[:, None].to(tl.int64) * row_step + place[None, :]
            cost = tl.load(here, mask=ok, other=0.0).to(tl.float64)
            if done == 0:  # every row is free: all costs are seen
                finite = ok & (tl.abs(cost) < float("inf"))
                low = tl.minimum(low, tl.min(tl.where(finite, cost, float("inf")), 0))
                high = tl.maximum(high, tl.max(tl.where(finite, cost, float("-inf")), 0))
                forbidden = ok & (cost == float("inf"))
                is_forbidden = tl.maximum(is_forbidden, tl.max(forbidden.to(tl.int32), 0))
                wrong = ok & ~finite & ~forbidden
                is_wrong = tl.maximum(is_wrong, tl.max(wrong.to(tl.int32), 0))
            reduced = tl.where(ok, cost - v[None, :], float("inf"))
            least = tl.min(reduced, 1)
            favourite = tl.min(tl.where(reduced == least[:, None], j[None, :], BLOCK), 1)
            is_favourite = j[None, :] == favourite[:, None]
            second = tl.min(tl.where(is_favourite, float("inf"), reduced), 1)
            # A row that has no second choice leaves it to the paths.
            bids = (number < rows_free) & (second < float("inf"))
            gap = tl.where(bids, second - least, -1.0)
            offers = tl.where(is_favourite, gap[:, None], -1.0)
            top = tl.max(offers, 0)
            wins = is_favourite & (offers == top[None, :])
            winner = tl.min(tl.where(wins, rows[:, None], BLOCK), 0)
            bidder = tl.where(top > best, winner, bidder)
            best = tl.maximum(best, top)
        # An offer of nothing drives nobody out, or rows would go round in circles.
        taken = (best > 0) | ((best == 0) & (owner < 0))
        v = tl.where(taken, v - best, v)
        tl.store(CHOSEN + owner, -1, mask=taken & (owner >= 0))
        tl.debug_barrier()
        tl.store(CHOSEN + bidder, j, mask=taken)
        owner = tl.where(taken, bidder, owner)
        tl.debug_barrier()
        free = is_row & (tl.load(CHOSEN + j) < 0)
        rows_free = tl.sum(free.to(tl.int32))
        done += 1
    tl.store(OWNER + j, owner)
    V = NUMBERS + BOUNDS
    tl.store(V + j, v)
    tl.debug_barrier()
    chosen = tl.load(CHOSEN + j)
    matched = chosen >= 0
    here = COST + j.to(tl.int64) * row_step + chosen * column_step
    u = tl.load(here, mask=matched, other=0.0).to(tl.float64)
    u -= tl.load(V + chosen, mask=matched, other=0.0)
    tl.store(V + BLOCK + j, u)

    # A pair that is forbidden costs more than all other costs could make up for.
    lowest, highest = tl.min(low), tl.max(high)
    lowest = tl.where(lowest < float("inf"), lowest, 0.0)
    highest = tl.where(highest > float("-inf"), highest, 0.0)
    scale = tl.maximum(highest - lowest, tl.maximum(tl.abs(highest), tl.abs(lowest)))
    scale = tl.where(scale > 0, scale, 1.0)
    too_much = highest + scale * (BLOCK + ROUNDS + 1.0)
    if COST.dtype.element_ty != tl.float64:
        too_much = tl.minimum(too_much, 3e38)  # it is to be a number of float32
    tl.store(NUMBERS, lowest - scale)
    tl.store(NUMBERS + 1, tl.where(tl.max(is_forbidden) > 0, too_much, float("inf")))
    tl.store(NUMBERS + 2, 1.0 - tl.max(is_wrong).to(tl.float64))


@triton.jit(do_not_specialize=["S", "L"])
def _match(
    COST, SHORT, LONG, NUMBERS, STATE, MATCHING, S, L,
    SHORT_MASKED: tl.constexpr, LONG_MASKED: tl.constexpr, BLOCK: tl.constexpr, TALL: tl.constexpr,
):  # fmt: skip
    """Match the rows that `_bid` left. ``MATCHING`` is of the shorter side; if TALL, the longer.

    ``NUMBERS`` and ``STATE`` are what `_bid` gave; single entries of vectors are found there.
    """
    b = tl.program_id(0).to(tl.int64)
    COST += b * S * L
    NUMBERS += b * (BOUNDS + 2 * BLOCK)
    V = NUMBERS + BOUNDS
    U = V + BLOCK
    OWNER = STATE + b * (3 * BLOCK + 1)
    CHOSEN = OWNER + BLOCK
    CAME = CHOSEN + BLOCK  # the row from which each column was reached
    j = tl.arange(0, BLOCK)
    is_row, is_column, row_step, place, turned = _sides(
        SHORT, LONG, S, L, b, j, SHORT_MASKED, LONG_MASKED
    )
    below, too_much = tl.load(NUMBERS), tl.load(NUMBERS + 1)
    solvable = tl.load(NUMBERS + 2)
    RAW: tl.constexpr = tl.float64 if COST.dtype.element_ty == tl.float64 else tl.float32
    left = tl.where(is_row & (tl.load(CHOSEN + j) < 0), j, BLOCK)
    source = tl.where(solvable > 0, tl.min(left), BLOCK)
    while source < BLOCK:
        # Lengths are positive. That of a column which is closed, or none, is negative: no path
        # leads there.
        length = tl.where(is_column, float("inf"), float("-inf")).to(tl.float64)
        v = tl.load(V + j)
        came = tl.zeros([BLOCK], tl.int32) + source
        # The least is that of a free column, if there is one.
        label = (tl.load(OWNER + j) + 1) * 65536 + j
        row, column, so_far = source, source, below * 0.0
        searching = True
        while searching:
            here = COST + row.to(tl.int64) * row_step
            cost = tl.load(here + place)
            start = so_far - tl.where(row == source, below, tl.load(U + row))
            cost = _bounded(cost.to(RAW), too_much)
            via = cost - v + start
            nearer = via < length
            length = tl.where(nearer, via, length)
            came = tl.where(nearer, row, came)
            so_far, found = _least(length, label)
            column, row = found & 65535, (found >> 16) - 1
            length = tl.where(j == column, -so_far, length)
            searching = row >= 0
        is_closed = is_column & (length < 0)
        change = tl.where(is_closed, length + so_far, 0.0)
        tl.store(V + j, v - change)
        owner = (label >> 16) - 1
        in_tree = is_closed & (owner >= 0)
        tl.store(U + owner, tl.load(U + owner, mask=in_tree) + change, mask=in_tree)
        tl.store(U + source, below + so_far)
        tl.store(CAME + j, came)
        tl.debug_barrier()
        changing = True
        while changing:  # along the path, from its end
            row = tl.load(CAME + column)
            before = tl.load(CHOSEN + row)
            tl.debug_barrier()
            tl.store(CHOSEN + row, column)
            tl.store(OWNER + column, row)
            column = before
            changing = row != source
        tl.debug_barrier()
        left = tl.where(left == source, BLOCK, left)
        source = tl.min(left)

    # Rows and columns are of either side, by what was valid.
    size = L if TALL else S
    partner = tl.load(tl.where(turned != TALL, OWNER, CHOSEN) + j, mask=j < size, other=-1)
    partner = tl.where(solvable > 0, partner, -1)
    here = COST + j.to(tl.int64) * (1 if TALL else L) + partner * (L if TALL else 1)
    is_allowed = tl.load(here, mask=partner >= 0, other=0.0).to(tl.float64) < float("inf")
    matched = tl.where(is_allowed, partner, -1).to(tl.int64)
    tl.store(MATCHING + b * size + j, matched, mask=j < size)


@triton.jit
def _bounded(cost, too_much):
    """In float64, with a cost that is not infinite for a pair that is forbidden."""
    return tl.minimum(cost, too_much.to(cost.dtype)).to(tl.float64)


@triton.jit
def _least(lengths, label):
    """The least of the lengths that are not negative, and the least label of those that have it.

    Such numbers are ordered as their bits are, negative ones behind them. A warp finds the least of
    integers of 32 bits by one instruction, so that is done to half of each number at a time.
    """
    bits = lengths.to(tl.uint64, bitcast=True)
    high, low = (bits >> 32).to(tl.uint32), bits.to(tl.uint32)
    least_high = tl.min(high)
    least_low = tl.min(tl.where(high == least_high, low, 0xFFFFFFFF))
    least = (least_high.to(tl.uint64) << 32) | least_low
    found = tl.min(tl.where(bits == least, label, 0x7FFFFFFF))
    return least.to(tl.float64, bitcast=True), found
