"""What a user's type checker sees, strictly: mypy in ``make check``, pyright in ``check-types``.

Nothing here is run. A line that no longer has the type it claims is an error there.
"""

from __future__ import annotations

from typing import assert_type

import torch
from torch import Tensor, nn

import setwise as sw
from setwise import metrics


def losses(input: Tensor, target: Tensor) -> None:
    features = sw.Features(sw.Categorical(9), sw.Gaussian(2, scale=0.1))
    assert_type(sw.set_cross_entropy(input, target, features, temperature=2.0), Tensor)
    assert_type(sw.set_average(input, target, directed=False, reduction="none"), Tensor)
    assert_type(sw.assignment_cross_entropy(input, target, features), Tensor)
    loss, matching = sw.assignment_cross_entropy(input, target, return_matching=True)
    assert_type(loss, Tensor)
    assert_type(matching, Tensor)
    assert_type(sw.set_likelihood(input, target, presence=torch.zeros(3)), Tensor)
    assert_type(sw.chamfer(input, target), Tensor)


def modules() -> nn.Module:
    module = sw.SetCrossEntropyLoss(sw.Features(sw.Bernoulli(4)), temperature=1.0)
    module.temperature = 2.0
    return module


def data(sets: list[Tensor]) -> Tensor:
    elements, valid = sw.mask_sets(sets)
    assert_type(elements, Tensor)
    assert_type(valid, Tensor)
    assert_type(sw.unpad_sets(sw.pad_sets(sets)), list[Tensor])
    return sw.shuffle_sets(elements)


def measured(input: Tensor, target: Tensor) -> Tensor:
    return metrics.set_success(input, target)
