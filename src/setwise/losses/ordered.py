"""The ordinary cross entropy of two sequences, H: output i is compared with target i alone."""

from __future__ import annotations

import torch
from torch import Tensor

from setwise.arguments import Reduction, check_call
from setwise.features import Features
from setwise.kernels.autocast import no_autocast
from setwise.losses.costs import finish, weighted
from setwise.losses.presence import read_presence


def ordered_cross_entropy(
    input: Tensor,
    target: Tensor,
    features: Features | None = None,
    *,
    presence: Tensor | None = None,
    presence_weight: float = 1.0,
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Cross entropy that respects the order: the baseline that a set loss is compared with.

    .. math:: H(X, Y) = \sum_i w_i H(x_i, y_i)

    Equivalent dense code, for Bernoulli features::

        cost = binary_cross_entropy_with_logits(input, target, reduction="none")   # [*, N, F]
        loss = cost.sum((-1, -2)).mean()

    The arguments are those of :func:`set_cross_entropy`, but N must equal M and there is no
    pairwise engine to choose. With ``presence`` the output of a valid target must exist, and costs
    ``-log c_j``; that of another must not, and costs ``-log(1 - c_j)``. A target whose own output
    is not valid makes its set cost infinity.

    >>> import torch
    >>> ordered_cross_entropy(torch.zeros(2, 3), torch.ones(2, 3))  # 6 ln 2
    tensor(4.1589)
    """
    sets = check_call(input, target, features, input_valid, target_valid, weight, reduction)
    if input.shape[-2] != target.shape[-2]:
        raise ValueError(
            f"target: the ordered loss pairs output i with target i, so both must have as many "
            f"elements: input {tuple(input.shape)}, target {tuple(target.shape)}"
        )
    targets, outputs = sets.masks()
    with no_autocast(sets.logits):
        costs = sets.features.cost(sets.logits, sets.target).masked_fill(~targets, 0.0)
    per_set = weighted(sets, costs).sum(dim=-1)
    exists = read_presence(presence, presence_weight, input, sets)
    if exists is not None:
        used = torch.where(targets & outputs, exists.odds(), 0.0)
        per_set = per_set + exists.all_absent(sets) - used.sum(dim=-1)
    return finish(sets, per_set, reduction, (targets & ~outputs).any(dim=-1))
