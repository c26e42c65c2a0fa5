"""Stable matching cross entropy: pairs that would both rather have each other are together."""

from __future__ import annotations

import torch
from torch import Tensor

from setwise.arguments import Reduction, check_call
from setwise.features import Features
from setwise.kernels.stable import stable_matching
from setwise.losses.matched import finish_matched, matching_costs, on_host, search_and_finish
from setwise.losses.presence import read_presence


def stable_matching_cross_entropy(
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
    r"""Cross entropy under the stable matching of targets to outputs (Gale and Shapley, 1962).

    .. math:: \sum_i w_i H(x_i, y_{\pi(i)}), \quad \pi\ \mathrm{stable}

    A matching is stable if no target and output would both rather have each other than whom they
    have; both go by the cost of the pair. The Set Autoencoder (Probst, 2018) matches like this.
    The loss is never below `assignment_cross_entropy`.

    The arguments are those of :func:`assignment_cross_entropy`, and so is what they mean.

    >>> import torch, setwise as sw
    >>> points = sw.Features(sw.Gaussian(1))
    >>> outputs, target = torch.tensor([[1.0], [5.0]]), torch.tensor([[0.0], [1.2]])
    >>> stable_matching_cross_entropy(outputs, target, points)  # 1 goes to 1.2, 5 to the rest
    tensor(12.5200)
    >>> sw.assignment_cross_entropy(outputs, target, points)
    tensor(7.7200)
    """
    sets = check_call(input, target, features, input_valid, target_valid, weight, reduction)
    exists = read_presence(presence, presence_weight, input, sets)
    found = search_and_finish(sets, "stable", exists, reduction)
    if found is not None:
        return found[0]
    elements = on_host(sets)
    with torch.no_grad():
        matching = stable_matching(matching_costs(sets, exists, elements), *sets.masks())
    return finish_matched(sets, matching, exists, reduction, elements)
