"""Every network in small, as it is exported: each with the shape of one example."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

import setwise as sw
from setwise.models import (
    BinaryConcrete,
    DeepSetsEncoder,
    EquivariantRuleLearner,
    GumbelSoftmax,
    ImplicitDecoder,
    PatchAutoencoder,
    PictureEncoder,
    PointingDecoder,
    QueryDecoder,
    RegionDecoder,
    SetAutoencoder,
    SetDecoder,
    SetPredictor,
    SetTransformerEncoder,
    SlotAttention,
)

FEATURES = sw.Features(sw.Categorical(3), sw.Gaussian(2))
PICTURE = (3, 8, 12)


def predictor(decoder: nn.Module) -> SetPredictor:
    return SetPredictor(PictureEncoder(8, widths=(4, 4)), decoder, FEATURES)


class Decoding(nn.Module):
    """`SetAutoencoder.decode` where ``torch.export`` looks for it."""

    def __init__(self, model: SetAutoencoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, codes: Tensor) -> Tensor:
        return self.model.decode(codes > 0)


def autoencoder(latent: GumbelSoftmax | BinaryConcrete) -> SetAutoencoder:
    return SetAutoencoder(3, 4, latent, (9,), (8,), 10)


EXPORTED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "deep sets": (lambda: DeepSetsEncoder(4, 3, (9,), (8,)), (5, 4)),
    "set transformer": (lambda: SetTransformerEncoder(4, 3, 8, heads=2), (5, 4)),
    "decoder": (lambda: SetDecoder(6, 3, 4, 16), (6,)),
    "autoencoder": (lambda: autoencoder(GumbelSoftmax(5)), (3, 4)),
    "binary concrete": (lambda: autoencoder(BinaryConcrete(5)), (3, 4)),
    "decode": (lambda: Decoding(autoencoder(GumbelSoftmax(5))), (5,)),
    "rule learner": (lambda: EquivariantRuleLearner(5, 3, 2, width=8), (17,)),
    "patches": (lambda: PatchAutoencoder(channels=1), (3, 32, 32)),
    "queries": (lambda: predictor(QueryDecoder(8, 3, heads=2)), PICTURE),
    "regions": (lambda: predictor(RegionDecoder(8, heads=2)), PICTURE),
    "slots": (lambda: predictor(SlotAttention(8, 3)), PICTURE),
    "implicit": (
        lambda: predictor(ImplicitDecoder(8, 3, latent=16, seeds=2, steps=3, heads=2)),
        PICTURE,
    ),
    "pointing": (lambda: predictor(PointingDecoder(8, 3)), PICTURE),
}
