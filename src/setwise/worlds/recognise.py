"""Which state of the Blocksworld a set of learned object vectors shows, and how well.

Legend: B sets, S states, N blocks and objects, F features, K = 2 N kinds of objects: each block in
each material, G spots: each block on each stack with certain blocks below; A numbers of a look, Q
coordinates of a place; ``*`` any leading dimensions.

An object vector says how a block looks (all features but choices among classes) and where it is
(choices, one for each edge of its box). Pictures of one and the same state differ, since camera and
lamps move a little. So a kind is known by all its pictures, and an object is as far from it as from
the nearest of them; a spot is known by the average of its boxes. Looks and places are added up in
units of what is usual among legal pictures.

How well an object is recognised is another question, as two pictures of one block may be further
apart than pictures of two blocks. Below 1, it looks more like the block that it is taken for than
like any other or nothing known, and lies within twice the largest deviation of any picture from its
spot.
"""

from __future__ import annotations

import torch
from torch import Tensor

from setwise.data.blocksworld import Blocksworld
from setwise.data.look_and_place import LookAndPlace
from setwise.features import Features

_NUMBERS_AT_ONCE = 2**24  # of costs or distances held in memory
_LEAST = 1e-6  # of what is divided by
_PROBES = 500  # pictures of each kind by which it is found what is usual
_USUAL = 0.99  # the share of them that is
# In these units: from here on an object looks like nothing known, or does not lie at a spot.
_STRANGE, _ELSEWHERE = 3.0, 2.0


class Recogniser:
    """Made from object vectors [S, N, F] of all states, in the order of their ranks."""

    def __init__(self, world: Blocksworld, vectors: Tensor, features: Features) -> None:
        expected = (world.number_of_states, world.blocks, features.width)
        if tuple(vectors.shape) != expected:
            raise ValueError(
                f"vectors: expected shape {list(expected)}, the blocks of every state of {world}, "
                f"got {tuple(vectors.shape)}"
            )
        self._parts = LookAndPlace(features)
        states = world.states()
        look, place = self._parts.look(vectors), self._parts.place(vectors)
        # Products of matrices give distances fast, and tell what is nearest near the origin alone.
        self._middle = look.mean((0, 1))
        look = look - self._middle
        self._kind = 2 * torch.arange(world.blocks) + states[..., 2]  # [S, N]
        self._looks = [look[self._kind == kind] for kind in range(2 * world.blocks)]
        self._look_unit = _usual_distance(self._looks)
        self._spot, self._places = _spots(states, place)
        # Boxes are rounded to a grid: what is less than a cell away is not elsewhere.
        self._place_unit = _rms(place - self._places[self._spot]).max().clamp(min=1)

    def nearest(self, objects: Tensor) -> tuple[Tensor, Tensor]:
        """The ranks [B] of the states nearest to sets [B, N, F], and doubts [B, N, 2].

        The distance of a state is the sum over its blocks, each paired with another object, in the
        pairing for which it is least. The doubts are those about each object in this pairing: 0 is
        none about how it looks and where it lies, from 1 on it may as well be something else. What
        holds anything but finite numbers, as a diverged network gives, is in infinite doubt.
        """
        finite = objects.isfinite().all(-1, keepdim=True)
        objects = objects.where(finite, 0.0)  # pairings need numbers
        size = self._kind.numel() * self._kind.shape[1]
        found = [self._nearest(part) for part in objects.split(max(1, _NUMBERS_AT_ONCE // size))]
        ranks, doubts = zip(*found, strict=True)
        return torch.cat(ranks), torch.cat(doubts).where(finite, torch.inf)

    def _nearest(self, objects: Tensor) -> tuple[Tensor, Tensor]:
        from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

        look, place = self._parts.look(objects), self._parts.place(objects)
        look = look - self._middle
        to_kind = torch.stack([_to_nearest(look, pictures) for pictures in self._looks], dim=-1)
        to_kind /= self._look_unit  # [B, N, K]
        to_spot = _rms(place.unsqueeze(-2) - self._places) / self._place_unit  # [B, N, G]
        costs = to_kind[..., self._kind] + to_spot[..., self._spot]  # [B, N, S, N]
        ranks = _least_sums(costs).argmin(-1)
        doubts = []
        for number, rank in enumerate(ranks.tolist()):
            _, block = linear_sum_assignment(costs[number, :, rank].numpy())
            which = torch.arange(len(block))
            looks = to_kind[number, which, self._kind[rank, block]]
            others = to_kind[number].unflatten(-1, (-1, 2)).amin(-1)  # [N, N], to each block
            others[which, block] = _STRANGE
            places = to_spot[number, which, self._spot[rank, block]]
            look = looks / others.amin(-1).clamp(min=_LEAST)
            doubts.append(torch.stack([look, places / _ELSEWHERE], dim=-1))
        return ranks, torch.stack(doubts)


def _usual_distance(looks: list[Tensor]) -> Tensor:
    """How far a picture usually is, at most, from the nearest other one of the same kind."""
    found = []
    for pictures in looks:
        step = max(1, len(pictures) // _PROBES)
        probes = torch.arange(0, len(pictures), step)
        apart = torch.cdist(pictures[probes], pictures) / pictures.shape[-1] ** 0.5
        apart[torch.arange(len(probes)), probes] = torch.inf
        found.append(apart.amin(-1))
    apart = torch.cat(found)
    return apart[apart.isfinite()].quantile(_USUAL).clamp(min=_LEAST)


def _to_nearest(looks: Tensor, pictures: Tensor) -> Tensor:
    """Root mean squared differences [*] of looks [*, A] from the nearest of pictures [n, A]."""
    flat = looks.flatten(0, -2)
    rows = max(1, _NUMBERS_AT_ONCE // len(pictures))
    nearest = [torch.cdist(part, pictures).argmin(-1) for part in flat.split(rows)]
    return _rms(looks - pictures[torch.cat(nearest)].view_as(looks))


def _spots(states: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """The spot [S, N] of every block, and the average [G, Q] of the places [S, N, Q] of each.

    How high a block lies depends on which blocks are below it, not on their order.
    """
    stack, level, _ = states.unbind(-1)
    block = torch.arange(states.shape[1])
    same_stack = stack.unsqueeze(-1) == stack.unsqueeze(-2)
    below = ((same_stack & (level.unsqueeze(-1) > level.unsqueeze(-2))) * 2**block).sum(-1)
    rows = torch.stack([block.expand_as(stack), stack, below], dim=-1).flatten(0, 1)
    distinct, which = rows.unique(dim=0, return_inverse=True)
    total = torch.zeros(len(distinct), place.shape[-1]).index_add_(0, which, place.flatten(0, 1))
    return which.reshape(stack.shape), total / torch.bincount(which).unsqueeze(-1)


def _rms(differences: Tensor) -> Tensor:
    return differences.square().mean(-1).sqrt()


def _least_sums(costs: Tensor) -> Tensor:
    """The least sum of costs [B, N, S, N] of N objects and N blocks over all pairings: [B, S].

    For every subset of the objects, the best way to pair it with the first blocks: N 2^(N - 1)
    additions, where trying all pairings would take N! N.
    """
    objects = costs.shape[1]
    best = {0: torch.zeros(costs.shape[0], costs.shape[2])}
    for block in range(objects):
        larger: dict[int, Tensor] = {}
        for subset, so_far in best.items():
            for one in range(objects):
                if subset >> one & 1:
                    continue
                total, key = so_far + costs[:, one, :, block], subset | 1 << one
                larger[key] = total if key not in larger else larger[key].minimum(total)
        best = larger
    return best[2**objects - 1]
