"""Scores of blocks of points with those beside them, and what weighs on both.

Legend: G blocks, each of S points x of D features beside L points y.

A score is ``bias_j - sum_f c_f (x_if - y_jf)^2``. Differences are taken feature by feature, so they
are precise wherever the points are, and however near each other. See `centred` for scores from
products of matrices, which take fewer passes over all pairs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Rooms:
    """Memory for what there is of all pairs of a tile; the next one is in the same."""

    def __init__(self, like: Tensor) -> None:
        self._scores = self._apart = like.new_empty(0)

    def scores(self, shape: tuple[int, ...]) -> Tensor:
        self._scores = _at_least(self._scores, math.prod(shape))
        return self._scores[: math.prod(shape)].view(shape)

    def apart(self, shape: tuple[int, ...]) -> Tensor:
        self._apart = _at_least(self._apart, math.prod(shape))
        return self._apart[: math.prod(shape)].view(shape)


def finite(level: Tensor) -> Tensor:
    """Where all scores of an x are too small for their type, nothing is relative to them."""
    return level.masked_fill(level == -math.inf, 0.0)


def _at_least(room: Tensor, size: int) -> Tensor:
    return room if room.numel() >= size else room.new_empty(size)


class Tile:
    """Points x [G, S, D] beside y [D, G, L] with a bias [G, L]."""

    def __init__(
        self, x: Tensor, y: Tensor, bias: Tensor, sharpness: list[float], rooms: Rooms
    ) -> None:
        self._x, self._y, self._bias, self._sharpness = x, y, bias, sharpness
        self._rooms, self._shape = rooms, (*x.shape[:2], bias.shape[1])

    def scores(self) -> Tensor:
        """[G, S, L], in memory that is used again."""
        total, sums = self._rooms.scores(self._shape), self._bias.unsqueeze(1)
        for f, c in enumerate(self._sharpness):
            apart = self._apart(f)
            torch.addcmul(sums, apart, apart, value=-c, out=total)
            sums = total
        return total

    def below(self, level: Tensor) -> Tensor:
        """The same less a level [G, S] of each x."""
        return self.scores().sub_(level.unsqueeze(-1))

    def relative(self, reach: Tensor) -> tuple[Tensor, Tensor]:
        """A level [G, S] that powers of two can be relative to, and scores less that.

        No more is asked of it than not to be far from the largest of each x, here it is that; and
        ``reach`` is not above.
        """
        scores = self.scores()
        level = finite(scores.amax(dim=-1))
        return level, scores.sub_(level.unsqueeze(-1))

    def pulls(
        self, p: Tensor, incoming: Tensor, need_x: bool = True
    ) -> tuple[Tensor | None, Tensor]:
        """What weighs on the points x [G, S, D], if needed, and on y [G, D + 1, L].

        With ``w_ij = incoming_i p_ij``, which p is then, these are::

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
        """``sum_ij w_ij (x_if - y_jf)^2``, shape [D]; p is w then."""
        w, sums = p.mul_(incoming.unsqueeze(-1)), []
        for f in range(len(self._sharpness)):
            # A square of what is far away may overflow, which is nothing to it if it has no weight.
            pulls = self._apart(f).mul_(w)
            sums.append(pulls.mul_(torch.sub(*self._sides(f))).sum())
        return torch.stack(sums)

    def _apart(self, feature: int) -> Tensor:
        """``x_if - y_jf``, in memory that is used again."""
        return torch.sub(*self._sides(feature), out=self._rooms.apart(self._shape))

    def _sides(self, feature: int) -> tuple[Tensor, Tensor]:
        return self._x[:, :, feature, None], self._y[feature].unsqueeze(1)
