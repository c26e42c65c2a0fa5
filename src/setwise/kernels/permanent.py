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
from collections.abc import Callable, Sequence
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


class Arithmetic(NamedTuple):
    """How weights are written, and so how they are multiplied and added up."""

    one: float
    times: Callable[[Tensor, Tensor], Tensor]  # which may overwrite the first
    over: Callable[[Tensor, Tensor], Tensor]
    total: Callable[[list[Tensor]], Tensor]  # of all [subsets, any, B] -> [subsets, B]
    chances: Callable[[Tensor, Tensor], Tensor]  # the total times a share [lines, B], as numbers


LOGARITHMS = Arithmetic(
    one=0.0,
    times=torch.add,
    over=torch.sub,
    total=lambda parts: torch.cat(parts, dim=1).logsumexp(1),
    chances=lambda terms, share: (terms + share.unsqueeze(1)).exp().sum(1),
)


def log_permanent_and_marginals(
    scores: Tensor, rows: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor]:
    """Both, of sets that are worked on together, by operations that have derivatives."""
    value, padded, ways = sum_over_subsets(scores, rows, columns)
    found = probabilities(padded, ways, LOGARITHMS)[:, :, : scores.shape[2]]
    return value, torch.where(_pairs(rows, columns), found, 0.0)


class Sum(NamedTuple):
    """What the way from the first output to the last leaves behind."""

    value: Tensor  # [B]
    padded: tuple[Tensor, ...]  # the scores of each output [M, B]
    ways: list[dict[int, Tensor]]  # after each output, by size: [subsets, B]


def sum_over_subsets(scores: Tensor, rows: Tensor, columns: Tensor) -> Sum:
    """Value, and what `probabilities` takes."""
    M, N = scores.shape[1:]
    padded = torch.where(_pairs(rows, columns), scores, NEVER)
    padded = functional.pad(padded, (0, max(M, N) - N), value=NEVER)
    outputs = by_output(torch.where(rows.unsqueeze(-1), padded, 0.0))
    ways = all_ways(outputs, LOGARITHMS)
    value = without_missing(ways[-1][M].squeeze(0), rows, len(outputs))
    return Sum(value, outputs, ways)


def by_output(padded: Tensor) -> tuple[Tensor, ...]:
    """[B, M, size] -> [M, B] each: sets come last, so that a step reads and writes long rows."""
    return padded.permute(2, 1, 0).contiguous().unbind(0)


def all_ways(
    outputs: Sequence[Tensor], numbers: Arithmetic, left: Sequence[Tensor] | None = None
) -> list[dict[int, Tensor]]:
    """The weights of all subsets after each output, by size: [subsets, B].

    There are as many outputs as targets at least, each with the weights of its pairs [M, B], and of
    being ``left`` over [B] unless that is 1.
    """
    (M, B), size = outputs[0].shape, len(outputs)
    tables = levels(M, outputs[0].device)
    ways = [{0: outputs[0].new_full((1, B), numbers.one)}]
    for j, output in enumerate(outputs):
        last, now = ways[-1], {}
        for q in range(max(0, M - (size - 1 - j)), min(j + 1, M) + 1):
            parts = []
            if q in last:
                same = last[q] if left is None else numbers.times(last[q].clone(), left[j])
                parts.append(same.unsqueeze(1))
            if q - 1 in last:
                before, gone = tables[q].before, tables[q].gone
                parts.append(numbers.times(_rows(last[q - 1], before), _rows(output, gone)))
            now[q] = numbers.total(parts)
        ways.append(now)
    return ways


def probabilities(
    outputs: Sequence[Tensor],
    ways: list[dict[int, Tensor]],
    numbers: Arithmetic,
    left: Sequence[Tensor] | None = None,
) -> Tensor:
    """Those of pairs [B, M, outputs], by the same from the other end; see `all_ways`."""
    M = len(outputs[0])
    tables, total = levels(M, outputs[0].device), ways[-1][M]
    rest = {M: torch.full_like(total, numbers.one)}
    found: list[Tensor] = []
    for j in reversed(range(len(outputs))):
        output = outputs[j]
        share, pairs = numbers.over(output, total), torch.zeros_like(output)
        earlier: dict[int, Tensor] = {}
        for q, known in ways[j].items():
            parts = []
            if q in rest:
                same = rest[q] if left is None else numbers.times(rest[q].clone(), left[j])
                parts.append(same.unsqueeze(1))
            if q + 1 in rest:
                level, above = tables[q], rest[q + 1]
                parts.append(numbers.times(_rows(above, level.after), _rows(output, level.new)))
                both = numbers.times(_rows(known, level.without), _rows(above, level.joined))
                pairs = pairs + numbers.chances(both, share)
            earlier[q] = numbers.total(parts)
        rest = earlier
        found.append(pairs)
    return torch.stack(found[::-1]).permute(2, 1, 0)


def without_missing(total: Tensor, rows: Tensor, size: int) -> Tensor:
    """The log of the sum [B], less that of the orders in which targets that are not valid come.

    They take any of the outputs that are left of so many.
    """
    left = (size - rows.sum(dim=-1)).to(total.dtype)
    orders = torch.lgamma(left + 1) - math.lgamma(size - rows.shape[1] + 1)
    return torch.where(rows.any(dim=-1), total - orders, 0.0)  # of nothing it is exactly that


def _rows(table: Tensor, places: Tensor) -> Tensor:
    """``table[places]``, which takes twice as long."""
    return table.index_select(0, places.flatten()).view(*places.shape, -1)


def _pairs(rows: Tensor, columns: Tensor) -> Tensor:
    return rows.unsqueeze(-1) & columns.unsqueeze(-2)
