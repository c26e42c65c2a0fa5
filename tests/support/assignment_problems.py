"""Assignment problems of every kind, and an oracle that says if a matching is a cheapest one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

SHAPES = [(1, 1), (1, 6), (6, 1), (2, 2), (3, 5), (5, 3), (9, 9), (8, 30), (30, 8), (33, 33)]


class Problems(NamedTuple):
    """A batch of one kind."""

    kind: str
    cost: Tensor  # [B, M, N]
    row_valid: Tensor | None  # [B, M]
    column_valid: Tensor | None  # [B, N]


def _huge_ranges(shape: tuple[int, ...], g: torch.Generator) -> Tensor:
    sizes = 10 ** (24 * torch.rand(shape, generator=g, dtype=torch.float64) - 12)
    return (sizes * torch.randn(shape, generator=g).sign()).float()


def _forbidding(shape: tuple[int, ...], g: torch.Generator) -> Tensor:
    cost = torch.randn(shape, generator=g)
    return cost.masked_fill(torch.rand(shape, generator=g) < 0.6, torch.inf)


def _by_column(shape: tuple[int, ...], g: torch.Generator) -> Tensor:
    """All rows like the same columns best."""
    return torch.randn(shape, generator=g) / 8 + torch.randn(shape[0], 1, shape[2], generator=g)


def _points(shape: tuple[int, ...], g: torch.Generator) -> Tensor:
    B, M, N = shape
    return torch.cdist(torch.rand(B, M, 2, generator=g), torch.rand(B, N, 2, generator=g))


KINDS: dict[str, Callable[[tuple[int, ...], torch.Generator], Tensor]] = {
    "of any sign": lambda shape, g: torch.randn(shape, generator=g),
    "ties": lambda shape, g: torch.randint(-2, 3, shape, generator=g).float(),
    "all equal": lambda shape, g: torch.full(shape, -1.5),
    "far from 0": lambda shape, g: 1e6 + torch.rand(shape, generator=g),
    "huge ranges": _huge_ranges,
    "forbidden pairs": _forbidding,
    "by column": _by_column,
    "points": _points,
}


def problems(count: int, shapes: list[tuple[int, int]] = SHAPES) -> Iterator[Problems]:
    """About so many, half of them masked, always the same ones; for any shape as many."""
    g = torch.Generator().manual_seed(0)
    B = -(-count // (2 * len(KINDS) * len(shapes)))
    for kind, draw in KINDS.items():
        for M, N in shapes:
            yield Problems(kind, draw((B, M, N), g), None, None)
            masks = (torch.rand(B, size, generator=g) < 0.7 for size in (M, N))
            yield Problems(f"{kind}, masked", draw((B, M, N), g), *masks)


def check(given: Problems, matching: Tensor) -> None:
    """Assert that each row has a column of its own or -1, as many as can be, at the least cost."""
    kind, cost, row_valid, column_valid = given
    B, M, N = cost.shape
    assert matching.shape == (B, M)
    assert matching.dtype == torch.int64
    for b in range(B):
        rows = np.arange(M) if row_valid is None else row_valid[b].numpy().nonzero()[0]
        columns = np.arange(N) if column_valid is None else column_valid[b].numpy().nonzero()[0]
        costs = cost[b].double().numpy()
        found = matching[b].numpy()
        matched = (found >= 0).nonzero()[0]
        taken = found[matched]
        assert (found >= -1).all(), kind
        assert set(matched) <= set(rows), kind
        assert set(taken) <= set(columns), kind
        assert len(set(taken)) == len(taken), kind
        ours = costs[matched, taken]
        best = _cheapest(costs[np.ix_(rows, columns)])
        largest = np.abs(costs, where=np.isfinite(costs), out=np.zeros_like(costs)).max()
        assert len(ours) == len(best), f"{kind}: {len(ours)} pairs of {len(best)}"
        assert abs(ours.sum() - best.sum()) <= 1e-13 * len(best) * largest, kind


def _cheapest(costs: np.ndarray) -> np.ndarray:
    """The costs of the pairs of a cheapest matching, by SciPy."""
    finite = np.isfinite(costs)
    penalty = 1 + 2 * np.abs(costs[finite]).sum()  # more than any matching of the others
    found = costs[linear_sum_assignment(np.where(finite, costs, penalty))]
    return found[np.isfinite(found)]
