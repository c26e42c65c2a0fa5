"""From pictures, vectors and sets to sets that say which elements exist; and exported networks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

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
from small_models import gradients, seeded

FEATURES = sw.Features(sw.Categorical(3), sw.Gaussian(2))


def predictor(decoder: nn.Module) -> SetPredictor:
    return SetPredictor(PictureEncoder(8, widths=(4, 4)), decoder, FEATURES)


def vectors(decoder: nn.Module) -> SetPredictor:
    backbone = nn.Sequential(nn.Linear(5, 2 * 8), nn.Unflatten(-1, (2, 8)))
    return SetPredictor(backbone, decoder, FEATURES)


PICTURE, VECTOR, SET = (3, 8, 12), (5,), (4, 5)
PREDICTORS: dict[str, tuple[Callable[[], SetPredictor], tuple[int, ...]]] = {
    "picture": (lambda: predictor(QueryDecoder(8, 3, heads=2)), PICTURE),
    "vector": (lambda: vectors(SlotAttention(8, 3)), VECTOR),
    "vector, fully connected": (
        lambda: SetPredictor(nn.Identity(), SetDecoder(5, 3, 8, 16), FEATURES),
        VECTOR,
    ),
    "set": (
        lambda: SetPredictor(
            SetTransformerEncoder(5, 8, 8, heads=2, seeds=2), PointingDecoder(8, 3), FEATURES
        ),
        SET,
    ),
    "set, fully connected": (
        lambda: SetPredictor(DeepSetsEncoder(5, 6, (8,), (8,)), SetDecoder(6, 3, 8, 16), FEATURES),
        SET,
    ),
}


@pytest.mark.parametrize("kind", PREDICTORS)
def test_anything_becomes_a_set(kind: str) -> None:
    build, shape = PREDICTORS[kind]
    torch.manual_seed(0)
    model, input = build(), torch.randn(4, *shape, generator=seeded(1))
    prediction = model(input)
    assert prediction.elements.shape == (4, 3, FEATURES.width)
    assert prediction.presence.shape == (4, 3)
    target = FEATURES.random_targets((4, 2), seeded(2))
    loss = sw.assignment_cross_entropy(*prediction[:1], target, FEATURES, presence=prediction[1])
    found = gradients(model, loss)
    assert all(gradient.isfinite().all() for gradient in found)
    assert sum(gradient.abs().max() > 0 for gradient in found) > 0.9 * len(found)


@pytest.mark.parametrize("kind", ["set", "set, fully connected"])
def test_predictors_of_sets_take_masks(kind: str) -> None:
    model = PREDICTORS[kind][0]().eval()
    sets, valid = torch.randn(4, 4, 5, generator=seeded(1)), torch.arange(4).expand(4, 4) < 3
    hidden, cut = model(sets, valid), model(sets[:, :3])
    torch.testing.assert_close(hidden.elements, cut.elements)
    torch.testing.assert_close(hidden.presence, cut.presence)
    assert not hidden.elements.allclose(model(sets).elements)


def test_regions_of_a_picture_know_their_place() -> None:
    torch.manual_seed(0)
    encoder = PictureEncoder(8, widths=(4, 4))
    memory = encoder(torch.full((2, 5, 3, 8, 12), 0.5))
    assert memory.shape == (2, 5, 2 * 3, 8)
    apart = torch.cdist(memory[0, 0], memory[0, 0]) + 9 * torch.eye(6)
    assert apart.min() > 1e-3
    # What is seen in a region is read from there: another picture in its lower right corner.
    corner = torch.full((3, 8, 12), 0.5)
    corner[:, 7, 11] = 1.0
    changed = (encoder(corner) - memory[0, 0]).abs().amax(-1) > 1e-6
    assert changed.tolist() == [False] * 5 + [True]


def test_bad_calls_say_what_was_expected() -> None:
    with pytest.raises(TypeError, match=r"features: expected Features\(...\)"):
        SetPredictor(nn.Identity(), QueryDecoder(8, 3), 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="decoder: Linear must say by an attribute `features`"):
        SetPredictor(nn.Identity(), nn.Linear(8, 3), FEATURES)
    with pytest.raises(ValueError, match=r"pictures: .*multiples of 4, got \(2, 3, 8, 10\)"):
        PictureEncoder(8, widths=(4, 4))(torch.rand(2, 3, 8, 10))
    with pytest.raises(ValueError, match=r"pictures: .*3, H, W"):
        PictureEncoder(8)(torch.rand(2, 1, 8, 8))
    with pytest.raises(ValueError, match=r"pictures: .*3, H, W.*got \(2, 3, 0, 8\)"):
        PictureEncoder(8)(torch.rand(2, 3, 0, 8))
    with pytest.raises(ValueError, match=r"pictures: expected shape \[\*, C, H, W\], got \(\)"):
        PictureEncoder(8)(torch.tensor(1.0))
    with pytest.raises(TypeError, match=r"pictures: expected a torch.Tensor, got list"):
        PictureEncoder(8)([1.0])


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
    "implicit": (lambda: predictor(ImplicitDecoder(8, 3, steps=3, heads=2)), PICTURE),
    "pointing": (lambda: predictor(PointingDecoder(8, 3)), PICTURE),
}


# Some seconds each for those that are traced through many operations, of which `queries` is one.
SLOW = {"set transformer", "regions", "slots", "implicit", "pointing", "patches"}


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.slow) if k in SLOW else k for k in EXPORTED]
)
def test_exported_networks_take_a_batch_of_any_size(kind: str) -> None:
    build, shape = EXPORTED[kind]
    torch.manual_seed(0)
    model = build().eval()
    program = export(model, (torch.randn(4, *shape),), dynamic_shapes=({0: Dim("batch")},))
    for size in (2, 7):
        input = torch.randn(size, *shape, generator=seeded(size))
        torch.testing.assert_close(program.module()(input), model(input))
