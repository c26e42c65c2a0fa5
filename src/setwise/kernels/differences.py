"""Sums over the differences of elements, where each feature is compared before anything is summed.

Legend: B sets, M queries, N keys, D features that are compared.

Near each other and far from the origin, two elements differ exactly: their coordinates do not round
when subtracted. Squares and products taken before the subtraction do, by as much as the elements
are far away. So there is no matrix product here, but a step for each feature, whatever its
number; steps for all features at once would need D times the memory of a score matrix.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def squares(x: Tensor, y: Tensor, sharpness: Tensor) -> Tensor:
    """``sum_f c_f (x_if - y_jf)^2``: [B, M, D], [B, N, D], [B, D] -> [B, M, N]."""
    return products(x, y, x, y, sharpness)


def products(x: Tensor, y: Tensor, u: Tensor, v: Tensor, factor: Tensor) -> Tensor:
    """``sum_f c_f (x_if - y_jf) (u_if - v_jf)``, shape [B, M, N]."""
    total = None
    same = u is x and v is y
    for f, apart in _each(x, y):
        other = apart if same else _one(u, v, f)
        term = factor[:, f, None, None] * apart * other
        total = term if total is None else total + term
    assert total is not None
    return total


def pulls(p: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """``sum_j p_ij (x_i - y_j)``: [B, M, N], [B, M, D], [B, N, D] -> [B, M, D]."""
    return torch.stack([(p * apart).sum(dim=-1) for _, apart in _each(x, y)], dim=-1)


def moments(p: Tensor, x: Tensor, y: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """``sum_ij p_ij (x_if - y_jf) (u_if - v_jf)``, shape [B, D]."""
    sums = [(p * apart * _one(u, v, f)).sum(dim=(1, 2)) for f, apart in _each(x, y)]
    return torch.stack(sums, dim=-1)


def _each(x: Tensor, y: Tensor) -> Iterator[tuple[int, Tensor]]:
    return ((f, _one(x, y, f)) for f in range(x.shape[-1]))


def _one(x: Tensor, y: Tensor, f: int) -> Tensor:
    return x[..., f].unsqueeze(2) - y[..., f].unsqueeze(1)
