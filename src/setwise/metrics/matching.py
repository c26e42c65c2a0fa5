"""Metrics under the best one-to-one matching of targets to outputs."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from setwise.arguments import Reduction, reduce_sets
from setwise.features import Features
from setwise.kernels.assignment import UNMATCHED, assign
from setwise.metrics.elements import Elements, differ, error, prepare


def multiset_equality(
    input: Tensor,
    target: Tensor,
    features: Features | None = None,
    *,
    tolerance: float = 0.0,
    presence: Tensor | None = None,
    threshold: float = 0.5,
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """1 for a set whose discretised outputs are its targets, each as often as it occurs there.

    Stricter than `set_success`: as many outputs as targets, and a one-to-one pairing of equal
    elements (continuous features may be ``tolerance`` apart). Two empty sets are equal.

    With ``presence``, logits [*, N], only outputs take part whose probability to exist is above the
    ``threshold``.

    >>> import torch
    >>> target = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> multiset_equality(9 * target - 4, target)
    tensor(1.)
    """
    call = (input, target, features, input_valid, target_valid, reduction)
    elements = prepare(*call, presence, threshold, tolerance)
    wrong = differ(elements, tolerance)
    if tolerance == 0:
        paired = _as_often_as_among_targets(elements, wrong)
    else:
        costs = wrong.to(elements.targets.dtype)
        matching = assign(costs, elements.target_valid, elements.output_valid)
        paired = _of_matched(costs, matching) == 0
    sizes_equal = elements.target_valid.sum(-1) == elements.output_valid.sum(-1)
    equal = (paired | ~elements.target_valid).all(dim=-1) & sizes_equal
    return reduce_sets(equal.to(elements.targets.dtype), elements.lead, reduction)


def _as_often_as_among_targets(elements: Elements, wrong: Tensor) -> Tensor:
    """Whether each target [B, M] equals as many outputs as targets, and at least one.

    For sets of one size that is a pairing of equals, found without searching for one. A target
    whose bits are not all 0 or 1 equals no output, and by this measure not even itself.
    """
    among_targets = replace(elements, outputs=elements.targets, output_valid=elements.target_valid)
    targets = ~differ(among_targets, 0.0) & elements.target_valid.unsqueeze(1)
    outputs = ~wrong & elements.output_valid.unsqueeze(1)
    found = outputs.sum(dim=-1)
    return (found == targets.sum(dim=-1)) & (found > 0)


def matched_error(
    input: Tensor,
    target: Tensor,
    features: Features | None = None,
    *,
    presence: Tensor | None = None,
    threshold: float = 0.5,
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Mean error of the features of the targets under the matching that makes it least.

    A Bernoulli feature and a categorical block each count 0 or 1, a Gaussian feature its distance
    in units of its scale, a count its difference, an angle the shorter way round in units of
    ``1 / sqrt(concentration)``. A target left without an output, because there are too few, counts
    1 for all its features. A set without targets has no error.

    With ``presence``, logits [*, N], only outputs take part whose probability to exist is above the
    ``threshold``.

    >>> import torch
    >>> target = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> matched_error(torch.tensor([[-9.0, 9.0], [9.0, 9.0]]), target)  # 1 of 4 features is wrong
    tensor(0.2500)
    """
    call = (input, target, features, input_valid, target_valid, reduction)
    elements = prepare(*call, presence, threshold)
    errors = error(elements)
    matching = assign(errors, elements.target_valid, elements.output_valid)
    matched = _of_matched(errors, matching).masked_fill(~elements.target_valid, 0.0)
    count = elements.target_valid.sum(dim=-1).clamp(min=1)
    return reduce_sets(matched.sum(dim=-1) / count, elements.lead, reduction)


def _of_matched(pairwise: Tensor, matching: Tensor) -> Tensor:
    """The entry [B, M, N] of each target with its output: [B, M], 1 for targets without one."""
    values = pairwise.gather(-1, matching.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return values.masked_fill(matching == UNMATCHED, 1.0)
