"""Distances of point clouds under the names they are known by.

Legend: N output points, M target points, D dimensions; ``*`` any leading dimensions.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from setwise.arguments import Reduction, Sets, check_call
from setwise.features import Features, Gaussian
from setwise.kernels.assignment import UNMATCHED
from setwise.kernels.autocast import no_autocast
from setwise.kernels.dispatch import Impl
from setwise.kernels.gather import gather_elements
from setwise.losses.costs import equal_weights, finish, weighted
from setwise.losses.fused import target_shares
from setwise.losses.matched import cheapest_matching, search_and_finish
from setwise.losses.set_average import set_average


def chamfer(
    input: Tensor,
    target: Tensor,
    *,
    directed: bool = False,
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
    impl: Impl = "auto",
) -> Tensor:
    r"""The Chamfer distance of points [*, N, D] and [*, M, D]: squared, in both directions.

    .. math:: \frac1M \sum_i \min_j |x_i - y_j|^2 + \frac1N \sum_j \min_i |x_i - y_j|^2

    It is :func:`set_average` with ``Gaussian(D, scale=1 / sqrt(2))``, undirected unless told
    otherwise; the other arguments are those.

    >>> import torch
    >>> outputs, target = torch.tensor([[0.0, 0.0], [3.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> chamfer(outputs, target)  # 1 + (1 + 10) / 2
    tensor(6.5000)
    """
    return set_average(
        input,
        target,
        _points(input),
        directed=directed,
        input_valid=input_valid,
        target_valid=target_valid,
        weight=weight,
        reduction=reduction,
        impl=impl,
    )


def earth_movers(
    input: Tensor,
    target: Tensor,
    *,
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""The earth mover's distance of as many points as points: [*, N, D] and [*, N, D].

    .. math:: \min_{\pi\ \mathrm{bijective}} \frac{1}{\sum_i w_i} \sum_i w_i |x_i - y_{\pi(i)}|

    The mean distance under the best matching, which is found as by :func:`assign`. Sets of which
    masks leave unequal numbers of points cost infinity; :func:`transport_cross_entropy` shares
    points out.

    >>> import torch
    >>> earth_movers(torch.tensor([[0.0], [5.0]]), torch.tensor([[6.0], [2.0]]))  # (2 + 1) / 2
    tensor(1.5000)
    """
    features = _points(input)
    sets = check_call(input, target, features, input_valid, target_valid, weight, reduction)
    if input.shape[-2] != target.shape[-2]:
        raise ValueError(
            f"target: the earth mover's distance is between as many points as points: input "
            f"{tuple(input.shape)}, target {tuple(target.shape)}; take transport_cross_entropy"
        )
    unequal = None
    if sets.target_valid is not None or sets.output_valid is not None:
        targets, outputs = sets.masks()
        unequal = targets.sum(dim=-1) != outputs.sum(dim=-1)
    shares = target_shares(sets, "mean")
    if shares is None:
        shares = equal_weights(sets, sets.target.shape[1])
    averaged = sets._replace(weight=shares)
    # Sets of unequal numbers must be told apart before the batch is reduced, or has its shape.
    early, lead = (reduction, sets.lead) if unequal is None else ("none", sets.logits.shape[:1])
    fused = averaged._replace(lead=lead)
    found = search_and_finish(fused, "cheapest", None, early, _mean_distances)
    if found is not None:
        return found[0] if unequal is None else finish(sets, found[0], reduction, unequal)
    with torch.no_grad(), no_autocast(sets.logits):
        # By products, as many points would be, distances far from the origin cancel.
        exactly = "donot_use_mm_for_euclid_dist"
        distances = torch.cdist(sets.target, sets.logits, compute_mode=exactly)
        if sets.weight is not None:
            distances = distances * sets.weight.unsqueeze(-1)
        matching = cheapest_matching("input", sets, distances)
    return _mean_distances(averaged, matching, reduction, unequal)


def _mean_distances(
    sets: Sets, matching: Tensor, reduction: str, unequal: Tensor | None = None
) -> Tensor:
    """The sum of distances under a matching, times weights that sum to 1."""
    found = matching != UNMATCHED
    with no_autocast(sets.logits):
        apart = sets.target - gather_elements(sets.logits, matching.clamp(min=0))
        # A distance of 0 has no gradient: there, none is taken.
        squared = torch.where(found, apart.square().sum(dim=-1), 0.0)
        costs = torch.where(squared > 0, squared, 1.0).sqrt() * (squared > 0)
    unpaired = (sets.masks()[0] & ~found).any(dim=-1)
    unpaired = unpaired if unequal is None else unequal | unpaired
    return finish(sets, weighted(sets, costs).sum(dim=-1), reduction, unpaired)


def _points(input: Tensor) -> Features | None:
    """Of the dimension of the input, if it has any; a wrong one is told by the usual checks."""
    if not isinstance(input, Tensor) or input.dim() == 0 or input.shape[-1] == 0:
        return None
    # Compilers may know a width only as a symbol, which cannot be looked up.
    return (_squares if torch.compiler.is_compiling() else _kept_squares)(input.shape[-1])


def _squares(width: int) -> Features:
    return Features(Gaussian(width, scale=math.sqrt(0.5)))


_kept_squares = lru_cache(maxsize=64)(_squares)
