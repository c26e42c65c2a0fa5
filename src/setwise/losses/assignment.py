"""Assignment cross entropy: each target has an output of its own, matched at least total cost."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from setwise.arguments import Reduction, check_call, check_flag
from setwise.features import Features
from setwise.kernels.assignment import UNMATCHED, assign
from setwise.losses.costs import finish, matched_costs, pairwise_costs, weighted


@overload
def assignment_cross_entropy(
    input: Tensor,
    target: Tensor,
    features: Features | None = None,
    *,
    return_matching: Literal[False] = False,
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor: ...


@overload
def assignment_cross_entropy(
    input: Tensor,
    target: Tensor,
    features: Features | None = None,
    *,
    return_matching: Literal[True],
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Tensor]: ...


def assignment_cross_entropy(
    input: Tensor,
    target: Tensor,
    features: Features | None = None,
    *,
    return_matching: bool = False,
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Cross entropy under the best one-to-one matching of targets to outputs (Hungarian loss).

    .. math:: \min_{\pi\ \mathrm{injective}} \sum_i w_i H(x_i, y_{\pi(i)})

    The arguments are those of :func:`set_cross_entropy`; there is no engine to choose, since a
    matching needs every cost. The matching is found on the host: the whole batch makes one trip
    there. With ``return_matching=True`` the result is a pair ``(loss, matching)``, where
    ``matching`` [*, M] holds the index of each target's output, or -1.

    A set without targets costs 0. Each target needs an output of its own: a set with more targets
    than outputs costs infinity, and its matching covers as many targets as it can. A cost that is
    NaN or infinite raises ValueError, on any device.

    >>> import torch
    >>> target = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> loss, matching = assignment_cross_entropy(9 * target.flip(0), target, return_matching=True)
    >>> matching
    tensor([1, 0])
    """
    check_flag("return_matching", return_matching)
    sets = check_call(input, target, features, input_valid, target_valid, weight, reduction)
    targets, outputs = sets.masks()
    with torch.no_grad():
        pairwise = pairwise_costs(sets)
        if sets.weight is not None:
            pairwise = pairwise * sets.weight.unsqueeze(-1)
        matching = assign(pairwise, targets, outputs)
    costs = matched_costs(sets, matching.clamp(min=0)).masked_fill(matching == UNMATCHED, 0.0)
    too_few = targets.sum(dim=-1) > outputs.sum(dim=-1)
    loss = finish(sets, weighted(sets, costs).sum(dim=-1), reduction, too_few)
    if not return_matching:
        return loss
    return loss, matching[:, : target.shape[-2]].reshape(target.shape[:-1])
