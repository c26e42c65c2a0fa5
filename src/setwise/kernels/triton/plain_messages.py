"""A round of Bethe's messages in plain numbers; see `setwise.kernels.bethe` for what they say.

Legend: M targets, N outputs; L and E of them in a tile. WIDTH has room for N outputs, in chunks.

Where threads exchange numbers they wait for each other. So a total is stored E times, for each of
them to have it at hand, which takes as much room as what a chunk asks; and what the rows of a tile
ask is put together once, for all chunks.

Of a line, a target or an output, only ratios matter. So a target's terms, its weights times what
outputs answer, are divided by their total of the round before, and what is asked of an output by
what all have asked; the logarithms of these totals are kept, and may be of any size::

    weight_ij = exp(score_ij) / (total_i total_j)
    free_ij   = 1 - asked_ij / sum_i asked_ij      the share of an output that others leave to it
    term_ij   = weight_ij / free_ij
    asked_ij  = weight_ij / (sum_j term_ij - term_ij)

What is asked is what a program keeps from round to round. What all others of a line add up to is
the sum of all but one of the largest, and by how much the largest exceeds the own one: there is no
difference of large numbers in it.

So that all of this is in the range of float32, what others leave counts as at least 2^-50 of a
line, and no total falls below that in a round. Where messages end, neither makes a difference. No
weight is above 1: of an output, all that is asked is no less than what this pair asks, which is its
weight over a part of the target's total. A set that is not there yet is STRAINED if a total was
held back, and REACHING if the product of all totals of a line is FAR from 1, where rounding may
keep its weights from coming to rest.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.messages import log_of_rest
from setwise.kernels.triton.rounds import valid
from setwise.kernels.triton.weights import LN_2, LOG2_E

# The least share of a line that others leave, and the least total.
LEAST = tl.constexpr(2.0**-50)
# The least that probabilities are divided by.
TINY = tl.constexpr(2.0**-100)
# The logarithm to base 2 of the most that counts of an output's being left over.
MOST_AT_ONCE = tl.constexpr(100.0)
# Only one element can have a larger share of its line. Clearly more than half: of two that have a
# half each, both may seem to have a little more.
MOST_OF_A_LINE = tl.constexpr(0.625)
# What a set is, and the logarithm to base 2 of a total that is far from 1.
EASY, REACHING, STRAINED = tl.constexpr(0.0), tl.constexpr(1.0), tl.constexpr(2.0)
FAR = tl.constexpr(128.0)


@triton.jit
def _join(top, others, top_2, others_2):
    """The largest of the terms of two parts of a line, and the sum of all others."""
    return tl.maximum(top, top_2), others + others_2 + tl.minimum(top, top_2)


@triton.jit
def _inverse(x):
    """One over numbers above 0: a division takes several times as long."""
    root = tl.rsqrt(x)
    return root * root


@triton.jit
def _place(i0, k, STRIDE: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr):
    """Where a tile begins at row i0 and chunk k of a matrix."""
    j = k * BLOCK_E + tl.arange(0, BLOCK_E)
    return (i0 + tl.arange(0, BLOCK_L)[:, None]) * STRIDE + j[None, :]


@triton.jit
def start(
    SCORES, LOGS, ASKED, TOTALS, STATE, ROWS, COLUMNS, first, last, rows, N,
    MASKED: tl.constexpr, WIDTH: tl.constexpr, CHUNKS: tl.constexpr,
    BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """LOGS of weights to base 2, TOTALS by the best outputs, and a STATE in which these answer 1.

    Gives NaN if a score is, minus infinity if all of a target are, and 0 else.
    """
    strange = tl.zeros([BLOCK_L], tl.float32)
    for i0 in range(0, rows, BLOCK_L):
        row = i0 + tl.arange(0, BLOCK_L)
        i = first + row
        i_ok = valid(ROWS, i, last, MASKED)
        best = tl.full([BLOCK_L, BLOCK_E], float("-inf"), tl.float32)
        nan = tl.zeros([BLOCK_L, BLOCK_E], tl.float32)
        for k in tl.static_range(CHUNKS):
            j = k * BLOCK_E + tl.arange(0, BLOCK_E)
            ok = i_ok[:, None] & valid(COLUMNS, j, N, MASKED)[None, :]
            s = tl.load(SCORES + i[:, None] * N + j[None, :], mask=ok, other=float("-inf"))
            s *= LOG2_E
            best = tl.maximum(best, s)
            nan += tl.where(s != s, s, 0.0)
            at = _place(i0, k, WIDTH, BLOCK_L, BLOCK_E)
            tl.store(LOGS + at, s)
            tl.store(ASKED + at, tl.zeros([BLOCK_L, BLOCK_E], tl.float32))
        largest = tl.max(best, 1)
        nothing = largest == float("-inf")
        total = tl.where(nothing, 0.0, -largest)[:, None] + tl.zeros([BLOCK_L, BLOCK_E], tl.float32)
        tl.store(TOTALS + _place(i0, 0, BLOCK_E, BLOCK_L, BLOCK_E), total)
        strange += tl.sum(nan, 1) + tl.where(i_ok & nothing, float("-inf"), 0.0)
    for k in tl.static_range(CHUNKS):
        j = k * BLOCK_E + tl.arange(0, BLOCK_E)
        zero = tl.zeros([BLOCK_E], tl.float32)
        tl.store(STATE + j, zero + 1.0)
        tl.store(STATE + WIDTH + j, zero)
        tl.store(STATE + 2 * WIDTH + j, zero + 1.0)
        tl.store(STATE + 3 * WIDTH + j, zero)
    return tl.sum(strange, 0)


@triton.jit
def _known(
    STATE, WIDTH: tl.constexpr, CHUNKS: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr
):  # fmt: skip
    """The STATE of outputs, in chunks for each row of a tile.

    The most that an output was asked by a target; by all others, as a share of the total; one over
    the total; and minus the logarithm of all totals so far.
    """
    tops, others, shares, prices = (), (), (), ()
    for k in tl.static_range(CHUNKS):
        j = _place(0, k, 0, BLOCK_L, BLOCK_E)
        tops = tops + (tl.load(STATE + j),)
        others = others + (tl.load(STATE + WIDTH + j),)
        shares = shares + (tl.load(STATE + 2 * WIDTH + j),)
        prices = prices + (tl.load(STATE + 3 * WIDTH + j),)
    return tops, others, shares, prices


@triton.jit
def _nothing(CHUNKS: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr):
    """Zeros for every chunk of a row."""
    chunks = ()
    for _ in tl.static_range(CHUNKS):
        chunks = chunks + (tl.zeros([BLOCK_L, BLOCK_E], tl.float32),)
    return chunks


@triton.jit
def _free(asked, top, rest, share):
    """What others leave of an output, as a share of its total.

    The ``rest`` is LEAST or more, or nothing is asked: so this is not 0.
    """
    return (top - asked) * share + rest


@triton.jit
def _strain(total, log, there):
    """Of lines, by their totals of this round and the logarithms of all of them."""
    reaching = tl.where(tl.abs(log) > FAR, REACHING, EASY)
    return tl.where(there, tl.where(total <= LEAST, STRAINED, reaching), EASY)


@triton.jit
def _any_of(taken, p):
    """The probability of what is taken already, or of one more unless that is most of its line."""
    p = tl.where(p <= MOST_OF_A_LINE, p, 0.0)
    return taken + (p - p * taken)


@triton.jit
def _log_of_none(taken):
    """``log2(1 - taken)`` to the last bits; the polynomial is for numbers up to a half."""
    return tl.where(taken <= 0.5, log_of_rest(tl.minimum(taken, 0.5)), tl.log2(1.0 - taken))


@triton.jit
def _log_beside(top, rest, share):
    """The same of the largest of a line, by the sum of all others, if it is most of the line."""
    return tl.where(top * share > MOST_OF_A_LINE, tl.log2(rest * share), 0.0)


@triton.jit
def _weigh(
    LOGS, ASKED, tops, rests, shares, prices, i0, total,
    WIDTH: tl.constexpr, CHUNKS: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Weights and terms of some targets; of each the largest term, and the sum of all others.

    ``total`` has one of each target for every output of a chunk.
    """
    logs, asked = (), ()
    for k in tl.static_range(CHUNKS):
        at = _place(i0, k, WIDTH, BLOCK_L, BLOCK_E)
        logs = logs + (tl.load(LOGS + at),)
        asked = asked + (tl.load(ASKED + at),)
    weights, terms = (), ()
    top = tl.zeros([BLOCK_L, BLOCK_E], tl.float32)
    others = top
    for k in tl.static_range(CHUNKS):
        weight = tl.exp2(logs[k] + (total + prices[k]))
        term = weight * _inverse(_free(asked[k], tops[k], rests[k], shares[k]))
        top, others = _join(top, others, term, 0.0)
        weights, terms = weights + (weight,), terms + (term,)
    top, others = tl.reduce((top, others), 1, _join)
    return weights, terms, top, others


