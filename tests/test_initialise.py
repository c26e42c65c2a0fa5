"""What networks begin with."""

from __future__ import annotations

import itertools

import pytest
import torch

import setwise as sw
from setwise.models import GumbelSoftmax, SetAutoencoder, find_prototypes, start_at_prototypes

FEATURES = sw.Features(sw.Bernoulli(3), sw.Categorical(4, scored_as="bernoulli"))


def grey_sets() -> torch.Tensor:
    """Two kinds of elements, grey features near 0.1 or 0.9, one class of four that never occurs."""
    generator = torch.Generator().manual_seed(1)
    kinds = torch.tensor([[0.1], [0.9]])
    grey = kinds + 0.01 * torch.rand(50, 2, 3, generator=generator)
    chosen = torch.randint(0, 3, (50, 2), generator=generator)
    sets = torch.cat([grey, torch.nn.functional.one_hot(chosen, 4)], dim=-1)
    return sw.shuffle_sets(sets, generator=generator)


def a_model(sets: torch.Tensor) -> SetAutoencoder:
    torch.manual_seed(0)
    return SetAutoencoder(
        size=sets.shape[-2],
        features=FEATURES,
        latent=GumbelSoftmax(5),
        encoder_element_widths=(16,),
        encoder_widths=(16,),
        decoder_width=16,
        dropout=0.0,
    )


def by_first_feature(elements: torch.Tensor) -> torch.Tensor:
    return elements[elements[:, 0].argsort()]


def test_prototypes_are_the_kinds_whatever_the_order() -> None:
    sets = grey_sets()
    found = by_first_feature(find_prototypes(sets, FEATURES))
    assert found[:, :3].sub(torch.tensor([[0.105], [0.905]])).abs().amax() < 0.005
    again = find_prototypes(sw.shuffle_sets(sets, generator=torch.Generator()), FEATURES)
    torch.testing.assert_close(by_first_feature(again), found)


def test_prototypes_cost_no_more_than_any_that_pair_the_same_sets_otherwise() -> None:
    """Beside every way to pair the elements of few sets, each with its averages as prototypes."""
    sets = torch.rand(4, 3, 5, generator=torch.Generator().manual_seed(2))
    features = sw.Features(sw.Bernoulli(5))

    def cost(centres: torch.Tensor) -> float:
        logits = features.from_probs(centres).expand_as(sets)
        return sw.assignment_cross_entropy(logits, sets, features, reduction="sum").item()

    orders = list(itertools.permutations(range(3)))
    least = min(
        cost(torch.stack([one[list(order)] for one, order in zip(sets, way, strict=True)]).mean(0))
        for way in itertools.product(orders[:1], orders, orders, orders)
    )
    assert cost(find_prototypes(sets, features, starts=40)) == pytest.approx(least, rel=1e-5)


def test_prototypes_of_gaussian_features_are_means() -> None:
    generator = torch.Generator().manual_seed(3)
    sets = torch.tensor([[100.0], [-7.0]]) + torch.randn(30, 2, 1, generator=generator)
    found = find_prototypes(sets, sw.Features(sw.Gaussian(1)))
    expected = sets.mean(0)
    torch.testing.assert_close(by_first_feature(found), by_first_feature(expected))


def test_prototypes_need_sets() -> None:
    with pytest.raises(ValueError, match=r"sets: expected at least one.*got \(0, 2, 7\)"):
        find_prototypes(torch.zeros(0, 2, 7), FEATURES)


def test_outputs_begin_at_the_prototypes() -> None:
    sets = grey_sets()
    model, prototypes = a_model(sets), find_prototypes(sets, FEATURES)
    start_at_prototypes(model, sets, prototypes, FEATURES)
    bias = model.decoder.output.bias.unflatten(0, (2, 7))
    torch.testing.assert_close(bias[:, :3].sigmoid(), prototypes[:, :3])
    # The class that never occurs gets a little, and its logit stays finite.
    torch.testing.assert_close(bias[:, 3:].softmax(-1), prototypes[:, 3:], atol=2e-3, rtol=0)
    off = model(sets, temperature=1.0) - bias
    assert 0 < off.abs().mean() < 0.5 * bias.diff(dim=0).abs().mean()


def test_what_is_read_is_standardised() -> None:
    sets = grey_sets()
    model = a_model(sets)
    first = model.encoder.embed[0]
    before = first.weight.clone()
    start_at_prototypes(model, sets, sets[0], FEATURES)
    elements = sets.flatten(0, 1)
    usual = elements.std(0) > 0.02
    standard = (elements - elements.mean(0))[:, usual] / elements.std(0)[usual]
    torch.testing.assert_close(first(elements), standard @ before[:, usual].T, atol=1e-4, rtol=0)
