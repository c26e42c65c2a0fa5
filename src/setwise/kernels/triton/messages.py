"""A round of Bethe's messages, in two passes; see `setwise.kernels.bethe` for what they say.

A line, a target or an output, weighs its elements, what it meets, and tells each of them what the
others weigh. Numbers are logarithms to base 2. Between rounds there is what targets have asked, and
what each output weighs; answers are worked out anew from these wherever they are wanted.

Legend: L lines and E elements of a tile. In the first pass targets are the lines, in the second
outputs, so that a thread keeps to its own of them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.rounds import NEVER, place_of, valid
from setwise.kernels.triton.weights import LN_2, LOG2_E


@triton.jit
def add_logs(x, y):
    """``log2(2^x + 2^y)``"""
    return tl.maximum(x, y) + tl.log2(1.0 + tl.exp2(-tl.abs(x - y)))


@triton.jit
def _softplus(x):
    """``log2(1 + 2^x)``"""
    return tl.maximum(x, 0.0) + tl.log2(1.0 + tl.exp2(-tl.abs(x)))


@triton.jit
def log_expm1(x):
    """``log2(2^x - 1)`` of numbers from 0 on, finite at 0."""
    x = tl.maximum(x, 1e-37)
    y = tl.minimum(x, 0.1) * LN_2
    near = y * (1.0 - y / 2 * (1.0 - y / 3 * (1.0 - y / 4 * (1.0 - y / 5))))
    return x + tl.log2(tl.where(x < 0.1, near, 1.0 - tl.exp2(-x)))


@triton.jit
def _log_of_rest(x):
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
    """How much less than everything the others weigh, for each element of a line."""
    largest = v > second
    # The share of any but the largest is at most a half: nothing is lost in 1 - share.
    lost = _log_of_rest(tl.where(largest, 0.0, tl.exp2(v - everything)))
    return tl.where(largest, others - everything, lost)


@triton.jit
def _probability(log_odds):
    return 1.0 / (1.0 + tl.exp2(tl.minimum(-log_odds, 126.0)))


@triton.jit
def _weigh(top, second, total, v):
    """One more element of each line: the largest, the second, and the sum of all but the largest.

    The sum is relative to the second.
    """
    lesser = tl.minimum(top, v)
    ratio = tl.exp2(-tl.abs(lesser - second))
    total = tl.where(lesser > second, total * ratio + 1.0, total + ratio)
    return tl.maximum(top, v), tl.maximum(second, lesser), total


@triton.jit
def _of_line(top, second, total):
    """The same of lines whose elements were weighed at the places of a tile [L, E]."""
    largest, where = tl.max(top, 1, return_indices=True)
    top = tl.where(tl.arange(0, top.shape[1])[None, :] == where[:, None], NEVER, top)
    next_to_it = tl.max(tl.maximum(top, second), 1)
    total = total * tl.exp2(second - next_to_it[:, None]) + tl.exp2(top - next_to_it[:, None])
    return largest, next_to_it, tl.sum(total, 1)


@triton.jit
def outputs_of(
    OUTPUTS, ODDS, j, j_ok, N, PRESENCE: tl.constexpr, SHARED: tl.constexpr
):  # fmt: skip
    """What outputs weigh, see `setwise.kernels.triton.bethe`: all, all but the largest, the second.

    And what any number of their targets do, and their odds.
    """
    everything = tl.load(OUTPUTS + j, mask=j_ok, other=0.0)
    others = tl.load(OUTPUTS + N + j, mask=j_ok, other=0.0)
    second = tl.load(OUTPUTS + 2 * N + j, mask=j_ok, other=0.0)
    several, odds = everything * 0.0, everything * 0.0
    if SHARED:
        several = tl.load(OUTPUTS + 3 * N + j, mask=j_ok, other=0.0)
    if PRESENCE:
        odds = tl.load(ODDS + j, mask=j_ok, other=0.0) * LOG2_E
    return everything, others, second, several, odds


@triton.jit
def _answer(
    asked, ok, everything, others, second, several, odds, lone, some, limit, SHARED: tl.constexpr
):  # fmt: skip
    """From what targets ask to answers of outputs.

    ``lone`` and ``some`` are the logarithms of exclusivity and of what it lacks.
    """
    not_mine = _lost(asked, everything, others, second) + everything
    message = -not_mine
    if SHARED:
        rest = several - tl.where(ok, _softplus(asked), 0.0)
        mine = add_logs(lone, some + rest)
        not_mine = add_logs(not_mine + odds + lone, odds + some + log_expm1(rest))
        message = odds + mine - not_mine
    return tl.minimum(tl.maximum(message, -limit), limit)


@triton.jit
def weigh_targets(
    SCORES, ASKED, TARGETS, OUTPUTS, ODDS, ROWS, COLUMNS, first, last, M, N, begun, lone, some,
    limit,
    MASKED: tl.constexpr, PRESENCE: tl.constexpr, SHARED: tl.constexpr,
    BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """What targets from the ``first`` on weigh, by answers to what they asked; the sum over them.

    Before anything has ``begun`` all answers are 0. TARGETS has what OUTPUTS have.
    """
    value = tl.zeros([BLOCK_L], tl.float32)
    for i0 in range(first, last, BLOCK_L):
        i = i0 + tl.arange(0, BLOCK_L)
        i_ok = valid(ROWS, i, last, MASKED)
        second = tl.full([BLOCK_L, BLOCK_E], NEVER, tl.float32)
        top, total = second, second * 0.0
        for j0 in range(0, N, BLOCK_E):
            j = j0 + tl.arange(0, BLOCK_E)
            j_ok = valid(COLUMNS, j, N, MASKED)
            at, ok = place_of(i, j, N, True), i_ok[:, None] & j_ok[None, :]
            v = tl.load(SCORES + at, mask=ok, other=0.0) * LOG2_E
            if begun:
                a, o, s, several, odds = outputs_of(OUTPUTS, ODDS, j, j_ok, N, PRESENCE, SHARED)
                asked = tl.load(ASKED + at, mask=ok, other=0.0)
                v += _answer(
                    asked, ok, a[None, :], o[None, :], s[None, :], several[None, :], odds[None, :],
                    lone, some, limit, SHARED,
                )  # fmt: skip
            top, second, total = _weigh(top, second, total, tl.where(ok, v, float("-inf")))
        largest, next_to_it, rest = _of_line(top, second, total)
        others = next_to_it + tl.log2(rest)
        everything = add_logs(largest, others)
        tl.store(TARGETS + i, everything, mask=i_ok)
        tl.store(TARGETS + M + i, others, mask=i_ok)
        tl.store(TARGETS + 2 * M + i, next_to_it, mask=i_ok)
        # With an output that is valid.
        value += tl.where(i_ok & (everything > 0.5 * NEVER), everything, 0.0)
    return tl.sum(value, 0)


@triton.jit
def ask(
    SCORES, ASKED, TARGETS, OUTPUTS, SHARES, ODDS, ROWS, COLUMNS, first, last, M, N, begun, look,
    lone, some, limit,
    MASKED: tl.constexpr, PRESENCE: tl.constexpr, SHARED: tl.constexpr,
    BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """What targets from the ``first`` on ask; what that weighs for outputs, as a share of theirs.

    Pairs' part of the value. And, if to ``look``, by how much at most probabilities by what was
    asked before differ from those by what is asked now.
    """
    value = tl.zeros([BLOCK_L, BLOCK_E], tl.float32)
    apart = tl.zeros([BLOCK_L, BLOCK_E], tl.float32)
    for j0 in range(0, N, BLOCK_L):
        j = j0 + tl.arange(0, BLOCK_L)
        j_ok = valid(COLUMNS, j, N, MASKED)
        a, o, s, several, odds = outputs_of(OUTPUTS, ODDS, j, j_ok & begun, N, PRESENCE, SHARED)
        second = tl.full([BLOCK_L, BLOCK_E], NEVER, tl.float32)
        top, total, softly = second, second * 0.0, second * 0.0
        for i0 in range(first, last, BLOCK_E):
            i = i0 + tl.arange(0, BLOCK_E)
            i_ok = valid(ROWS, i, last, MASKED)
            everything = tl.load(TARGETS + i, mask=i_ok, other=0.0)
            others = tl.load(TARGETS + M + i, mask=i_ok, other=0.0)
            next_to_it = tl.load(TARGETS + 2 * M + i, mask=i_ok, other=0.0)
            at, ok = place_of(j, i, N, False), j_ok[:, None] & i_ok[None, :]
            score = tl.load(SCORES + at, mask=ok, other=0.0) * LOG2_E
            before, message = score * 0.0, score * 0.0
            if begun:
                before = tl.load(ASKED + at, mask=ok, other=0.0)
                message = _answer(
                    before, ok, a[:, None], o[:, None], s[:, None], several[:, None],
                    odds[:, None], lone, some, limit, SHARED,
                )  # fmt: skip
            v = tl.where(ok, score + message, float("-inf"))
            lost = _lost(v, everything[None, :], others[None, :], next_to_it[None, :])
            score -= everything[None, :]
            lost = tl.maximum(lost, score - limit)
            asked = tl.maximum(score - lost, -limit)
            tl.store(ASKED + at, asked, mask=ok)
            value += tl.where(ok & (everything > 0.5 * NEVER)[None, :], lost, 0.0)
            if look:
                change = _probability(before + message) - _probability(asked + message)
                apart = tl.maximum(apart, tl.where(ok, tl.abs(change), 0.0))
            if SHARED:
                softly += tl.where(ok, _softplus(asked), 0.0)
            top, second, total = _weigh(top, second, total, tl.where(ok, asked, float("-inf")))
        largest, next_of_all, rest = _of_line(top, second, total)
        tl.store(SHARES + j, largest, mask=j < N)
        tl.store(SHARES + N + j, next_of_all, mask=j < N)
        tl.store(SHARES + 2 * N + j, rest, mask=j < N)
        if SHARED:
            tl.store(SHARES + 3 * N + j, tl.sum(softly, 1), mask=j < N)
    return tl.sum(tl.sum(value, 1), 0), tl.max(tl.max(apart, 1), 0)


@triton.jit
def beliefs(
    SCORES, ASKED, ANSWERS, TARGETS, OUTPUTS, ODDS, ROWS, COLUMNS, first, last, N, lone, some,
    limit,
    MASKED: tl.constexpr, PRESENCE: tl.constexpr, SHARED: tl.constexpr,
    BLOCK_L: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """The probabilities of pairs, in the place of what was asked; answers in natural logarithms."""
    for i0 in range(first, last, BLOCK_L):
        i = i0 + tl.arange(0, BLOCK_L)
        i_ok = valid(ROWS, i, last, MASKED)
        everything = tl.load(TARGETS + i, mask=i_ok, other=0.0)
        for j0 in range(0, N, BLOCK_E):
            j = j0 + tl.arange(0, BLOCK_E)
            j_ok = valid(COLUMNS, j, N, MASKED)
            at, ok = place_of(i, j, N, True), i_ok[:, None] & j_ok[None, :]
            a, o, s, several, odds = outputs_of(OUTPUTS, ODDS, j, j_ok, N, PRESENCE, SHARED)
            message = _answer(
                tl.load(ASKED + at, mask=ok, other=0.0), ok, a[None, :], o[None, :], s[None, :],
                several[None, :], odds[None, :], lone, some, limit, SHARED,
            )  # fmt: skip
            v = tl.load(SCORES + at, mask=ok, other=0.0) * LOG2_E + message
            v = tl.where(ok, v, float("-inf"))
            there = (i < last)[:, None] & (j < N)[None, :]
            tl.store(ASKED + at, tl.exp2(v - everything[:, None]), mask=there)
            tl.store(ANSWERS + at, tl.where(ok, message * LN_2, 0.0), mask=there)
