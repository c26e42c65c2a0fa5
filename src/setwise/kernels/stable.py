"""Stable matchings for a batch of sets.

Legend: B sets, M targets, N outputs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from setwise.kernels.assignment import UNMATCHED


def stable_matching(costs: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The output of each target [B, M] so that no two would both rather have each other.

    ``costs`` is [B, M, N]; only valid targets, by ``rows`` [B, M], and outputs, by ``columns``
    [B, N], take part. Both sides rank by the same costs, so the pair of least cost is each other's
    first choice: it is part of every stable matching, and what is left is the same problem again.
    That is what the proposals of Gale and Shapley (1962) end in, without a proposal.
    """
    B, M, N = costs.shape
    open_pairs = rows.unsqueeze(2) & columns.unsqueeze(1)
    costs = costs.clamp(max=torch.finfo(costs.dtype).max)  # to be told from pairs that are closed
    matching = torch.full((B, M), UNMATCHED, device=costs.device)
    for _ in range(min(M, N)):
        best = torch.where(open_pairs, costs, math.inf).flatten(1).argmin(dim=1, keepdim=True)
        is_target = torch.arange(M, device=costs.device) == best // N
        is_output = torch.arange(N, device=costs.device) == best % N
        any_left = open_pairs.flatten(1).any(dim=1, keepdim=True)
        matching = torch.where(is_target & any_left, best % N, matching)
        open_pairs = open_pairs & ~is_target.unsqueeze(2) & ~is_output.unsqueeze(1)
    return matching
