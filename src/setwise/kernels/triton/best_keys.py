"""The best key of each query, found by groups of neighbours.

A number beside every maximum costs more than the maximum: a comparison and two choices for each
pair. So of a few neighbours, which lie in the registers of one thread, only the largest score is
compared, and what is kept is where their tile began. Which of them it was is asked in the end, of
the one group of each query that has won.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Neighbours in a group.
NEIGHBOURS = tl.constexpr(4)
NOWHERE = tl.constexpr(2**31 - 1)


@triton.jit
def no_best(ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """What `better` begins with: for each group of a tile the best score and its tile."""
    best = tl.full([ROWS, COLUMNS // NEIGHBOURS], float("-inf"), tl.float32)
    return best, tl.zeros([ROWS, COLUMNS // NEIGHBOURS], tl.int32)


@triton.jit
def better(best, where, s, j0, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """With the scores of one more tile, whose first key is j0; NaN wins, so that it is seen."""
    even, odd = tl.split(tl.reshape(s, [ROWS, COLUMNS // 2, 2]))
    twos = tl.maximum(even, odd, propagate_nan=tl.PropagateNan.ALL)
    even, odd = tl.split(tl.reshape(twos, [ROWS, COLUMNS // NEIGHBOURS, 2]))
    top = _nan_as_largest(tl.maximum(even, odd, propagate_nan=tl.PropagateNan.ALL))
    more = top > best
    return tl.where(more, top, best), tl.where(more, j0, where)


@triton.jit
def winners(best, where, COLUMNS: tl.constexpr):
    """The keys of the first group that has the best score of each query, [rows, NEIGHBOURS]."""
    top = tl.max(best, 1)
    begins = where + tl.arange(0, COLUMNS // NEIGHBOURS)[None, :] * NEIGHBOURS
    first = tl.min(tl.where(best == top[:, None], begins, NOWHERE), 1)
    return first[:, None] + tl.arange(0, NEIGHBOURS)[None, :]


@triton.jit
def first_of_best(s, j):
    """That of keys j [rows, NEIGHBOURS] with the best of their scores, the first of equals."""
    s = _nan_as_largest(s)
    top = tl.max(s, 1)
    return tl.min(tl.where(s == top[:, None], j, NOWHERE), 1)


@triton.jit
def _nan_as_largest(s):
    return tl.where(s != s, float("inf"), s)


@triton.jit
def as_columns(c):
    """What belongs to columns, beside what belongs to rows; that of pairs as it is."""
    if len(c.shape) == 1:
        return c[None, :]
    else:
        return c
