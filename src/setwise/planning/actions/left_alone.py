"""Which elements a step leaves alone, by what is measured of them before and after.

Legend: S sets, T steps, N and M elements, F numbers of an element, w of one of its features, E
elements of all sets.
"""

from __future__ import annotations

import torch
from torch import Tensor

from setwise.features import Family, Features
from setwise.losses import assign

_SHAKING = 0.25  # the share of pairs that differ by shaking alone, and by little of that
_ALONE = 6.0  # times this difference: what differs by less was left alone


def filled(sets: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """Sets [S, N, F] with an element of theirs wherever there is none, and where there is one."""
    if valid is None:
        return sets, torch.ones(sets.shape[:2], dtype=torch.bool)
    return torch.where(valid.unsqueeze(-1), sets, sets[valid][0]), valid


def matched_pairs(
    before: Tensor, after: Tensor, features: Features, there: Tensor, again: Tensor
) -> Tensor:
    """Elements [n, 2] that are taken for the same before and after, each set matched as a whole.

    The first number counts the elements of all sets before, the second those of all sets after,
    from where the first left off. Every feature counts as much as another. Some pairs will be
    wrong, which those that shaking explains are not (see `left_alone`).
    """
    cost = before.new_zeros(len(before), before.shape[1], after.shape[1])
    both = there.unsqueeze(-1) & again.unsqueeze(-2)
    sides = zip(features.blocks, features.split(before), features.split(after), strict=True)
    for family, one, other in sides:
        distance = family.distance(one, other)
        if not bool(distance.any()):
            distance = family.differ(one, other, 0.0).to(before)
        cost += distance / distance[both].mean().clamp(min=torch.finfo(cost.dtype).tiny)
    matched = assign(cost, row_valid=there, column_valid=again)  # [T, N]
    step, element = (matched >= 0).nonzero(as_tuple=True)
    number = before.shape[0] * before.shape[1] + step * after.shape[1] + matched[step, element]
    return torch.stack([step * before.shape[1] + element, number], dim=-1)


def left_alone(family: Family, values: Tensor, pairs: Tensor) -> Tensor:
    """Those of the pairs [n, 2] of which the feature differs by no more than by shaking."""
    one, other = (family.statistic(values[side]) for side in pairs.unbind(-1))
    apart = (one - other).norm(dim=-1)
    return pairs[apart <= _ALONE * apart.quantile(_SHAKING)]
