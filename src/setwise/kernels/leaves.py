"""Points in blocks of neighbours, and which of these blocks matter to each other.

Legend: n points of D features in X blocks of S; Y blocks of R on the other side; G blocks at once,
each beside K others.

The blocks are the leaves of a k-d tree that is cut into halves all the way down. So all of them
have as many points, and what is done with one can be done with many at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

# Points of a block, about: the fewest, until there are so many blocks; then more, up to the most.
# In smaller blocks fewer pairs are computed in vain, and of larger ones there are fewer.
FEWEST, BLOCKS, MOST = 16, 512, 64
# So many pairs are looked at together: of blocks, for memory's sake; and of points, for the sake of
# the cache, but enough to be worth several threads.
BLOCKS_AT_ONCE = 2**22
POINTS_AT_ONCE = 2**19
# From so many blocks nearby it is known how large a sum is at least.
NEAR = 2


class Leaves(NamedTuple):
    """Points in blocks, with the box of each; boxes are of what is admissible alone."""

    order: Tensor  # [X, S], which points these are; from n on, the last one once more
    points: Tensor  # [X, S, D]
    bias: Tensor  # [X, S], -inf of what is not admissible
    low: Tensor  # [X, D]
    high: Tensor  # [X, D]

    @classmethod
    def of(cls, order: Tensor, points: Tensor, bias: Tensor) -> Leaves:
        """Points [n, D] with a bias [n], in the blocks [X, S] of `tree_order`."""
        n = len(points)
        points, bias = (placed_in(order, values) for values in (points, bias))
        left_out = (bias == -math.inf).unsqueeze(-1)
        low = points.masked_fill(left_out, math.inf).amin(dim=1)
        high = points.masked_fill(left_out, -math.inf).amax(dim=1)
        return cls(order, points, bias.masked_fill(order >= n, -math.inf), low, high)

    def fill(self, values: Tensor, result: Tensor) -> None:
        """Give each of the n points its own of the values [X, S, ...]: result [n, ...]."""
        own = self.order < len(result)
        result[self.order[own]] = values[own]


class Visit(NamedTuple):
    """Blocks, or of one a part, and beside each the others that matter to it; -1 is none."""

    rows: Tensor  # [G]
    part: slice  # of their S points
    columns: Tensor  # [G, K]


def blocks_shape(n: int) -> tuple[int, int]:
    """The number of blocks of n points, and of points of a block: X, S."""
    most = min(max(FEWEST, n // BLOCKS), MOST)
    X = 1 << max(0, math.ceil(math.log2(n / most)))
    return X, math.ceil(n / X)


def tree_order(points: Tensor, units: Tensor) -> Tensor:
    """The order of points [n, D] that has neighbours together, [X, S]; units [D] of distances."""
    (n, D), (X, S) = points.shape, blocks_shape(len(points))
    columns = np.pad((points * units).T.numpy(), ((0, 0), (0, X * S - n)), mode="edge")
    order = np.arange(X * S)
    nodes = 1
    while nodes < X:
        grouped = columns.reshape(D, nodes, -1)
        widest = (grouped.max(axis=2) - grouped.min(axis=2)).argmax(axis=0)
        along = grouped[widest, np.arange(nodes)]
        width = along.shape[1]
        halves = along.argpartition(width // 2, axis=1) + width * np.arange(nodes)[:, None]
        columns, order = columns.take(halves.ravel(), axis=1), order[halves.ravel()]
        nodes *= 2
    return torch.from_numpy(order).view(X, S)


def placed_in(order: Tensor, values: Tensor) -> Tensor:
    """What n points have, [n, ...], in blocks [X, S, ...]."""
    return values[order.clamp(max=len(values) - 1)]


class Pairs:
    """Scores ``bias_j - sum_f c_f (x_if - y_jf)^2`` of points in blocks x and y.

    `scores` and `apart` each have memory of their own for a tile, and use it again at every call.
    """

    def __init__(self, x: Leaves, y: Leaves, sharpness: Tensor) -> None:
        self.x, self.y = x, y
        self.sharpness: list[float] = sharpness.tolist()
        # The block -1 has no points that count.
        self._points = torch.cat([y.points, torch.zeros_like(y.points[:1])]).mT.contiguous()
        self._bias = torch.cat([y.bias, torch.full_like(y.bias[:1], -math.inf)])
        self._rooms = [x.points.new_empty(0) for _ in range(2)]

    def beside(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Points [G, D, K R] and bias [G, K R] of the blocks y [G, K]."""
        return self._points[columns].transpose(1, 2).flatten(2), self._bias[columns].flatten(1)

    def scores(self, points: Tensor, beside: Tensor, bias: Tensor) -> Tensor:
        """Of points x [G, _, D] with those `beside`: [G, _, K R]."""
        total = self._room(0, points, beside)
        sums = bias.unsqueeze(1)
        for f, c in enumerate(self.sharpness):
            apart = self.apart(points, beside, f)
            torch.addcmul(sums, apart, apart, value=-c, out=total)
            sums = total
        return total

    def apart(self, points: Tensor, beside: Tensor, feature: int) -> Tensor:
        """``x_if - y_jf`` of the same, [G, _, K R]."""
        own, others = points[:, :, feature, None], beside[:, feature, None]
        return torch.sub(own, others, out=self._room(1, points, beside))

    def _room(self, which: int, points: Tensor, beside: Tensor) -> Tensor:
        shape = (*points.shape[:2], beside.shape[2])
        size = math.prod(shape)
        if self._rooms[which].numel() < size:
            self._rooms[which] = points.new_empty(size)
        return self._rooms[which][:size].view(shape)

    def visits(self, least: Tensor | None, slack: float, share: float) -> Iterator[Visit] | None:
        """All that may have a score within ``slack`` of the ``least`` [X] of the largest of its x.

        Where that is not known, a bound of it is found. None if these are more than that share of
        all pairs.
        """
        X, Y = len(self.x.points), len(self.y.points)
        runs = min(X, math.ceil(X * Y / BLOCKS_AT_ONCE))
        every = torch.arange(X, device=self.x.points.device)
        parts = [every[first::runs] for first in range(runs)]
        enough, most, matter = [], share * X * Y, None
        for rows in parts:
            known = self._least(rows) if least is None else least[rows]
            rounding = 8 * torch.finfo(known.dtype).eps * (known.abs() + slack)
            enough.append((known - slack - rounding).unsqueeze(1))
            matter = self._most(rows) >= enough[-1]
            most -= int(matter.sum())
            if most < 0:
                return None

        def walk() -> Iterator[Visit]:
            """What matters to whom is found again, unless it is known of all: it takes memory."""
            for rows, bound in zip(parts, enough, strict=True):
                known = matter if runs == 1 else None
                yield from self._taken_together(
                    rows, self._most(rows) >= bound if known is None else known
                )

        return walk()

    def _taken_together(self, rows: Tensor, matter: Tensor) -> Iterator[Visit]:
        """Blocks [G] to which of all blocks [G, Y] about as many matter."""
        S, R = self.x.points.shape[1], self.y.points.shape[1]
        counts, by = matter.sum(dim=1).sort(stable=True)
        rows, lengths = rows[by], counts.tolist()
        columns = matter[by].nonzero()[:, 1].split(lengths)
        start = 0
        while start < len(rows):
            end = start + 1
            while end < len(rows) and (end - start + 1) * S * R * lengths[end] <= POINTS_AT_ONCE:
                end += 1
            beside = torch.nn.utils.rnn.pad_sequence(
                columns[start:end], batch_first=True, padding_value=-1
            )
            step = max(1, POINTS_AT_ONCE // ((end - start) * R * lengths[end - 1]))
            for first in range(0, S, step):
                yield Visit(rows[start:end], slice(first, first + step), beside)
            start = end

    def _most(self, rows: Tensor) -> Tensor:
        """What no score of blocks x [G] with each block y is above, [G, Y]."""
        most = self.y.bias.amax(dim=1).repeat(len(rows), 1)
        for f, c in enumerate(self.sharpness):
            gap = self.y.low[:, f] - self.x.high[rows, f, None]
            below = self.x.low[rows, f, None] - self.y.high[:, f]
            torch.maximum(gap, below, out=gap).clamp_(min=0.0)
            most.addcmul_(gap, gap, value=-c)
        return most

    def _least(self, rows: Tensor) -> Tensor:
        """What the largest score of no point of blocks x [G] is below, [G]."""
        units = self.x.low.new_tensor(self.sharpness).sqrt()
        x, y = ((side.low + side.high) * units for side in (self.x, self.y))  # twice the middle
        apart = torch.cdist(x[rows], y).nan_to_num_(math.inf)  # of no points, inf - inf
        near = apart.topk(min(NEAR, len(y)), largest=False).indices
        at_once = max(1, POINTS_AT_ONCE // (self.x.bias[0].numel() * self.y.bias[0].numel() * NEAR))
        tops = [
            self.scores(self.x.points[some], *self.beside(columns)).amax(dim=-1).amin(dim=-1)
            for some, columns in zip(rows.split(at_once), near.split(at_once), strict=True)
        ]
        return torch.cat(tops)
