"""Scores of blocks of points from products of coordinates relative to the middle of each block.

Legend: G blocks, each of S points x of D features beside L points y.

One product of matrices gives all scores, and another what weighs on the points: a third of the
passes over all pairs that differences take (see `tiles`). But a score is rounded as the largest of
its terms is, and so is what weighs on a point. So this is for blocks that are small beside the
scale of their Gaussians, and not far from the points beside them: what is rounded away there is
little beside the pulls of many neighbours. And of gradients only those to y are computed so: those
to x are from differences, powers and all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from setwise.kernels.tiles import Rooms, Tile

# How far a point may be from the middle of its block, as a score in bits, and how low the logsumexp
# of its own scores may be. Both are errors of a weight, in units of what a number near 1 loses.
WIDEST, DEEPEST = 24.0, 64.0
# And how far any point may be from the origin, as a score, so that nothing overflows.
FARTHEST = 2.0**80


def suit(x: Tensor, y: Tensor, sharpness: Tensor) -> Tensor:
    """Which blocks [X] of points x [X, S, D] are small enough, among points y [..., D]."""
    from_middle = x - x.mean(dim=1, keepdim=True)
    small = (from_middle.square() @ sharpness).amax(dim=1) <= WIDEST
    near = (x.square() @ sharpness).amax(dim=1) <= FARTHEST
    return small & near & ((y.square() @ sharpness).amax() <= FARTHEST)


class CentredTile(Tile):
    """Points x [G, S, D] beside y [D, G, L] with a bias [G, L]."""

    def __init__(
        self, x: Tensor, y: Tensor, bias: Tensor, sharpness: list[float], rooms: Rooms
    ) -> None:
        super().__init__(x, y, bias, sharpness, rooms)
        middle, D = x.mean(dim=1, keepdim=True), len(sharpness)
        self._from_middle = x - middle
        # By these all x are multiplied: y, what a score has of y alone, and 1.
        self._factors = rooms.factors((len(x), D + 2, y.shape[2]))
        self._keys = torch.sub(y.transpose(0, 1), middle.mT, out=self._factors[:, :D])
        of_y = self._factors[:, D].copy_(bias)
        for f, c in enumerate(sharpness):
            of_y.addcmul_(self._keys[:, f], self._keys[:, f], value=-c)
        self._factors[:, -1] = 1.0

    def below(self, level: Tensor) -> Tensor:
        x, c = self._from_middle, self._from_middle.new_tensor(self._sharpness)
        slopes, of_x = (2 * c * x).unbind(-1), -(x.square() @ c) - level
        terms = torch.stack([*slopes, torch.ones_like(level), of_x], dim=-1)
        return torch.bmm(terms, self._factors, out=self._rooms.scores(self._shape))

    def relative(self, reach: Tensor) -> tuple[Tensor, Tensor]:
        """Relative to the reach: no score is above 0, so none is above that by more than it is."""
        return reach, self.below(reach)

    def pulls(
        self, p: Tensor, incoming: Tensor, need_x: bool = True
    ) -> tuple[Tensor | None, Tensor]:
        assert not need_x  # of pulls that nearly cancel, errors of the weights would leave less
        weighed = torch.cat([self._from_middle, torch.ones_like(incoming).unsqueeze(-1)], dim=-1)
        of_y = torch.bmm((weighed * incoming.unsqueeze(-1)).mT, p)
        of_y[:, :-1].addcmul_(self._keys, of_y[:, -1:], value=-1)
        return None, of_y
