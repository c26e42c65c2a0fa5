"""Assignment cross entropy: each target has an output of its own, matched at least total cost."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor
from torch.nn import functional

from setwise.arguments import Reduction, Sets, check_call, check_flag, require_dense
from setwise.features import Features
from setwise.losses.matched import (
    cheapest_matching,
    finish_matched,
    matching_costs,
    on_host,
    search_and_finish,
    targets_given,
)
from setwise.losses.presence import read_presence


@overload
def assignment_cross_entropy(
    input: Tensor,
    target: Tensor,
    features: Features | None = None,
    *,
    return_matching: Literal[False] = False,
    presence: Tensor | None = None,
    presence_weight: float = 1.0,
    matching_cost: Features | Tensor | None = None,
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
    presence: Tensor | None = None,
    presence_weight: float = 1.0,
    matching_cost: Features | Tensor | None = None,
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
    presence: Tensor | None = None,
    presence_weight: float = 1.0,
    matching_cost: Features | Tensor | None = None,
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Cross entropy under the best one-to-one matching of targets to outputs (Hungarian loss).

    .. math:: \min_{\pi\ \mathrm{injective}} \sum_i w_i H(x_i, y_{\pi(i)})

    The arguments are those of :func:`set_cross_entropy`; there is no engine to choose, since a
    matching needs every cost. The matching is found as by :func:`assign`, on a GPU without waiting
    for the host. With ``return_matching=True`` the result is a pair ``(loss, matching)``, where
    ``matching`` [*, M] holds the index of each target's output, or -1.

    With ``presence``, logits [*, N] of the outputs' existence, an output that is matched costs
    ``-log c_j`` and any other ``-log(1 - c_j)``, as in object detectors (Carion et al., 2020):

    .. math:: \min_\pi \sum_i \bigl( w_i H(x_i, y_{\pi(i)}) - \ln c_{\pi(i)} \bigr)
        - \sum_{j \notin \pi} \ln (1 - c_j)

    ``presence_weight`` multiplies these two. The matching is the best by the loss itself, unless
    ``matching_cost`` says otherwise: other :class:`Features` of the same width, for instance with
    other weights, or a tensor of costs [*, M, N], which then decides alone and may
    forbid pairs by infinity.

    A set without targets costs 0, or the absence of all outputs. Each target needs an output of its
    own: a set with more targets than outputs costs infinity, and its matching covers as many
    targets as it can. A cost of NaN or minus infinity raises ValueError on the CPU; on a GPU, where
    nothing is read back, its set has no matching and costs infinity.

    >>> import torch
    >>> target = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> loss, matching = assignment_cross_entropy(9 * target.flip(0), target, return_matching=True)
    >>> matching
    tensor([1, 0])
    """
    check_flag("return_matching", return_matching)
    sets = check_call(input, target, features, input_valid, target_valid, weight, reduction)
    exists = read_presence(presence, presence_weight, input, sets)
    found = None
    if matching_cost is None:
        found = search_and_finish(sets, "cheapest", exists, reduction)
    if found is None:
        elements = on_host(sets)
        with torch.no_grad():
            if isinstance(matching_cost, Tensor):
                pairwise = _check_costs(matching_cost, input, target, sets)
            elif matching_cost is None:
                pairwise = matching_costs(sets, exists, elements)
            else:
                pairwise = matching_costs(_by_other_features(sets, matching_cost), exists)
            name = "input" if matching_cost is None else "matching_cost"
            matching = cheapest_matching(name, sets, pairwise)
        found = finish_matched(sets, matching, exists, reduction, elements), matching
    loss, matching = found
    if not return_matching:
        return loss
    M = targets_given(target, sets)
    # A copy: second derivatives go by the matching, which whoever has it may change.
    return loss, matching[:, :M].reshape(*sets.lead, M).clone()


def _by_other_features(sets: Sets, features: Features | None) -> Sets:
    """The same sets, with other features if there are any."""
    if features is None:
        return sets
    if not isinstance(features, Features):
        raise TypeError(
            f"matching_cost: expected Features(...), a tensor of costs [*, M, N] or None, got "
            f"{type(features).__name__}"
        )
    if features.width != sets.features.width:
        raise ValueError(
            f"matching_cost: {features} describes {features.width} features, but elements have "
            f"{sets.features.width}"
        )
    targets, _ = sets.masks()
    blank = torch.zeros(()) if features.blank is None else features.blank
    target = torch.where(targets.unsqueeze(-1), sets.target, blank.to(sets.target))
    features.check_targets("matching_cost: target", target)
    return sets._replace(features=features, target=target)


def _check_costs(costs: Tensor, input: Tensor, target: Tensor, sets: Sets) -> Tensor:
    """Costs that were given, [B, M, N]; where there are no elements, of the one that is not."""
    require_dense("matching_cost", costs)
    M, N = targets_given(target, sets), input.shape[-2]
    if costs.shape != (*sets.lead, M, N) or not costs.is_floating_point():
        raise ValueError(
            f"matching_cost: expected floating-point costs of shape {(*sets.lead, M, N)}, got "
            f"{tuple(costs.shape)} of {costs.dtype}"
        )
    if costs.device != input.device:
        raise ValueError(f"matching_cost: on {costs.device}, but input is on {input.device}")
    costs = functional.pad(costs, (0, sets.logits.shape[1] - N, 0, sets.target.shape[1] - M))
    return costs.flatten(0, -3) if sets.lead else costs.unsqueeze(0)
