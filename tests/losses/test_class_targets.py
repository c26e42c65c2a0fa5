"""Targets may be the numbers of classes, where all features are choices."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import setwise as sw

FEATURES = sw.Features(sw.Categorical(4), sw.Categorical(3, scored_as="bernoulli"))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.int32])
@pytest.mark.parametrize("loss", [sw.set_cross_entropy, sw.set_likelihood, sw.metrics.set_success])
def test_as_one_hot(loss: Any, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 5, 7, generator=generator)
    classes = torch.stack([torch.randint(4, (2, 3)), torch.randint(3, (2, 3))], dim=-1)
    one_hot = FEATURES.from_classes(classes)
    got = loss(logits, classes.to(dtype), FEATURES)
    assert got == loss(logits, one_hot, FEATURES)


def test_of_a_single_choice_without_a_dimension_for_it() -> None:
    features = sw.Features(sw.Categorical(3))
    logits = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    classes = torch.tensor([[0, 2], [1, 1]])
    one_hot = torch.nn.functional.one_hot(classes, 3).float()
    expected = sw.set_likelihood(logits, one_hot, features)
    assert sw.set_likelihood(logits, classes, features) == expected
    assert sw.set_likelihood(logits, classes.unsqueeze(-1), features) == expected


def test_matchings_of_a_single_choice() -> None:
    """There are as many as classes, also where costs are given for them."""
    features = sw.Features(sw.Categorical(3))
    logits = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    classes = torch.tensor([[0, 2], [1, 1]])
    for costs in (None, torch.rand(2, 2, 4)):
        found = [
            sw.assignment_cross_entropy(
                logits, given, features, matching_cost=costs, return_matching=True
            )
            for given in (classes, classes.unsqueeze(-1))
        ]
        assert torch.equal(found[0][0], found[1][0])
        assert torch.equal(found[0][1], found[1][1])


def test_what_a_mask_hides_is_no_class() -> None:
    features = sw.Features(sw.Categorical(3))
    logits = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(0))
    padded = torch.tensor([[1, -100]])
    masked = sw.set_likelihood(logits, padded, features, target_valid=torch.tensor([1]))
    torch.testing.assert_close(masked, sw.set_likelihood(logits, padded[:, :1], features))


def test_what_is_no_class() -> None:
    logits, features = torch.zeros(1, 4, 3), sw.Features(sw.Categorical(3))
    with pytest.raises(ValueError, match="target: classes must lie between 0 and 2"):
        sw.set_likelihood(logits, torch.tensor([[1, 3]]), features)
    with pytest.raises(ValueError, match="target: integers are read as classes"):
        sw.set_likelihood(logits, torch.zeros(1, 2, 3).long(), features)
    with pytest.raises(TypeError, match="target: expected a floating-point tensor"):
        sw.set_likelihood(logits, torch.zeros(1, 2, 3).long(), sw.Features(sw.Bernoulli(3)))
    with pytest.raises(ValueError, match="classes: only choices have classes"):
        sw.Features(sw.Gaussian(2)).from_classes(torch.zeros(1, 2).long())
    with pytest.raises(ValueError, match="classes: expected a class for each of the 2 blocks"):
        FEATURES.from_classes(torch.zeros(1, 7).long())
