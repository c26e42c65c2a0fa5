"""Which features are a look and which a place, whatever their order."""

from __future__ import annotations

import pytest
import torch

from setwise.data.look_and_place import LookAndPlace
from setwise.features import Angle, Bernoulli, Categorical, Features, Gaussian, Poisson

FEATURES = Features(Categorical(2), Gaussian(2), Categorical(3), Bernoulli(1))


def test_parts_in_any_order() -> None:
    parts = LookAndPlace(FEATURES)
    elements = torch.tensor([[[0.1, 0.9, -3.0, 4.0, 0.6, 0.2, 0.2, 0.5]]])
    assert parts.look(elements).tolist() == torch.tensor([[[-3.0, 4.0, 0.5]]]).tolist()
    assert parts.place(elements).tolist() == [[[1.0, 0.0]]]
    assert parts.is_look.tolist() == [False, False, True, True, False, False, False, True]


@pytest.mark.parametrize("features", [Features(Categorical(5)), Features(Bernoulli(2))])
def test_both_are_needed(features: Features) -> None:
    with pytest.raises(ValueError, match="how an element looks and some choices among classes"):
        LookAndPlace(features)


def test_a_family_says_itself_whether_it_is_a_choice() -> None:
    class Corner(Bernoulli):
        """One of ``width`` corners."""

        is_choice = True

    parts = LookAndPlace(Features(Angle(1), Corner(3), Poisson(1)))
    element = torch.tensor([3.0, 0.0, 1.0, 0.0, 7.0])
    assert parts.look(element).tolist() == [3.0, 7.0]
    assert parts.place(element).tolist() == [1.0]
