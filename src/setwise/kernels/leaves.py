"""Points in blocks of neighbours, and which of these blocks matter to each other.

Legend: n points of D features in X blocks of S; Y blocks of R on the other side; G blocks at once,
each beside K others. What is computed of these is in `tiles`.

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

from setwise.kernels.centred import NEAR_BITS, CentredTile, small_blocks
from setwise.kernels.tiles import Rooms, Tile

# Points of a block, about: the fewest, until there are so many blocks; then more, up to the most.
# In smaller blocks fewer pairs are computed in vain, and of larger ones there are fewer.
FEWEST, BLOCKS, MOST = 16, 512, 64
# So many pairs are looked at together: of blocks, for memory's sake; and of points, for the sake of
# the cache, but enough to be worth several threads.
BLOCKS_AT_ONCE = 2**22
POINTS_AT_ONCE = 2**20
# From so many blocks nearby it is known how large a sum is at least.
NEAR = 2


class Leaves(NamedTuple):
    """Points in blocks, with the box of each; boxes are of what is admissible alone."""

    order: Tensor  # [X, S], which points these are
    own: Tensor  # [X, S], whether this is its own place; elsewhere it only fills up a block
    points: Tensor  # [X, S, D]
    bias: Tensor  # [X, S], -inf of what is not admissible, nor at its own place
    low: Tensor  # [X, D]
    high: Tensor  # [X, D]

    @classmethod
    def of(cls, order: Tensor, points: Tensor, bias: Tensor) -> Leaves:
        """Points [n, D] with a bias [n], in the blocks [X, S] of `tree_order`.

        A block of fewer than S has one of its points several times, and one of none any point.
        """
        own = order < len(points)
        order = order.where(own, order.amin(dim=1, keepdim=True)).clamp(max=len(points) - 1)
        points, bias = points[order], bias[order].masked_fill(~own, -math.inf)
        left_out = (bias == -math.inf).unsqueeze(-1)
        low = points.masked_fill(left_out, math.inf).amin(dim=1)
        high = points.masked_fill(left_out, -math.inf).amax(dim=1)
        return cls(order, own, points, bias, low, high)

    def fill(self, values: Tensor, result: Tensor) -> None:
        """Give each of the n points its own of the values [X, S, ...]: result [n, ...]."""
        result[self.order[self.own]] = values[self.own]


class Visit(NamedTuple):
    """Blocks, or of one a part, and beside each the others that matter to it; Y is none."""

    rows: Tensor  # [G]
    part: slice  # of their S points
    columns: Tensor  # [G, K]
    by_products: bool = False  # of matrices, where these are precise enough: see `centred`


def blocks_shape(n: int) -> tuple[int, int]:
    """The number of blocks of n points, and of points of a block: X, S."""
    most = min(max(FEWEST, n // BLOCKS), MOST)
    X = 1 << max(0, math.ceil(math.log2(n / most)))
    return X, math.ceil(n / X)


def tree_order(points: Tensor, units: Tensor) -> Tensor:
    """The order of points [n, D] that has neighbours together, [X, S]; units [D] of distances.

    From n on, a number is of no point; these are where the last one is.
    """
    (n, D), (X, S) = points.shape, blocks_shape(len(points))
    limit = torch.finfo(points.dtype).max / 2  # so that no difference overflows
    points = (points * units).clamp(-limit, limit)
    columns = np.pad(points.T.numpy(), ((0, 0), (0, X * S - n)), mode="edge")
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


class Pairs:
    """Scores ``bias_j - sum_f c_f (x_if - y_jf)^2`` of points in blocks x and y."""

    def __init__(self, x: Leaves, y: Leaves, sharpness: Tensor) -> None:
        self.x, self.y = x, y
        self.sharpness: list[float] = sharpness.tolist()
        # Block Y, of none, is beside those that have fewer others than the rest. Points that do not
        # count may be anywhere: at 0 no difference from them overflows.
        self._bias = torch.cat([y.bias, torch.full_like(y.bias[:1], -math.inf)])
        points = torch.cat([y.points, y.points[:1]]).permute(2, 0, 1)
        self._points = points.masked_fill(self._bias == -math.inf, 0.0)
        self._rooms = Rooms(x.points)
        self._middles = x.points.mean(dim=1, keepdim=True)

    def tile(self, visit: Visit) -> Tile:
        """Of the points x of a visit [G, _], and those beside them [G, K R].

        All tiles are in the same memory, so each is done with when the next is made.
        """
        G = len(visit.rows)
        x = self.x.points[visit.rows, visit.part]
        y = self._points.index_select(1, visit.columns.flatten()).view(x.shape[2], G, -1)
        bias = self._bias[visit.columns].view(G, -1)
        given = x, y, bias, self.sharpness, self._rooms
        return CentredTile(*given, self._middles[visit.rows]) if visit.by_products else Tile(*given)

    def visits(
        self, least: Tensor, slack: float, share: float, near: Tensor | None = None
    ) -> Iterator[Visit] | None:
        """All that may have a score within ``slack`` of the ``least`` [X] of the largest of its x.

        None if these are more than that share of all pairs. To a block of no points none matter.
        Scores of blocks that are ``near`` [X] are from products of matrices.
        """
        X, Y = len(self.x.points), len(self.y.points)
        enough, most, matter = [], share * X * Y, None
        parts = self._runs()
        for rows in parts:
            known = least[rows]
            # All terms of a score have one sign, so it is rounded as its sum is, not as they are.
            rounding = 8 * torch.finfo(known.dtype).eps * (known.abs() + slack)
            enough.append((known - slack - rounding).unsqueeze(1))
            matter = self._matter(rows, enough[-1])
            most -= int(matter.sum())
            if most < 0:
                return None

        if near is None:
            near = torch.zeros_like(least, dtype=torch.bool)

        def walk() -> Iterator[Visit]:
            """What matters to whom is found again, unless it is known of all: it takes memory."""
            for rows, bound in zip(parts, enough, strict=True):
                known = matter if len(parts) == 1 else None
                found = self._matter(rows, bound) if known is None else known
                seen = found.any(dim=1)
                for by_products, some in ((False, seen & ~near[rows]), (True, seen & near[rows])):
                    if some.any():
                        yield from self._taken_together(rows[some], found[some], by_products)

        return walk()

    def near(self, least: Tensor) -> Tensor:
        """For which blocks [X] products are precise enough, by the ``least`` logsumexp of each."""
        y, c = self._points.permute(1, 2, 0), least.new_tensor(self.sharpness)
        return small_blocks(self.x.points, self._middles, y, c) & (least >= -NEAR_BITS)

    def reach(self) -> Tensor:
        """A score of each point x, so that the largest is no less, [X, S].

        It is that of the nearest in some blocks nearby.
        """
        units = self.x.low.new_tensor(self.sharpness).sqrt()
        x, y = ((side.low + side.high) * units for side in (self.x, self.y))  # twice the middle
        K, every = min(NEAR, len(y)), slice(None)
        reach = torch.empty_like(self.x.bias)
        at_once = max(1, POINTS_AT_ONCE // (reach[0].numel() * self.y.bias[0].numel() * K))
        for rows in self._runs():
            # By products, which are faster, those far from the origin are as near as any.
            apart = torch.cdist(x[rows], y, compute_mode="donot_use_mm_for_euclid_dist")
            near = apart.topk(K, largest=False).indices  # NaN, of no points, is the largest
            for some, columns in zip(rows.split(at_once), near.split(at_once), strict=True):
                reach[some] = self.tile(Visit(some, every, columns)).scores().amax(dim=-1)
        return reach

    def _runs(self) -> list[Tensor]:
        """All blocks x, in so few runs that something can be known of each pair of blocks."""
        X = len(self.x.points)
        runs = min(X, math.ceil(X * len(self.y.points) / BLOCKS_AT_ONCE))
        every = torch.arange(X, device=self.x.points.device)
        return [every[first::runs] for first in range(runs)]

    def _taken_together(self, rows: Tensor, matter: Tensor, by_products: bool) -> Iterator[Visit]:
        """Blocks [G] to which of all blocks [G, Y] about as many matter."""
        S, (Y, R) = self.x.points.shape[1], self.y.bias.shape
        counts, by = matter.sum(dim=1).sort(stable=True)
        rows, lengths = rows[by], counts.tolist()
        columns = torch.cat([matter[by].nonzero()[:, 1], rows.new_full((lengths[-1],), Y)])
        first = (counts.cumsum(0) - counts).unsqueeze(1)
        start = 0
        while start < len(rows):
            end = start + 1
            while end < len(rows) and (end - start + 1) * S * R * lengths[end] <= POINTS_AT_ONCE:
                end += 1
            some, places = slice(start, end), torch.arange(lengths[end - 1], device=rows.device)
            beside = columns[first[some] + places]
            beside.masked_fill_(places >= counts[some, None], Y)
            step = max(1, POINTS_AT_ONCE // (beside.numel() * R))
            for part in range(0, S, step):
                yield Visit(rows[some], slice(part, part + step), beside, by_products)
            start = end

    def _matter(self, rows: Tensor, enough: Tensor) -> Tensor:
        """Which of all blocks may have a score of so much [G, 1]: [G, Y]."""
        return (self._most(rows) >= enough) & self.x.own[rows].any(dim=1, keepdim=True)

    def _most(self, rows: Tensor) -> Tensor:
        """What no score of blocks x [G] with each block y is above, [G, Y]."""
        most = self.y.bias.amax(dim=1).repeat(len(rows), 1)
        for f, c in enumerate(self.sharpness):
            gap = self.y.low[:, f] - self.x.high[rows, f, None]
            below = self.x.low[rows, f, None] - self.y.high[:, f]
            torch.maximum(gap, below, out=gap).clamp_(min=0.0)
            most.addcmul_(gap, gap, value=-c)
        return most
