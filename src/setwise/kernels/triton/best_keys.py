"""The best key of each query.

A number beside every maximum costs more than the maximum: a comparison and two choices for each
pair. So where a program keeps a maximum for each slot of a tile, only the largest score of a few
neighbours is compared, which lie in the registers of one thread, and what is kept is where their
tile begins. Which of them it was is asked in the end, of the one group of each query that has won.
"""

from __future__ import annotations

import triton
import triton.language as tl

# In a group, which `better` halves twice.
NEIGHBOURS = tl.constexpr(4)
NOWHERE = tl.constexpr(2**31 - 1)


@triton.jit
def top_and_first(s, j):
    """The best score of each query, and the first of keys j that has it.

    Both are [rows, any], or j is [1, any]. NaN is the best of all, so that it is seen.
    """
    s = _nan_as_largest(s)
    top = tl.max(s, 1)
    return top, tl.min(tl.where(s == top[:, None], j, NOWHERE), 1)


@triton.jit
def no_best(ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """What `better` begins with: for each group of a tile the best score, and the tile it is in."""
    best = tl.full([ROWS, COLUMNS // NEIGHBOURS], float("-inf"), tl.float32)
    return best, tl.zeros([ROWS, COLUMNS // NEIGHBOURS], tl.int32)


@triton.jit
def better(best, tile, s, j0, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """With the scores of one more tile, whose first key is j0."""
    even, odd = tl.split(tl.reshape(s, [ROWS, COLUMNS // 2, 2]))
    twos = tl.maximum(even, odd, propagate_nan=tl.PropagateNan.ALL)
    even, odd = tl.split(tl.reshape(twos, [ROWS, COLUMNS // NEIGHBOURS, 2]))
    top = _nan_as_largest(tl.maximum(even, odd, propagate_nan=tl.PropagateNan.ALL))
    more = top > best
    return tl.where(more, top, best), tl.where(more, j0, tile)


@triton.jit
def winners(best, tile, COLUMNS: tl.constexpr):
    """The keys of the first group that has the best score of each query, [rows, NEIGHBOURS].

    The last of them may be beyond the last key.
    """
    begins = tile + tl.arange(0, COLUMNS // NEIGHBOURS)[None, :] * NEIGHBOURS
    _, first = top_and_first(best, begins)
    return first[:, None] + tl.arange(0, NEIGHBOURS)[None, :]


@triton.jit
def first_of_best(s, j, N):
    """Of the `winners` j, by their scores."""
    _, first = top_and_first(s, j)
    # Beyond the last key an infinite query makes NaN, too.
    return tl.minimum(first, N - 1)


@triton.jit
def _nan_as_largest(s):
    return tl.where(s != s, float("inf"), s)
