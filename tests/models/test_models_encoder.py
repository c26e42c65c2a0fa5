"""The sizes of the paper's networks, and the encoder, which is blind to order.

Legend: B sets, N elements, F features, L latent variables, U distinct elements.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import setwise as sw
from setwise.models import (
    BinaryConcrete,
    DeepSetsEncoder,
    GumbelSoftmax,
    SetAutoencoder,
    SetDecoder,
)
from small_models import TIGHT, gradients, seeded, small_encoder


def test_the_default_autoencoder_has_the_layers_of_the_paper() -> None:
    """9 x 15 in; two layers of 1000 per element, sum, two of 1000, 100 variables; two of 1000."""
    model = SetAutoencoder(size=9, features=15)
    layers = [
        (name.split(".")[0], part.in_features, part.out_features)
        for name, part in model.named_modules()
        if isinstance(part, nn.Linear)
    ]
    assert layers == [
        ("encoder", 15, 1000),
        ("encoder", 1000, 1000),
        ("encoder", 1000, 1000),
        ("encoder", 1000, 1000),
        ("encoder", 1000, 200),
        ("decoder", 200, 1000),
        ("decoder", 1000, 1000),
        ("decoder", 1000, 135),
    ]
    encoder = 16_000 + 3 * 1_001_000 + 200_200
    decoder = 201_000 + 1_001_000 + 2 * 2_000 + 135_135
    assert sum(p.numel() for p in model.encoder.parameters()) == encoder
    assert sum(p.numel() for p in model.decoder.parameters()) == decoder
    assert sum(p.numel() for p in model.parameters()) == encoder + decoder == 4_560_335
    assert isinstance(model.latent, GumbelSoftmax)
    assert (model.latent.variables, model.latent.categories) == (100, 2)
    assert model(torch.rand(2, 9, 15)).shape == (2, 9, 15)


def test_every_width_goes_to_its_layer() -> None:
    model = SetAutoencoder(3, 4, BinaryConcrete(5), (9, 7), (8, 6), 10, 3, dropout=0.2)
    widths = [part.out_features for part in model.modules() if isinstance(part, nn.Linear)]
    assert widths == [9, 7, 8, 6, 5, 10, 10, 10, 12]
    assert [part.p for part in model.modules() if isinstance(part, nn.Dropout)] == [0.2] * 3


def test_the_layers_stand_in_the_order_of_the_paper() -> None:
    decoder = SetDecoder(2 + 163 * 3, size=2, features=328, width=400)  # rule learning, n = 2
    block = [nn.Linear, nn.ReLU, nn.BatchNorm1d, nn.Dropout]
    assert [type(part) for part in decoder.hidden] == block * 2
    assert [part.p for part in decoder.hidden if isinstance(part, nn.Dropout)] == [0.5, 0.5]
    encoder = DeepSetsEncoder(15, 200)
    assert [type(part) for part in encoder.embed] == [nn.Linear, nn.ReLU] * 2
    assert [type(part) for part in encoder.dense] == [nn.Linear, nn.ReLU] * 2


def test_models_share_no_latent_by_default() -> None:
    assert SetAutoencoder(2, 2).latent is not SetAutoencoder(2, 2).latent


@pytest.mark.parametrize("lead", [(), (5,), (2, 3)])
def test_the_encoder_is_the_formula(lead: tuple[int, ...]) -> None:
    encoder, sets = small_encoder(), torch.randn(*lead, 6, 4, generator=seeded(1)).double()
    e, d = encoder.embed, encoder.dense
    summed = sum(e[2](e[0](sets[..., i, :]).relu()).relu() for i in range(6))
    expected = encoder.output(d[2](d[0](summed).relu()).relu())
    assert encoder(sets).shape == (*lead, 3)
    torch.testing.assert_close(encoder(sets), expected, **TIGHT)


def test_the_encoder_ignores_the_order() -> None:
    encoder, sets = small_encoder(), torch.randn(5, 6, 4, generator=seeded(1)).double()
    shuffled = sw.shuffle_sets(sets, seeded(2))
    torch.testing.assert_close(encoder(shuffled), encoder(sets), **TIGHT)
    for one, two in zip(
        gradients(encoder, encoder(shuffled)), gradients(encoder, encoder(sets)), strict=True
    ):
        torch.testing.assert_close(one, two, **TIGHT)
    # It does look at the elements, at all of their features, and at how many there are.
    other = sets.clone()
    other[:, 2, 3] += 0.1
    assert (encoder(other) - encoder(sets)).abs().amax(-1).gt(1e-4).all()
    assert (encoder(sets[:, :-1]) - encoder(sets)).abs().amax(-1).gt(1e-4).all()


@pytest.mark.parametrize("filling", [0.0, 7.0, math.nan, math.inf])
def test_a_masked_set_is_a_shorter_set(filling: float) -> None:
    encoder, sizes = small_encoder(), [3, 0, 6, 1]
    whole = torch.randn(4, 6, 4, generator=seeded(1)).double()
    valid = torch.arange(6) < torch.tensor(sizes).unsqueeze(-1)
    filled = whole.masked_fill(~valid.unsqueeze(-1), filling)
    masked = encoder(filled, valid)
    short = torch.stack([encoder(one[:n]) for one, n in zip(whole, sizes, strict=True)])
    torch.testing.assert_close(masked, short, **TIGHT)
    for one, two in zip(gradients(encoder, masked), gradients(encoder, short), strict=True):
        torch.testing.assert_close(one, two, **TIGHT)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.uint8])
def test_counts_of_a_table_are_the_same_sets(dtype: torch.dtype) -> None:
    encoder, table = small_encoder(), torch.randn(8, 4, generator=seeded(1)).double()
    table.requires_grad_()
    which = torch.randint(8, (2, 3, 10), generator=seeded(2))  # more draws than rows: some repeat
    counts = (which.unsqueeze(-1) == torch.arange(8)).sum(-2).to(dtype)
    assert counts.max() > 1
    from_sets, from_counts = encoder(table[which]), encoder.from_counts(counts, table)
    torch.testing.assert_close(from_counts, from_sets, **TIGHT)
    inputs = [table, *encoder.parameters()]
    weight = torch.randn(from_sets.shape, generator=seeded(3)).double()
    expected = torch.autograd.grad((from_sets * weight).sum(), inputs)
    given = torch.autograd.grad((from_counts * weight).sum(), inputs)
    for one, two in zip(given, expected, strict=True):
        assert two.abs().max() > 0
        torch.testing.assert_close(one, two, **TIGHT)


def test_an_encoder_without_hidden_layers_is_linear_in_the_sum() -> None:
    encoder = DeepSetsEncoder(4, 3, (), ()).double()
    sets = torch.randn(5, 6, 4, generator=seeded(1)).double()
    torch.testing.assert_close(encoder(sets), encoder.output(sets.sum(-2)), **TIGHT)
