"""Transport cross entropy: the mass of the targets is moved to the outputs at least cost."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from setwise.arguments import Reduction, Sets, check_call, check_flag, check_number
from setwise.features import Features
from setwise.kernels.sinkhorn import TransportValue
from setwise.kernels.transforms import apply
from setwise.losses.costs import equal_weights, finish, lacks_outputs
from setwise.losses.matched import matching_costs
from setwise.losses.presence import Presence, read_presence, too_few_outputs


@overload
def transport_cross_entropy(
    input: Tensor,
    target: Tensor,
    features: Features | None = None,
    *,
    temperature: float = 1.0,
    missing_cost: float | None = None,
    return_settled: Literal[False] = False,
    presence: Tensor | None = None,
    presence_weight: float = 1.0,
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor: ...


@overload
def transport_cross_entropy(
    input: Tensor,
    target: Tensor,
    features: Features | None = None,
    *,
    temperature: float = 1.0,
    missing_cost: float | None = None,
    return_settled: Literal[True],
    presence: Tensor | None = None,
    presence_weight: float = 1.0,
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Tensor]: ...


def transport_cross_entropy(
    input: Tensor,
    target: Tensor,
    features: Features | None = None,
    *,
    temperature: float = 1.0,
    missing_cost: float | None = None,
    return_settled: bool = False,
    presence: Tensor | None = None,
    presence_weight: float = 1.0,
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Entropic optimal transport (Cuturi, 2013) of the targets to the outputs, with cost H.

    .. math:: \min_P \sum_{ij} P_{ij} w_i H(x_i, y_j) + t\, \mathrm{KL}(P \,|\, a b^\top / M)

    Every target holds a mass of 1, and the outputs the same in all, in equal parts: P has the row
    sums :math:`a_i = 1` and the column sums :math:`b_j = M / N`. With as many outputs as targets
    and a low temperature this is `assignment_cross_entropy`; otherwise targets are shared out.

    Args:
        temperature: ``t``, from 1e-6 to 1e6: how far the plan is spread. A low one takes many
            rounds.
        missing_cost: lets mass go missing, or come from nowhere, at this price:
            ``missing_cost * KL`` of each margin of the plan to what it should be, instead of
            equality. A set then costs at most ``M (t + 2 missing_cost)``.
        return_settled: whether the result is a pair ``(loss, settled)``, where ``settled`` [*] says
            whether Sinkhorn's rounds came to an end; they stop after 100, or 300 in
            float64.
        presence: logits [*, N] of the outputs' existence. Every output then holds a mass of 1 and
            gives it to targets, at a cost of ``-log c_j``, or to nobody, at ``-log(1 - c_j)``;
            there have to be at least as many outputs as targets.

    The other arguments are those of :func:`set_cross_entropy`. The gradient is the plan, without a
    way back through the rounds. A set without targets costs 0, or the absence of all outputs; one
    with targets and no output infinity.

    >>> import torch
    >>> target = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> outputs = 9 * target.flip(0) - 4
    >>> transport_cross_entropy(outputs, target, temperature=0.01)  # and what spreading costs
    tensor(0.0636)
    """
    temperature = check_number("temperature", temperature, 1e-6, 1e6)
    if missing_cost is not None:
        missing_cost = check_number("missing_cost", missing_cost, 1e-6, 1e6)
    check_flag("return_settled", return_settled)
    sets = check_call(input, target, features, input_valid, target_valid, weight, reduction)
    exists = read_presence(presence, presence_weight, input, sets)
    costs, rows, columns, total = _problem(sets, exists)
    value, _, settled, _ = apply(TransportValue, costs, rows, columns, temperature, missing_cost)
    impossible = lacks_outputs(sets) if exists is None else too_few_outputs(sets)
    loss = finish(sets, total * value, reduction, impossible)
    return (loss, settled.reshape(sets.lead)) if return_settled else loss


def _problem(sets: Sets, presence: Presence | None) -> tuple[Tensor, Tensor, Tensor, Tensor | int]:
    """Costs [B, rows, N], the masses of both sides, which sum to 1, and what rows summed to.

    That is [B], or one number if it is the same for all. With presence, the last row is nobody.
    """
    costs = matching_costs(sets, None)
    if presence is None and sets.target_valid is None and sets.output_valid is None:
        _, M, N = costs.shape
        return costs, equal_weights(sets, M), equal_weights(sets, N), M
    targets, outputs = (mask.to(sets.compute_dtype()) for mask in sets.masks())
    if presence is not None:
        costs = costs + presence.choice().unsqueeze(1)
        costs = torch.cat([costs, presence.absence().unsqueeze(1)], dim=1)
        left = (outputs.sum(-1, keepdim=True) - targets.sum(-1, keepdim=True)).clamp(min=0)
        targets = torch.cat([targets, left], dim=1)
    return costs, _shares(targets), _shares(outputs), targets.sum(dim=-1)


def _shares(masses: Tensor) -> Tensor:
    """Masses [B, size] that sum to 1; equal ones where there are none."""
    total = masses.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, masses / total.clamp(min=1), 1 / masses.shape[-1])
