"""Scores of small blocks of points from products of coordinates relative to their middles.

Legend: G blocks, each of S points x of D features beside L points y.

One product of matrices gives all scores, where differences take six passes over all pairs of three
features (see `tiles`). But such a score is rounded as the largest of its terms is, not as it is
itself. So this is for blocks that are small beside the scale of their Gaussians, and near to points
beside them: there a weight is off by less than 96 times what a number near 1 is when it is rounded.
What weighs on points is from differences, which add nothing to that: of points that nearly meet,
products would leave no digit. Where something weighs on x, which is pulled to all sides, so are all
weights, but for the logsumexp that they are relative to.
"""

from __future__ import annotations

import torch
from torch import Tensor

from setwise.kernels.matmul_precision import rounds_on_cpu
from setwise.kernels.tiles import Rooms, Tile

# How far a point x may be from the middle of its block, as a score in bits, and how far below the
# highest bias its logsumexp may be. The terms of pairs that matter are four times that at most.
NEAR_BITS = 24.0
# How far points may be from the origin, as a score in bits, so that nothing overflows.
FARTHEST = 2.0**80
# What the largest of all logsumexps, in bits, is at least: all are off by some millionths of a bit.
LITTLE = 1.0


def small_blocks(x: Tensor, middles: Tensor, y: Tensor, sharpness: Tensor) -> Tensor:
    """Which blocks [X] of points x [X, S, D] are near to their middles [X, 1, D].

    None if points y [..., D] are too far away, or if PyTorch rounds what it multiplies.
    """
    small = ((x - middles).square() @ sharpness).amax(dim=1) <= NEAR_BITS
    small &= (x.square() @ sharpness).amax(dim=1) <= FARTHEST
    return small & ((y.square() @ sharpness).amax() <= FARTHEST) & (not rounds_on_cpu())


class CentredTile(Tile):
    """Points x [G, S, D], beside y [D, G, L] with a bias [G, L]; middles of blocks [G, 1, D]."""

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        bias: Tensor,
        sharpness: list[float],
        rooms: Rooms,
        middles: Tensor,
    ) -> None:
        super().__init__(x, y, bias, sharpness, rooms)
        self._middles = middles

    def below(self, level: Tensor) -> Tensor:
        D, c = len(self._sharpness), self._x.new_tensor(self._sharpness)
        x = self._x - self._middles
        of_x = -(x.square() @ c) - level
        terms = torch.stack([*(2 * c * x).unbind(-1), torch.ones_like(level), of_x], dim=-1)
        # By these all x are multiplied: y, what a score has of y alone, and 1.
        factors = self._bias.new_empty(len(x), D + 2, self._bias.shape[1])
        y = torch.sub(self._y.transpose(0, 1), self._middles.mT, out=factors[:, :D])
        of_y = factors[:, D].copy_(self._bias)
        for f, sharpness in enumerate(self._sharpness):
            of_y.addcmul_(y[:, f], y[:, f], value=-sharpness)
        factors[:, D + 1] = 1.0
        return torch.bmm(terms, factors, out=self._rooms.scores(self._shape))

    def relative(self, reach: Tensor) -> tuple[Tensor, Tensor]:
        """Relative to the reach. That is near to 0, which no score is above: none overflows."""
        return reach, self.below(reach)
