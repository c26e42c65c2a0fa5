"""Set success: the share of sets whose every target is among the outputs."""

from __future__ import annotations

from torch import Tensor

from setwise.arguments import Reduction, reduce_sets
from setwise.features import Features
from setwise.metrics.elements import differ, prepare


def set_success(
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
    """1 for a set whose every target equals some discretised output, as the paper counts success.

    ``input`` holds logits [*, N, F], discretised here; ``target`` [*, M, F] is compared as it is.
    Continuous features may be ``tolerance`` apart. One output may serve several equal targets, and
    outputs that match nothing do not matter; see `multiset_equality` for the strict version. A set
    without targets is a success.

    With ``presence``, logits [*, N], only outputs take part whose probability to exist is above the
    ``threshold``.

    >>> import torch
    >>> target = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> set_success(9 * target.flip(0) - 4, target)
    tensor(1.)
    """
    call = (input, target, features, input_valid, target_valid, reduction)
    elements = prepare(*call, presence, threshold, tolerance)
    same = ~differ(elements, tolerance) & elements.output_valid.unsqueeze(1)
    found = same.any(dim=-1) | ~elements.target_valid
    return reduce_sets(found.all(dim=-1).to(elements.targets.dtype), elements.lead, reduction)
