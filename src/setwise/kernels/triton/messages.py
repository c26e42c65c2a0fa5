"""One half of a round of Bethe's messages; see `setwise.kernels.bethe` for what they say.

A line, a target or an output, weighs its elements, what it meets, and tells each of them what the
others weigh. Numbers are logarithms to base 2.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.rounds import NEVER, STAGES, place_of, valid
from setwise.kernels.triton.weights import LN_2, LOG2_E


@triton.jit
def _add_logs(x, y):
    """``log2(2^x + 2^y)``"""
    return tl.maximum(x, y) + tl.log2(1.0 + tl.exp2(-tl.abs(x - y)))


@triton.jit
def _softplus(x):
    """``log2(1 + 2^x)``"""
    return tl.maximum(x, 0.0) + tl.log2(1.0 + tl.exp2(-tl.abs(x)))


@triton.jit
def _log_expm1(x):
    """``log2(2^x - 1)`` of numbers from 0 on, finite at 0."""
    x = tl.maximum(x, 1e-37)
    y = tl.minimum(x, 0.1) * LN_2
    near = y * (1.0 - y / 2 * (1.0 - y / 3 * (1.0 - y / 4 * (1.0 - y / 5))))
    return x + tl.log2(tl.where(x < 0.1, near, 1.0 - tl.exp2(-x)))


@triton.jit
def _tile(
    VALID, line, line_ok, e, elements, N, BY_ROWS: tl.constexpr, MASKED: tl.constexpr
):  # fmt: skip
    """Places of elements e of lines, and which of them are pairs."""
    e_ok = valid(VALID, e, elements, MASKED)
    return place_of(line, e, N, BY_ROWS), line_ok[:, None] & e_ok[None, :]


@triton.jit
def _asked(SCORES, MESSAGES, at, ok, BY_ROWS: tl.constexpr):
    """What the elements of a line weigh: a score and an answer, or what targets ask."""
    v = tl.load(MESSAGES + at, mask=ok, other=0.0)
    if BY_ROWS:
        v += tl.load(SCORES + at, mask=ok, other=0.0) * LOG2_E
    return tl.where(ok, v, float("-inf"))


@triton.jit
def weigh(
    SCORES, MESSAGES, VALID, line, line_ok, alone, elements, N,
    BY_ROWS: tl.constexpr, MASKED: tl.constexpr, SHARED: tl.constexpr,
    BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Of each line, with ``alone`` as one more element: all, all but the largest, the second.

    If SHARED also the weight of any number of its elements. Each place of a tile keeps the largest
    that it has seen, the second, and the sum of all but the largest, relative to the second; only
    in the end places are compared.
    """
    e = tl.arange(0, BLOCK_E)[None, :]
    second = tl.full([BLOCK_L, BLOCK_E], NEVER, tl.float32)
    top, total, several = tl.where(e == 0, alone[:, None], second), second * 0.0, second * 0.0
    for e0 in tl.range(0, elements, BLOCK_E, num_stages=STAGES):
        at, ok = _tile(
            VALID, line, line_ok, e0 + tl.arange(0, BLOCK_E), elements, N, BY_ROWS, MASKED
        )
        v = _asked(SCORES, MESSAGES, at, ok, BY_ROWS)
        lesser = tl.minimum(top, v)
        top = tl.maximum(top, v)
        ratio = tl.exp2(-tl.abs(lesser - second))
        total = tl.where(lesser > second, total * ratio + 1.0, total + ratio)
        second = tl.maximum(second, lesser)
        if SHARED:
            several += tl.where(ok, _softplus(v), 0.0)
    largest, where = tl.max(top, 1, return_indices=True)
    top = tl.where(e == where[:, None], NEVER, top)
    next_to_it = tl.max(tl.maximum(top, second), 1)
    total = total * tl.exp2(second - next_to_it[:, None]) + tl.exp2(top - next_to_it[:, None])
    others = next_to_it + tl.log2(tl.sum(total, 1))
    everything = largest + tl.log2(1.0 + tl.exp2(others - largest))
    return everything, others, next_to_it, tl.sum(several, 1)


@triton.jit
def log_of_rest(x):
    """``log2(1 - x)`` of numbers from 0 to a half, to the last bits of float32.

    A polynomial: the logarithm itself takes thrice as long.
    """
    y = x * -2.56563932 + 3.69132888
    y = y * x - 2.960791
    y = y * x + 0.917863898
    y = y * x - 0.51092546
    y = y * x - 0.24981472
    y = y * x - 0.363811137
    y = y * x - 0.480770583
    y = y * x - 0.721349524
    y = y * x - 1.44269504
    return y * x


@triton.jit
def _lost(v, everything, others, second):
    """How much less than everything the others weigh, for each element: [L, E]."""
    share = tl.exp2(v - everything[:, None])
    largest = v > second[:, None]
    # The share of any but the largest is at most a half: nothing is lost in 1 - share.
    lost = log_of_rest(tl.where(largest, 0.0, share))
    return tl.where(largest, (others - everything)[:, None], lost)


