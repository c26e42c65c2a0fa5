"""How an element looks and where it is, for features that say both, as those of pictured objects.

Legend: F features, A numbers of a look, Q coordinates of a place; ``*`` any leading dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from setwise.features import Features


class LookAndPlace:
    """Choices among classes are the coordinates of a place, all other features are the look.

    >>> from setwise.features import Bernoulli, Categorical
    >>> parts = LookAndPlace(Features(Bernoulli(1), Categorical(3)))
    >>> element = torch.tensor([0.9, 0.0, 0.0, 1.0])
    >>> parts.look(element), parts.place(element)
    (tensor([0.9000]), tensor([2.]))
    """

    def __init__(self, features: Features) -> None:
        is_choice = [block.is_choice for block in features.blocks]
        if all(is_choice) or not any(is_choice):
            raise ValueError(
                f"features: expected some that say how an element looks and some choices among "
                f"classes that say where it is, got {features}"
            )
        self.features = features
        widths = torch.tensor(features.widths)
        self.is_look: Tensor = ~torch.tensor(is_choice).repeat_interleave(widths)  # [F]

    def look(self, elements: Tensor) -> Tensor:
        """The looks [*, A] of elements [*, F]."""
        return elements[..., self.is_look.to(elements.device)]

    def place(self, elements: Tensor) -> Tensor:
        """The places [*, Q] of elements [*, F]: the number of the class each coordinate chooses."""
        parts = zip(self.features.blocks, self.features.split(elements), strict=True)
        chosen = [part.argmax(-1) for block, part in parts if block.is_choice]
        return torch.stack(chosen, dim=-1).float()
