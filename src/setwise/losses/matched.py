"""Losses of one matching: what it is found by, and what it costs.

Legend: B sets, N outputs, M targets.
"""

from __future__ import annotations

import torch
from torch import Tensor

from setwise.arguments import Sets
from setwise.kernels.assignment import UNMATCHED, assign
from setwise.losses.assign import require_comparable
from setwise.losses.costs import finish, matched_costs, pairwise_costs, weighted
from setwise.losses.presence import Presence


def matching_costs(sets: Sets, presence: Presence | None) -> Tensor:
    """The cost of each pair [B, M, N], with its weight and what the output's existence gains."""
    costs = pairwise_costs(sets)
    if sets.weight is not None:
        costs = costs * sets.weight.unsqueeze(-1)
    return costs if presence is None else costs - presence.odds().unsqueeze(1)


def cheapest_matching(name: str, sets: Sets, costs: Tensor) -> Tensor:
    """The output of each target [B, M] by costs [B, M, N], or UNMATCHED; ``name`` is at fault."""
    require_comparable(name, costs, sets.target_valid, sets.output_valid)
    return assign(costs, sets.target_valid, sets.output_valid)


def finish_matched(
    sets: Sets, matching: Tensor, presence: Presence | None, reduction: str
) -> Tensor:
    """The loss under a matching [B, M]: the index of each target's output, or UNMATCHED.

    A set of which a target is left without an output costs infinity.
    """
    found, chosen = matching != UNMATCHED, matching.clamp(min=0)
    costs = weighted(sets, torch.where(found, matched_costs(sets, chosen), 0.0)).sum(dim=-1)
    if presence is not None:
        gains = torch.where(found, presence.odds().gather(1, chosen), 0.0)
        costs = costs + presence.all_absent(sets) - gains.sum(dim=-1)
    targets, _ = sets.masks()
    return finish(sets, costs, reduction, (targets & ~found).any(dim=-1))


def targets_given(target: Tensor, sets: Sets) -> int:
    """M, as it was given: classes may come without a dimension for features."""
    return target.shape[len(sets.lead)]