@triton.jit
def _offer(
    OFFERED, OF_ROWS, most, less,
    WIDTH: tl.constexpr, CHUNKS: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
    BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Put together what the rows of a tile have asked: a reduction would be one for each chunk."""
    for k in tl.static_range(CHUNKS):
        at = _place(0, k, 2 * WIDTH, BLOCK_L, BLOCK_E)
        tl.store(OF_ROWS + at, most[k])
        tl.store(OF_ROWS + WIDTH + at, less[k])
    tl.debug_barrier()
    for j0 in tl.static_range(0, WIDTH, BLOCK_C):
        j = j0 + tl.arange(0, BLOCK_C)
        top, others = tl.zeros([BLOCK_C], tl.float32), tl.zeros([BLOCK_C], tl.float32)
        for line in tl.static_range(BLOCK_L):
            a = tl.load(OF_ROWS + 2 * line * WIDTH + j, mask=j < WIDTH, other=0.0)
            b = tl.load(OF_ROWS + (2 * line + 1) * WIDTH + j, mask=j < WIDTH, other=0.0)
            top, others = _join(top, others, a, b)
        tl.store(OFFERED + j, top, mask=j < WIDTH)
        tl.store(OFFERED + WIDTH + j, others, mask=j < WIDTH)


@triton.jit
def ask(
    LOGS, ASKED, TOTALS, STATE, OF_ROWS, OFFERED, ROWS, first, last, rows,
    LOOK: tl.constexpr, MASKED: tl.constexpr, WIDTH: tl.constexpr, CHUNKS: tl.constexpr,
    BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """What targets make of the answers and ask in turn; their share of the value.

    And, if to ``LOOK``, by how much at most they and outputs differ on the probability of a pair,
    and whether a target is strained. OFFERED has the largest that was asked of each output, and the
    sum of all others. A thread keeps to its outputs: these are put together in the end.
    """
    value = tl.zeros([BLOCK_L, BLOCK_E], tl.float32)
    apart, strain = value, value
    once = tl.arange(0, BLOCK_E)[None, :] == 0  # for what a row has one of
    tops, rests, shares, prices = _known(STATE, WIDTH, CHUNKS, BLOCK_L, BLOCK_E)
    most, less = _nothing(CHUNKS, BLOCK_L, BLOCK_E), _nothing(CHUNKS, BLOCK_L, BLOCK_E)
    for i0 in range(0, rows, BLOCK_L):
        row = i0 + tl.arange(0, BLOCK_L)
        totals = TOTALS + _place(i0, 0, BLOCK_E, BLOCK_L, BLOCK_E)
        before = tl.load(totals)
        weights, terms, top, others = _weigh(
            LOGS, ASKED, tops, rests, shares, prices, i0, before,
            WIDTH, CHUNKS, BLOCK_L, BLOCK_E,
        )  # fmt: skip
        total = tl.maximum(top + others, LEAST)
        log = tl.log2(total)[:, None]
        rest = tl.maximum(others, total * LEAST)  # of the largest; every other term has more
        tl.store(totals, before - log)
        if LOOK:
            share = _inverse(total)
            there = valid(ROWS, first + row, last, MASKED)[:, None]
            lost = _log_beside(top, rest, share)[:, None]
            value += tl.where(there & once, lost + log - before, 0.0)
            strain = tl.maximum(strain, _strain(total[:, None], before - log, there))
        more, lesser = (), ()
        taken = tl.zeros([BLOCK_L, BLOCK_E], tl.float32)
        for k in tl.static_range(CHUNKS):
            at = _place(i0, k, WIDTH, BLOCK_L, BLOCK_E)
            if LOOK:
                by_output = tl.load(ASKED + at) * shares[k]
                by_target = terms[k] * share[:, None]
                apart = tl.maximum(apart, tl.abs(by_target - by_output))
                taken = _any_of(taken, by_target)
            asked = weights[k] * _inverse(rest[:, None] + (top[:, None] - terms[k]))
            tl.store(ASKED + at, asked)
            a, b = _join(most[k], less[k], asked, 0.0)
            more, lesser = more + (a,), lesser + (b,)
        most, less = more, lesser
        if LOOK:
            value += _log_of_none(taken)
    if CHUNKS == 1:  # then a tile may have hundreds of rows: too many to go through them here
        j = tl.arange(0, BLOCK_E)
        a, b = tl.reduce((most[0], less[0]), 0, _join)
        tl.store(OFFERED + j, a)
        tl.store(OFFERED + WIDTH + j, b)
    else:
        _offer(OFFERED, OF_ROWS, most, less, WIDTH, CHUNKS, BLOCK_L, BLOCK_E, BLOCK_C)
    return tl.sum(tl.sum(value, 1), 0), tl.max(tl.max(apart, 1), 0), tl.max(tl.max(strain, 1), 0)


@triton.jit
def answer(
    OFFERED, STATE, ODDS, COLUMNS, N, unused, look,
    MASKED: tl.constexpr, PRESENCE: tl.constexpr, PROGRAMS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_C: tl.constexpr,
):  # fmt: skip
    """The STATE of outputs by what the targets of all programs ask.

    Gives, in rounds with a ``look``, their share of the value, and whether one is strained.
    """
    value = tl.zeros([BLOCK_C], tl.float32)
    strain = value
    for j0 in range(0, N, BLOCK_C):
        j = j0 + tl.arange(0, BLOCK_C)
        there = valid(COLUMNS, j, N, MASKED)
        odds = tl.zeros([BLOCK_C], tl.float32)
        if PRESENCE:
            odds = tl.load(ODDS + j, mask=there, other=0.0) * LOG2_E
        price = tl.load(STATE + 3 * WIDTH + j, mask=j < N, other=0.0)
        left_over = tl.where(there, unused - odds, 0.0) + price
        top = tl.exp2(tl.minimum(left_over, MOST_AT_ONCE))
        others = top * 0.0
        for p in tl.static_range(PROGRAMS):
            most = tl.load(OFFERED + 2 * p * WIDTH + j, mask=j < N, other=0.0)
            rest = tl.load(OFFERED + (2 * p + 1) * WIDTH + j, mask=j < N, other=0.0)
            top, others = _join(top, others, most, rest)
        total = tl.maximum(top + others, LEAST)
        share, new_price = _inverse(total), price - tl.log2(total)
        tl.store(STATE + j, top, mask=j < N)
        tl.store(STATE + WIDTH + j, tl.maximum(others * share, LEAST), mask=j < N)
        tl.store(STATE + 2 * WIDTH + j, share, mask=j < N)
        tl.store(STATE + 3 * WIDTH + j, new_price, mask=j < N)
        if look:
            value += tl.where(there, odds - new_price, 0.0)
            held_back = tl.where(left_over > MOST_AT_ONCE, 0.0, total)
            strain = tl.maximum(strain, _strain(held_back, new_price, there))
    by_columns, of_columns = 0.0, 0.0
    if look:  # threads wait for each other to add up
        by_columns, of_columns = tl.sum(value, 0), tl.max(strain, 0)
    return by_columns, of_columns


@triton.jit
def beliefs(
    LOGS, ASKED, PAIRS, ANSWERS, TOTALS, STATE, ROWS, COLUMNS, first, last, end, rows, N, left,
    MASKED: tl.constexpr, WIDTH: tl.constexpr, CHUNKS: tl.constexpr,
    BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """The probabilities of PAIRS, and the logarithms of ANSWERS, of all targets up to the end.

    If the set is ``left`` to others, answers are 0.
    """
    tops, rests, shares, prices = _known(STATE, WIDTH, CHUNKS, BLOCK_L, BLOCK_E)
    for i0 in range(0, rows, BLOCK_L):
        row = i0 + tl.arange(0, BLOCK_L)
        total = tl.load(TOTALS + _place(i0, 0, BLOCK_E, BLOCK_L, BLOCK_E))
        _, terms, top, others = _weigh(
            LOGS, ASKED, tops, rests, shares, prices, i0, total,
            WIDTH, CHUNKS, BLOCK_L, BLOCK_E,
        )  # fmt: skip
        share = 1.0 / tl.maximum(top + others, TINY)
        i_ok = valid(ROWS, first + row, last, MASKED)
        for k in tl.static_range(CHUNKS):
            j = k * BLOCK_E + tl.arange(0, BLOCK_E)
            asked = tl.load(ASKED + _place(i0, k, WIDTH, BLOCK_L, BLOCK_E))
            free = _free(asked, tops[k], rests[k], shares[k])
            message = (prices[k] - tl.log2(free)) * LN_2
            ok = i_ok[:, None] & valid(COLUMNS, j, N, MASKED)[None, :]
            at = (first + row)[:, None] * N + j[None, :]
            there = (first + row < end)[:, None] & (j < N)[None, :]
            tl.store(ANSWERS + at, tl.where(ok & (left == 0), message, 0.0), mask=there)
            tl.store(PAIRS + at, tl.where(ok, terms[k] * share[:, None], 0.0), mask=there)
