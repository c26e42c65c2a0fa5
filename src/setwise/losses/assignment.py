"""Assignment cross entropy: each target has an output of its own, matched at least total cost."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from setwise.arguments import Reduction, Sets, check_call, check_flag
from setwise.features import Features
from setwise.kernels.assignment import assign
from setwise.losses.matched import finish_matched, matching_costs
from setwise.losses.presence import Presence, check_call_of_presence


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
    matching needs every cost. The matching is found on the host: the whole batch makes one trip
    there. With ``return_matching=True`` the result is a pair ``(loss, matching)``, where
    ``matching`` [*, M] holds the index of each target's output, or -1.

    With ``presence``, logits [*, N] of the outputs' existence, an output that is matched costs
    ``-log c_j`` and any other ``-log(1 - c_j)``, as in object detectors (Carion et al., 2020):

    .. math:: \min_\pi \sum_i \bigl( w_i H(x_i, y_{\pi(i)}) - \ln c_{\pi(i)} \bigr)
        - \sum_{j \notin \pi} \ln (1 - c_j)

    ``presence_weight`` multiplies these two. The matching is the best by the loss itself, unless
    ``matching_cost`` says otherwise: other :class:`Features` of the same width, for instance with
    other weights, or a tensor of costs [*, M, N], which then decides alone.

    A set without targets costs 0, or the absence of all outputs. Each target needs an output of its
    own: a set with more targets than outputs costs infinity, and its matching covers as many
    targets as it can. A cost that is NaN or infinite raises ValueError, on any device.

    >>> import torch
    >>> target = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> loss, matching = assignment_cross_entropy(9 * target.flip(0), target, return_matching=True)
    >>> matching
    tensor([1, 0])
    """
    check_flag("return_matching", return_matching)
    sets = check_call(input, target, features, input_valid, target_valid, weight, reduction)
    exists = check_call_of_presence(presence, presence_weight, input, sets)
    targets, outputs = sets.masks()
    with torch.no_grad():
        matching = assign(_costs_to_match(sets, exists, matching_cost), targets, outputs)
    loss = finish_matched(sets, matching, exists, reduction)
    if not return_matching:
        return loss
    return loss, matching[:, : target.shape[-2]].reshape(target.shape[:-1])


def _costs_to_match(
    sets: Sets, presence: Presence | None, given: Features | Tensor | None
) -> Tensor:
    """What a matching is the best by: [B, M, N]."""
    if isinstance(given, Tensor):
        return _check_costs(given, sets)
    if given is not None:
        if not isinstance(given, Features):
            raise TypeError(
                f"matching_cost: expected Features(...), a tensor of costs [*, M, N] or None, got "
                f"{type(given).__name__}"
            )
        if given.width != sets.features.width:
            raise ValueError(
                f"matching_cost: {given} describes {given.width} features, but elements have "
                f"{sets.features.width}"
            )
        sets = sets._replace(features=given)
    return matching_costs(sets, presence)


def _check_costs(costs: Tensor, sets: Sets) -> Tensor:
    shape = (*sets.lead, sets.target.shape[1], sets.logits.shape[1])
    if costs.shape != shape or not costs.is_floating_point():
        raise ValueError(
            f"matching_cost: expected floating-point costs of shape {shape}, got "
            f"{tuple(costs.shape)} of {costs.dtype}"
        )
    if costs.device != sets.logits.device:
        raise ValueError(f"matching_cost: on {costs.device}, but input is on {sets.logits.device}")
    return costs.reshape(-1, *shape[-2:])
