"""The sum over all matchings, exactly: a sum over subsets in logarithms, with its marginals.

Legend: B sets, M targets, N outputs, M <= N here; q the size of a subset of the targets.

Outputs come one after the other. After j of them, ``ways`` holds for every subset of the targets
the logarithm of the summed weight of all ways to match just these with different outputs among the
j. The next output is matched with none of the targets or with one::

    ways_j(T) = log(exp ways_{j-1}(T) + sum_{i in T} exp(ways_{j-1}(T - i) + scores_ij))

All terms are positive: nothing cancels, as it does in the formulas of Ryser and Glynn. The same
from the other end, ``rest``, makes the probability of each pair a sum over subsets again, without
a graph. Only subsets that can still become all targets are kept: those of one size for each
output where N = M.

There are no masks inside: a target that is not valid fits every output with a score of 0, which
multiplies the sum by a number that is known.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

# The logarithm of nothing: below any sum of scores, and finite, so that no difference is NaN.
NEVER = -1e30

# Subsets of more targets fill the memory with their tables.
MOST_TARGETS = 18
# How many numbers the subsets of the sets that are worked on together may hold.
STORED = 2**24


class Level(NamedTuple):
    """Subsets of q targets, and where they lead; ``n`` there are, in some order."""

    before: Tensor  # [n, q] places in the level below, less one target
    gone: Tensor  # [n, q] which target
    after: Tensor  # [n, M - q] places in the level above, with one more
    new: Tensor  # [n, M - q] which target
    without: Tensor  # [M, C(M-1, q)] places of those that lack a target
    joined: Tensor  # [M, C(M-1, q)] places, in the level above, of the same with it


@lru_cache(maxsize=8)
def levels(M: int, device: torch.device) -> list[Level]:
    """The subsets of M targets by their size, from none to all."""
    subsets = np.arange(2**M)
    holds = (subsets[:, None] >> np.arange(M)) & 1 == 1
    size = holds.sum(1)
    place = np.empty(2**M, dtype=np.int64)
    for q in range(M + 1):
        place[size == q] = np.arange((size == q).sum())
    found = []
    for q in range(M + 1):
        own, inside = subsets[size == q], holds[size == q]
        gone, new = (np.nonzero(which)[1].reshape(len(own), -1) for which in (inside, ~inside))
        lacking = [own[~inside[:, i]] for i in range(M)]
        tables = (
            place[own[:, None] ^ (1 << gone)],
            gone,
            place[own[:, None] | (1 << new)],
            new,
            place[np.stack(lacking)],
            place[np.stack([each | (1 << i) for i, each in enumerate(lacking)])],
        )
        found.append(Level(*(torch.from_numpy(table).to(device) for table in tables)))
    return found


def log_permanent(
    scores: Tensor, rows: Tensor, columns: Tensor, record: bool
) -> tuple[Tensor, Tensor]:
    """The log of the summed weight of all matchings [B], and the probabilities of pairs [B, M, N].

    ``scores`` [B, M, N] is the log of the weight of a pair; every valid target, by ``rows`` [B, M],
    has a valid output, by ``columns`` [B, N], of its own. Of a set without any such matching
    neither means anything. Unless to ``record``, there are no probabilities.
    """
    _, M, N = scores.shape
    at_once = max(1, STORED // ((max(M, N) - M + 1) * 2**M))
    split = (t.split(at_once) for t in (scores, rows, columns))
    parts = [
        log_permanent_and_marginals(*part)
        if record
        else (sum_over_subsets(*part).value, part[0][:, :0])
        for part in zip(*split, strict=True)
    ]
    values, marginals = zip(*parts, strict=True)
    return torch.cat(values), torch.cat(marginals)


def log_permanent_and_marginals(
    scores: Tensor, rows: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor]:
    """Both, of sets that are worked on together, by operations that have derivatives."""
    _, M, N = scores.shape
    value, total, padded, ways = sum_over_subsets(scores, rows, columns)
    tables = levels(M, scores.device)
    rest = {M: torch.zeros_like(total).unsqueeze(0)}
    marginals: list[Tensor] = []
    for output, before in zip(reversed(padded), reversed(ways[:-1]), strict=True):
        pairs = torch.zeros_like(output)
        earlier: dict[int, Tensor] = {}
        for q, known in before.items():
            parts = [rest[q].unsqueeze(1)] if q in rest else []
            if q + 1 in rest:
                level, above = tables[q], rest[q + 1]
                parts.append(above[level.after] + output[level.new])
                both = known[level.without] + above[level.joined]
                pairs = pairs + (both + (output - total).unsqueeze(1)).exp().sum(1)
            earlier[q] = torch.cat(parts, dim=1).logsumexp(1)
        rest = earlier
        marginals.append(pairs)
    found = torch.stack(marginals[::-1]).permute(2, 1, 0)[:, :, :N]
    return value, torch.where(_pairs(rows, columns), found, 0.0)


class Sum(NamedTuple):
    """What the way from the first output to the last leaves behind."""

    value: Tensor  # [B]
    total: Tensor  # [B] the same with the targets that are not valid
    padded: tuple[Tensor, ...]  # the scores of each output [M, B]
    ways: list[dict[int, Tensor]]  # after each output, by size: [subsets, B]


def sum_over_subsets(scores: Tensor, rows: Tensor, columns: Tensor) -> Sum:
    """The sets come last here: then a step reads and writes long rows."""
    B, M, N = scores.shape
    size = max(M, N)
    padded = torch.where(_pairs(rows, columns), scores, NEVER)
    padded = functional.pad(padded, (0, size - N), value=NEVER)
    padded = torch.where(rows.unsqueeze(-1), padded, 0.0)
    outputs = padded.permute(2, 1, 0).contiguous().unbind(0)

    tables = levels(M, scores.device)
    ways = [{0: padded.new_zeros(1, B)}]
    for j, output in enumerate(outputs):
        last, now = ways[-1], {}
        for q in range(max(0, M - (size - 1 - j)), min(j + 1, M) + 1):
            parts = [last[q].unsqueeze(1)] if q in last else []
            if q - 1 in last:
                parts.append(last[q - 1][tables[q].before] + output[tables[q].gone])
            now[q] = torch.cat(parts, dim=1).logsumexp(1)
        ways.append(now)
    total = ways[-1][M].squeeze(0)
    # The targets that are not valid take, in any order, outputs that are left.
    left = (size - rows.sum(dim=-1)).to(total.dtype)
    orders = torch.lgamma(left + 1) - math.lgamma(size - M + 1)
    value = torch.where(rows.any(dim=-1), total - orders, 0.0)  # of nothing it is exactly that
    return Sum(value, total, outputs, ways)


def _pairs(rows: Tensor, columns: Tensor) -> Tensor:
    return rows.unsqueeze(-1) & columns.unsqueeze(-2)
