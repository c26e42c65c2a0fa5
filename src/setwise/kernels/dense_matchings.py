"""Losses under a matching, of the built-in families on a CPU: few steps from outputs to gradient.

Legend: B sets, M targets, N outputs, F features.

As in `dense_losses` the gradient is computed with the loss. An output has one target at most, so
what pulls at it is a row of the targets, and nothing has to be added up.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from setwise.kernels import arrays
from setwise.kernels.arrays import Array, Numbers
from setwise.kernels.dense_elements import Elements
from setwise.kernels.dense_losses import Pulls, scores_of_targets


@np.errstate(all="ignore")
def all_costs(elements: Elements, valid: Tensor | None) -> Tensor:
    """Those of all pairs [B, M, N], to be looked at; ``valid`` [B, M] says which targets are."""
    costs = _all_costs(elements)
    if elements.reach > 0 and elements.blurs(costs.min(axis=2), valid):
        elements.widen()
        costs = _all_costs(elements)
    elements.pairs = costs
    return torch.from_numpy(costs)


def _all_costs(elements: Elements) -> Array:
    found = elements.take_scores()
    if found is None:
        found = scores_of_targets(elements.queries, elements.keys, elements.bias)
    if elements.base is not None:
        arrays.add_(found, elements.base[:, :, None])
    return np.negative(found, out=found)


def all_matched(matching: Tensor) -> bool:
    """Whether every target of a matching [B, M] has an output."""
    return bool(matching.numpy(force=True).min(initial=0) >= 0)


@np.errstate(all="ignore")
def matched(
    elements: Elements,
    matching: Tensor,
    weight: Tensor | None,
    reduction: str,
    dtype: torch.dtype,
    gradient: bool,
) -> tuple[Tensor, Tensor | None]:
    """What pairs of a matching [B, M] cost, [B] or reduced, and the gradient to the logits.

    An output has one target at most; a target with an output below zero has none.
    """
    (B, N, _), outputs = elements.keys.shape, matching.numpy()
    found = outputs >= 0
    slopes = found.astype(elements.keys.dtype)
    if weight is not None:
        slopes *= weight.detach().numpy()
    if reduction == "mean":
        slopes *= 1 / B
    numbers = outputs + np.arange(0, B * N, N)[:, None]
    costs = _costs(elements, outputs, numbers, found)
    costs *= slopes
    losses = torch.from_numpy(np.asarray(costs.sum(axis=-1 if reduction == "none" else None)))
    if not gradient:
        return losses.to(dtype), None
    pulled, total = _pulls(elements, numbers[found], np.flatnonzero(found), slopes[found])
    return losses.to(dtype), torch.from_numpy(elements.gradient(pulled, total)).to(dtype)


def _costs(elements: Elements, outputs: Numbers, numbers: Numbers, found: Array) -> Array:
    """Those of pairs [B, M], 0 of what is none."""
    (B, M), N = outputs.shape, elements.keys.shape[1]
    every = found.all()
    if elements.pairs is not None and every:
        costs = elements.pairs.take(outputs + np.arange(0, B * M * N, N).reshape(B, M))
        elements.correct_(costs.reshape(-1), numbers.reshape(-1), None)
        return costs
    costs = elements.costs(outputs=np.where(found, numbers, 0).reshape(-1)).reshape(B, M)
    if not every:
        costs[~found] = 0  # which may be infinite, of a pair that is none
    return costs


def _pulls(elements: Elements, outputs: Numbers, targets: Numbers, slopes: Array) -> Pulls:
    """Of pairs of outputs and targets, by their numbers, whose costs the loss goes by."""
    B, N, F = elements.keys.shape
    nearest = np.zeros(B * N, dtype=np.int64)
    nearest[outputs] = targets
    total = np.zeros((B * N, 1), dtype=elements.keys.dtype)
    total[outputs, 0] = -slopes
    pulled = elements.queries.reshape(-1, F).take(nearest, axis=0)
    pulled *= total
    return pulled.reshape(B, N, F), total.reshape(B, N, 1)
