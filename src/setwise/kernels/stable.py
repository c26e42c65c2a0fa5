"""Stable matchings for a batch of sets.

Legend: B sets, M targets, N outputs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from setwise.kernels.assignment import UNMATCHED
from setwise.kernels.transforms import is_eager


def stable_matching(costs: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The output of each target [B, M] so that no two would both rather have each other.

    ``costs`` is [B, M, N]; only valid targets, by ``rows`` [B, M], and outputs, by ``columns``
    [B, N], take part. Both sides rank by the same costs, of equal ones the first, so some pairs are
    each other's first choice: they are part of every stable matching, and what is left is the same
    problem again. That is what the proposals of Gale and Shapley (1962) end in, without a proposal.
    """
    B, M, N = costs.shape
    device = costs.device
    open_pairs = rows.unsqueeze(2) & columns.unsqueeze(1)
    costs = costs.clamp(max=torch.finfo(costs.dtype).max)  # to be told from pairs that are closed
    costs = torch.where(open_pairs, costs, math.inf)
    matching = torch.full((B, M), UNMATCHED, device=device)
    targets, outputs = torch.arange(M, device=device), torch.arange(N, device=device)
    looks = device.type == "cpu" and is_eager()  # whether anything is left
    for _ in range(min(M, N)):  # one pair of each set is found at least
        least, output = costs.min(dim=2)
        target = costs.min(dim=1).indices
        matched = (target.gather(1, output) == targets) & (least != math.inf)
        if looks and not matched.any():
            break
        taken = (output.gather(1, target) == outputs) & matched.gather(1, target)
        matching = torch.where(matched, output, matching)
        costs = costs.masked_fill(matched.unsqueeze(2) | taken.unsqueeze(1), math.inf)
    return matching
