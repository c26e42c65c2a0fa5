"""Small blocks of points beside others, by products of coordinates relative to their middles.

Legend: G blocks, each of S points x of D features beside L points y.

One product of matrices gives all scores, and one what weighs on y: a quarter of the passes over all
pairs that differences take (see `tiles`). But both are rounded as the largest of their terms is,
not as they are themselves. So scores are from products where blocks are small beside the scale of
their Gaussians, and near to points beside them: there a weight is off by less than 96 times what a
number near 1 is when it is rounded. And what weighs on y is computed anew from differences where
little is left of it. Where something weighs on x, all of the backward pass is from differences, but
for the logsumexp that weights are relative to.
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
# The least that one of all logsumexps, in bits, has to be apart from 0: all are off by millionths.
LITTLE = 1.0
# How many times the largest of what weighs on y its terms may be: it is off by millionths then.
MOST_CANCELLED = 24.0


def small_blocks(x: Tensor, middles: Tensor, y: Tensor, sharpness: Tensor) -> Tensor:
    """Which blocks [X] of points x [X, S, D] are near to their middles [X, 1, D].

    None if points y [..., D] are too far away, or if PyTorch rounds what it multiplies.
    """
    small = ((x - middles).square() @ sharpness).amax(dim=1) <= NEAR_BITS
    small &= (x.square() @ sharpness).amax(dim=1) <= FARTHEST
    return small & ((y.square() @ sharpness).amax() <= FARTHEST) & (not rounds_on_cpu())


def much_is_left(of_y: Tensor, sharpness: Tensor) -> bool:
    """Whether ``sum_i w_ij (x_i - y_j)``, by products, is no little part of the terms it is from.

    It is given with ``sum_i w_ij``, of one sign, [..., D + 1].
    """
    slopes, weights = sharpness * of_y[..., :-1].abs(), of_y[..., -1].abs()
    terms = (NEAR_BITS * sharpness).amax().sqrt() * weights.amax()
    return bool(terms <= MOST_CANCELLED * slopes.amax())


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
        D, self._c = len(sharpness), x.new_tensor(sharpness)
        self._from_middle = x - middles
        # By these all x are multiplied: y, what a score has of y alone, and 1.
        self._factors = y.new_empty(len(x), D + 2, y.shape[2])
        self._keys = torch.sub(y.transpose(0, 1), middles.mT, out=self._factors[:, :D])
        of_y = self._factors[:, D].copy_(bias)
        for f, c in enumerate(sharpness):
            of_y.addcmul_(self._keys[:, f], self._keys[:, f], value=-c)
        self._factors[:, D + 1] = 1.0

    def below(self, level: Tensor) -> Tensor:
        x = self._from_middle
        of_x = -(x.square() @ self._c) - level
        terms = [*(2 * self._c * x).unbind(-1), torch.ones_like(level), of_x]
        total = self._rooms.scores(self._shape)
        return torch.bmm(torch.stack(terms, dim=-1), self._factors, out=total)

    def relative(self, reach: Tensor) -> tuple[Tensor, Tensor]:
        """Relative to the reach. That is near to 0, which no score is above: none overflows."""
        return reach, self.below(reach)

    def pulls(
        self, p: Tensor, incoming: Tensor, need_x: bool = True
    ) -> tuple[Tensor | None, Tensor]:
        """As by differences if something weighs on x; else what weighs on y, by a product."""
        if need_x:
            return super().pulls(p, incoming)
        terms = torch.cat([self._from_middle, torch.ones_like(incoming).unsqueeze(-1)], dim=-1)
        of_y = torch.bmm((terms * incoming.unsqueeze(-1)).mT, p)
        of_y[:, :-1].addcmul_(self._keys, of_y[:, -1:], value=-1)
        return None, of_y