@triton.jit
def ask(
    SCORES, ANSWERS, ASKED, ROWS, COLUMNS, first, last, N, limit,
    MASKED: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """From answers to what targets ask, from the ``first`` on; their share of the value."""
    value = tl.zeros([BLOCK_L, BLOCK_E], tl.float32)
    by_line = tl.zeros([BLOCK_L], tl.float32)
    alone = tl.full([BLOCK_L], NEVER, tl.float32)
    for i0 in range(first, last, BLOCK_L):
        i = i0 + tl.arange(0, BLOCK_L)
        i_ok = valid(ROWS, i, last, MASKED)
        everything, others, second, _ = weigh(
            SCORES, ANSWERS, COLUMNS, i, i_ok, alone, N, N, True, MASKED, False, BLOCK_L, BLOCK_E
        )
        there = i_ok & (everything > 0.5 * NEVER)  # with an output that is valid
        by_line += tl.where(there, everything, 0.0)
        for j0 in tl.range(0, N, BLOCK_E, num_stages=STAGES):
            at, ok = _tile(COLUMNS, i, i_ok, j0 + tl.arange(0, BLOCK_E), N, N, True, MASKED)
            s = tl.load(SCORES + at, mask=ok, other=0.0) * LOG2_E
            v = tl.where(ok, s + tl.load(ANSWERS + at, mask=ok, other=0.0), float("-inf"))
            s -= everything[:, None]
            lost = tl.maximum(_lost(v, everything, others, second), s - limit)
            value += tl.where(ok & there[:, None], lost, 0.0)
            tl.store(ASKED + at, tl.maximum(s - lost, -limit), mask=ok)
    return tl.sum(by_line + tl.sum(value, 1), 0)


@triton.jit
def answer(
    SCORES, ASKED, ANSWERS, ODDS, USED, ROWS, COLUMNS, first, last, M, N, unused, lone, some, limit,
    look, MASKED: tl.constexpr, PRESENCE: tl.constexpr, SHARED: tl.constexpr,
    BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """From what targets ask to answers of outputs; their share of the value.

    And, if to ``look``, by how much at most probabilities by the old answers differ from those by
    the new ones. ``lone`` and ``some`` are the logarithms of exclusivity and of what it lacks.
    """
    value = tl.zeros([BLOCK_L], tl.float32)
    apart = tl.zeros([BLOCK_L, BLOCK_E], tl.float32)
    for j0 in range(first, last, BLOCK_L):
        j = j0 + tl.arange(0, BLOCK_L)
        j_ok = valid(COLUMNS, j, last, MASKED)
        odds = tl.zeros([BLOCK_L], tl.float32)
        if PRESENCE:
            odds = tl.load(ODDS + j, mask=j_ok, other=0.0) * LOG2_E
        single = odds + lone
        everything, others, second, several = weigh(
            SCORES,
            ASKED,
            ROWS,
            j,
            j_ok,
            unused - single,
            M,
            N,
            False,
            MASKED,
            SHARED,
            BLOCK_L,
            BLOCK_E,
        )
        allowed = everything + single
        if SHARED:
            allowed = _add_logs(allowed, odds + some + _log_expm1(several))
            use = 1.0 - tl.exp2(tl.minimum(unused - allowed, 0.0))
            tl.store(USED + j, tl.where(j_ok, use, 0.0), mask=j < last)
        value += tl.where(j_ok & (allowed > 0.5 * NEVER), allowed, 0.0)
        for i0 in tl.range(0, M, BLOCK_E, num_stages=STAGES):
            at, ok = _tile(ROWS, j, j_ok, i0 + tl.arange(0, BLOCK_E), M, N, False, MASKED)
            v = _asked(SCORES, ASKED, at, ok, False)
            not_mine = _lost(v, everything, others, second) + everything[:, None]
            message = -not_mine
            if SHARED:
                rest = several[:, None] - tl.where(ok, _softplus(v), 0.0)
                mine = _add_logs(lone, some + rest)
                not_mine = _add_logs(
                    not_mine + single[:, None], odds[:, None] + some + _log_expm1(rest)
                )
                message = odds[:, None] + mine - not_mine
            message = tl.minimum(tl.maximum(message, -limit), limit)
            if look:
                before = tl.minimum(-v - tl.load(ANSWERS + at, mask=ok, other=0.0), 126.0)
                now = tl.minimum(-v - message, 126.0)
                change = 1.0 / (1.0 + tl.exp2(before)) - 1.0 / (1.0 + tl.exp2(now))
                apart = tl.maximum(apart, tl.where(ok, tl.abs(change), 0.0))
            tl.store(ANSWERS + at, message, mask=ok)
    return tl.sum(value, 0), tl.max(tl.max(apart, 1), 0)


@triton.jit
def beliefs(
    SCORES, ANSWERS, PAIRS, ROWS, COLUMNS, first, last, N,
    MASKED: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """The probabilities of pairs; answers become natural logarithms."""
    alone = tl.full([BLOCK_L], NEVER, tl.float32)
    for i0 in range(first, last, BLOCK_L):
        i = i0 + tl.arange(0, BLOCK_L)
        i_ok = valid(ROWS, i, last, MASKED)
        everything, _, _, _ = weigh(
            SCORES, ANSWERS, COLUMNS, i, i_ok, alone, N, N, True, MASKED, False, BLOCK_L, BLOCK_E
        )
        for j0 in range(0, N, BLOCK_E):
            j = j0 + tl.arange(0, BLOCK_E)
            at, ok = _tile(COLUMNS, i, i_ok, j, N, N, True, MASKED)
            v = _asked(SCORES, ANSWERS, at, ok, True)
            there = (i < last)[:, None] & (j < N)[None, :]
            tl.store(PAIRS + at, tl.exp2(v - everything[:, None]), mask=there)
            tl.store(ANSWERS + at, tl.load(ANSWERS + at, mask=there) * LN_2, mask=there)
