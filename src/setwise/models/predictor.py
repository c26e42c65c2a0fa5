"""From anything to a set whose elements say whether they exist.

Legend: B examples, N outputs, F features.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn
from torch.utils import _pytree

from setwise.features import Features
from setwise.models.deep_sets import check_size
from setwise.models.initialise import glorot


class Prediction(NamedTuple):
    """Outputs in logits, and those of their existence: what losses call ``input``, ``presence``."""

    elements: Tensor  # [B, N, F]
    presence: Tensor  # [B, N]


# Without, `torch.export.save` refuses a predictor; the name is what is written to the file.
_pytree._register_namedtuple(Prediction, serialized_type_name="setwise.models.Prediction")


class SetPredictor(nn.Module):
    """``decoder(backbone(input))``, and of each element its features and whether it is there.

    The backbone reads what there is, and gives what the decoder takes:

    - pictures: `PictureEncoder`, or any network that gives a memory [B, T, D];
    - vectors: for instance ``nn.Sequential(nn.Linear(9, 4 * 64), nn.Unflatten(-1, (4, 64)))``, or
      ``nn.Identity()`` before a `SetDecoder`;
    - sets: `SetTransformerEncoder` with ``seeds``, or `DeepSetsEncoder` before a `SetDecoder`.

    The decoder gives elements [B, N, ``decoder.features``] for a last linear layer: `QueryDecoder`,
    `RegionDecoder`, `SlotAttention`, `ImplicitDecoder`, `PointingDecoder`, `SetDecoder`, or one of
    your own. Train it with any loss that takes ``presence``.

    >>> import torch
    >>> import setwise as sw
    >>> from setwise.models import PictureEncoder, QueryDecoder
    >>> features = sw.Features(sw.Categorical(3), sw.Gaussian(2, scale=0.1))
    >>> model = SetPredictor(PictureEncoder(16), QueryDecoder(16, size=6), features)
    >>> elements, presence = model(torch.rand(2, 3, 32, 32))
    >>> elements.shape, presence.shape
    (torch.Size([2, 6, 5]), torch.Size([2, 6]))
    >>> objects, valid = features.random_targets((2, 4)), torch.tensor([3, 4])
    >>> loss = sw.set_likelihood(elements, objects, features, presence=presence, target_valid=valid)
    """

    def __init__(self, backbone: nn.Module, decoder: nn.Module, features: Features) -> None:
        super().__init__()
        if not isinstance(features, Features):
            raise TypeError(
                f"features: expected Features(...), which say what an element is, got {features!r}"
            )
        width = getattr(decoder, "features", None)
        if width is None:
            raise TypeError(
                f"decoder: {type(decoder).__name__} must say by an attribute `features` how many "
                f"numbers each of its elements has"
            )
        check_size("decoder.features", width)
        self.backbone = backbone
        self.decoder = decoder
        self.features = features
        self.output = nn.Linear(width, features.width + 1)
        glorot(self.output)

    def forward(self, input: Tensor, valid: Tensor | None = None) -> Prediction:
        """``valid`` is passed on to a backbone that reads sets."""
        memory = self.backbone(input) if valid is None else self.backbone(input, valid)
        output = self.output(self.decoder(memory))
        return Prediction(output[..., :-1], output[..., -1])
