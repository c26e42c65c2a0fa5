"""Scores of blocks of points with those beside them, and what weighs on both.

Legend: G blocks, each of S points x of D features beside L points y.

A score is ``bias_j - sum_f c_f (x_if - y_jf)^2``. Of differences, taken feature by feature, it is
precise wherever the points are, at a dozen passes over all pairs for scores and gradients. Of
products it takes one for each, but is rounded as the largest of its terms is. So it is taken where
all of them are small: if the points of a block are near its middle, in units of ``1 / sqrt(c_f)``,
and those that matter to it are not far away, nor brought near by their bias.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from setwise.kernels.matmul_precision import rounds_on_cpu

# How far from the middle of a narrow block its corners may be: the square, in those units.
NARROW = 64.0
# And how far from 0 the scores that matter to it: so the points beside it that do are not much
# farther from the middle either, and no term of these scores is more than a few hundreds.
MODERATE = 32.0


def are_narrow(low: Tensor, high: Tensor, sharpness: Tensor, farthest: Tensor) -> Tensor:
    """Which boxes [X, D] of points x are, [X]; no coordinate of y is beyond the farthest [D].

    None if one is so far away that its square overflows: products may then be no numbers.
    """
    if rounds_on_cpu() or not (8 * sharpness * farthest.square()).sum().isfinite():
        return torch.zeros_like(low[:, 0], dtype=torch.bool)
    return ((high - low).square() * (sharpness / 4)).sum(dim=1) <= NARROW


def are_moderate(least: Tensor, highest: Tensor) -> Tensor:
    """Of which blocks the scores that matter are, [X].

    The largest of each point is no less than the ``least`` [X], and no bias is above the highest.
    """
    return (least >= -MODERATE) & (highest <= MODERATE)


class Rooms:
    """Memory for tiles, used again by each."""

    def __init__(self, like: Tensor) -> None:
        self._rooms = [like.new_empty(0) for _ in range(2)]

    def __call__(self, which: int, shape: tuple[int, ...]) -> Tensor:
        size = math.prod(shape)
        if self._rooms[which].numel() < size:
            self._rooms[which] = self._rooms[which].new_empty(size)
        return self._rooms[which][:size].view(shape)


class Tile:
    """Points x [G, S, D] beside ``others``: y [D, G, L], ones [1, G, L] and the bias [1, G, L].

    By differences.
    """

    def __init__(self, x: Tensor, others: Tensor, sharpness: list[float], rooms: Rooms) -> None:
        self.x, self.others, self._sharpness, self._rooms = x, others, sharpness, rooms
        self._shape = (*x.shape[:2], others.shape[2])

    def scores(self, level: Tensor | None = None) -> Tensor:
        """Relative to a level [G, S], if there is one: [G, S, L], in memory that is used again."""
        total, sums = self._rooms(0, self._shape), self.x.new_zeros(())
        for f, c in enumerate(self._sharpness):
            apart = self._apart(f)
            torch.addcmul(sums, apart, apart, value=-c, out=total)
            sums = total
        total += self.others[-1].unsqueeze(1)  # last, as it may be large
        return total if level is None else total.sub_(level.unsqueeze(-1))

    def pulls(
        self, p: Tensor, incoming: Tensor, need_x: bool = True
    ) -> tuple[Tensor | None, Tensor]:
        """What weighs on the points x [G, S, D], if needed, and on y [G, D + 1, L].

        With ``w_ij = incoming_i p_ij`` these are::

            sum_j w_ij (y_j - x_i)        sum_i w_ij (x_i - y_j), sum_i w_ij
        """
        w, of_x, of_y = p.mul_(incoming.unsqueeze(-1)), [], []
        for f in range(len(self._sharpness)):
            pulls = self._apart(f).mul_(w)
            of_y.append(pulls.sum(dim=1))
            if need_x:
                of_x.append(-pulls.sum(dim=2))
        of_y.append(w.sum(dim=1))
        return torch.stack(of_x, dim=2) if need_x else None, torch.stack(of_y, dim=1)

    def squares(self, p: Tensor, incoming: Tensor) -> Tensor:
        """``sum_ij w_ij (x_if - y_jf)^2``, shape [D]."""
        w = p.mul_(incoming.unsqueeze(-1))
        sums = [self._apart(f).square_().mul_(w).sum() for f in range(len(self._sharpness))]
        return torch.stack(sums)

    def _apart(self, feature: int) -> Tensor:
        """``x_if - y_jf``, in memory that is used again."""
        own, others = self.x[:, :, feature, None], self.others[feature].unsqueeze(1)
        return torch.sub(own, others, out=self._rooms(1, self._shape))


class NarrowTile(Tile):
    """By products of coordinates that are relative to the middle of a block.

    What it is given of the others is changed: it is as large as a row of the scores.
    """

    def __init__(self, x: Tensor, others: Tensor, sharpness: list[float], rooms: Rooms) -> None:
        middle = ((x.amin(dim=1) + x.amax(dim=1)) / 2).unsqueeze(1)
        others[:-2] -= middle.permute(2, 0, 1)
        for y, c in zip(others[:-2], sharpness, strict=True):
            others[-1].addcmul_(y, y, value=-c)
        super().__init__(x - middle, others, sharpness, rooms)

    def scores(self, level: Tensor | None = None) -> Tensor:
        c = self.x.new_tensor(self._sharpness)
        own = (self.x.square() * -c).sum(dim=2, keepdim=True)
        if level is not None:
            own -= level.unsqueeze(-1)
        left = torch.cat([self.x * (2 * c), own, torch.ones_like(own)], dim=2)
        return torch.bmm(left, self.others.transpose(0, 1), out=self._rooms(0, self._shape))

    def pulls(
        self, p: Tensor, incoming: Tensor, need_x: bool = True
    ) -> tuple[Tensor | None, Tensor]:
        # Of what is all around a point x little may be left.
        if need_x:
            return super().pulls(p, incoming)
        w, y = incoming.unsqueeze(-1), self.others[:-2]
        of_y = torch.bmm(torch.cat([self.x * w, w], dim=2).mT, p)
        of_y[:, :-1].addcmul_(y.transpose(0, 1), of_y[:, -1:], value=-1)
        return None, of_y
