"""All matchings of small sets, one by one: the measure of what sums over them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor


def injections(targets: int, outputs: int) -> Iterator[tuple[int, ...]]:
    return itertools.permutations(range(outputs), targets)


def log_sum(scores: Tensor) -> Tensor:
    """The log of the summed weight of all matchings of one score matrix [M, N]."""
    M, N = scores.shape
    terms = [
        torch.stack([scores[i, j] for i, j in enumerate(choice)]).sum() if M else scores.sum()
        for choice in injections(M, N)
    ]
    return torch.stack(terms).logsumexp(0)


def restricted(scores: Tensor, rows: Tensor, columns: Tensor) -> list[Tensor]:
    """The score matrix of each set with its valid targets and outputs only."""
    return [s[r][:, c] for s, r, c in zip(scores, rows, columns, strict=True)]


def random_problem(
    seed: int, B: int, M: int, N: int, scale: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores [B, M, N] in float64 and masks, by which every set has at most as many targets."""
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(B, M, N, generator=generator, dtype=torch.float64)
    rows = torch.rand(B, M, generator=generator) < 0.8
    columns = torch.rand(B, N, generator=generator) < 0.8
    rows &= rows.cumsum(-1) <= columns.sum(-1, keepdim=True)
    return scores, rows, columns
