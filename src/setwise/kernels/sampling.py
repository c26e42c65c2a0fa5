"""Matchings drawn at random, each with its exact probability.

Legend: B sets, M targets, N outputs, K samples.

The sum over subsets of `permanent` is walked back from its end: given which targets are still to be
matched with the outputs up to j, output j serves none of them, or one, with the weight of all ways
that go on like this. A subset is a number whose bits are its targets.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from setwise.kernels.assignment import UNMATCHED
from setwise.kernels.permanent import NEVER, sum_over_subsets


def sample_matchings(
    scores: Tensor, rows: Tensor, columns: Tensor, samples: int, generator: torch.Generator | None
) -> Tensor:
    """The output of each target [K, B, M], UNMATCHED where a target is not valid."""
    B, M, _ = scores.shape
    done = sum_over_subsets(scores, rows, columns)
    place = _places(M, scores.device)
    bits = 2 ** torch.arange(M, device=scores.device)
    to_match = bits.sum().expand(samples, B).clone()
    found = torch.full((samples, B, M), UNMATCHED, device=scores.device)
    sets = torch.arange(B, device=scores.device).unsqueeze(-1)
    for j in range(len(done.padded) - 1, -1, -1):
        ways = _of_all_subsets(done.ways[j], M)
        holds = (to_match.unsqueeze(-1) & bits) != 0
        before = place[to_match.unsqueeze(-1) & ~bits]
        serves = torch.where(holds, ways[before, sets] + done.padded[j].mT, NEVER)
        stays = ways[place[to_match], sets.squeeze(-1)]
        weights = torch.cat([serves, stays.unsqueeze(-1)], dim=-1).softmax(-1)
        chosen = torch.multinomial(weights.flatten(0, 1), 1, generator=generator)
        chosen = chosen.view(samples, B, 1)
        is_served = torch.arange(M, device=scores.device) == chosen
        found = torch.where(is_served, j, found)
        to_match = to_match - (is_served * bits).sum(-1)
    return torch.where(rows, found, UNMATCHED)


def _places(M: int, device: torch.device) -> Tensor:
    """Where each subset stands among all, which are ordered by size, then by number: [2^M]."""
    subsets = torch.arange(2**M, device=device)
    size = sum((subsets >> i) & 1 for i in range(M))
    return torch.argsort(torch.as_tensor(size, device=device), stable=True).argsort()


def _of_all_subsets(ways: dict[int, Tensor], M: int) -> Tensor:
    """The ways of some sizes, with NEVER for the others: [2^M, B]."""
    known = torch.cat(list(ways.values()))
    full = known.new_full((2**M, known.shape[1]), NEVER)
    first = sum(math.comb(M, q) for q in range(min(ways)))
    full[first : first + len(known)] = known
    return full
