"""Whatever else can compute a cell of the matrix here: by hand, and by libraries of others.

Legend: B sets, N outputs and as many targets, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]
from scipy.spatial import cKDTree  # type: ignore[import-untyped]
from torch import Tensor

from setwise.bench.cells import FAMILIES, Cell, Step
from setwise.bench.contenders import cut_cross_entropy

EAGER, COMPILED, GRAPH, COMPILED_GRAPH = "eager", "compiled", "graph", "compiled graph"
MODES = (EAGER, COMPILED, GRAPH, COMPILED_GRAPH)
TREE_FEATURES = 8  # a k-d tree of more looks at nearly every point


@dataclass(frozen=True)
class Rival:
    """One way to compute a cell, and the modes in which it can be run."""

    name: str
    step: Step
    modes: tuple[str, ...] = (EAGER,)
    dtype: torch.dtype = torch.float32


def rivals(cell: Cell, device: str) -> Iterator[Rival]:
    """The dense lines, and every library that is there and computes the same."""
    B, _, F = cell.sizes
    dense = cell.dense()
    if dense is not None:
        yield Rival("dense", dense, MODES)
    if cell.loss == "assignment":
        yield Rival("scipy", _matched(cell, _by_scipy))
        if device == "cuda" and find_spec("torch_linear_assignment"):
            yield Rival("torch-linear-assignment", _matched(cell, _by_torch_linear_assignment))
    points = cell.family == "Gaussian" and F <= TREE_FEATURES
    if points and cell.loss in ("A1H", "A1H both", "chamfer"):
        yield Rival("cKDTree", _by_trees(cell))
    plain = cell.loss == "SH" and cell.family == "Bernoulli" and B == 1
    if plain and device == "cuda" and find_spec("cut_cross_entropy"):
        fused = cut_cross_entropy()
        yield Rival(fused.name, fused.loss, dtype=fused.dtype)


def _matched(cell: Cell, solve: Callable[[Tensor], Tensor]) -> Step:
    """All costs, the matching that a solver finds, and the costs of its pairs."""
    cost = FAMILIES[cell.family].cost

    def step(logits: Tensor, target: Tensor) -> Tensor:
        costs = cost(logits, target)
        chosen = solve(costs.detach())
        return costs.gather(-1, chosen.unsqueeze(-1)).sum((-1, -2)).mean()

    return step


def _by_scipy(costs: Tensor) -> Tensor:
    found = [linear_sum_assignment(one)[1] for one in costs.cpu().numpy()]
    return torch.from_numpy(np.stack(found)).to(costs.device)


def _by_torch_linear_assignment(costs: Tensor) -> Tensor:
    from torch_linear_assignment import batch_linear_assignment

    return batch_linear_assignment(costs)


def _by_trees(cell: Cell) -> Step:
    """Nearest neighbours on the host, and the squares of their distances."""
    factor = 1.0 if cell.loss == "chamfer" else 0.5

    def towards(of: Tensor, among: Tensor) -> Tensor:
        pairs = zip(of.detach().cpu().numpy(), among.detach().cpu().numpy(), strict=True)
        nearest = np.stack([cKDTree(b).query(a)[1] for a, b in pairs])
        index = torch.from_numpy(nearest).to(of.device).unsqueeze(-1)
        chosen = among.gather(1, index.expand(-1, -1, among.shape[-1]))
        return factor * (of - chosen).square().sum(-1).mean(-1)

    def step(logits: Tensor, target: Tensor) -> Tensor:
        there = towards(target, logits)
        both = there if cell.loss == "A1H" else there + towards(logits, target)
        return both.mean()

    return step
