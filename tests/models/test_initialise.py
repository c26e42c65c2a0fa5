"""What networks begin with."""

from __future__ import annotations

import itertools

import pytest
import torch

import setwise as sw
from setwise.models import (
    GumbelSoftmax,
    SetAutoencoder,
    find_prototypes,
    pair_with_prototypes,
    start_at_prototypes,
)

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


def test_the_order_of_elements_does_not_order_the_prototypes() -> None:
    """Else a loss that knows a fixed order would find every output in its place."""
    kinds = torch.linspace(0.1, 0.9, 5).unsqueeze(-1)
    sets = kinds + 0.01 * torch.rand(20, 5, 3, generator=torch.Generator().manual_seed(4))
    orders = [
        find_prototypes(sets, sw.Features(sw.Bernoulli(3)), seed=seed)[:, 0].argsort().tolist()
        for seed in range(4)
    ]
    assert len({tuple(order) for order in orders}) > 1


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


def test_what_is_not_valid_has_no_say_in_prototypes() -> None:
    """Kinds that are missing from many sets are found, whatever stands in their place."""
    sets, generator = grey_sets(), torch.Generator().manual_seed(3)
    valid = torch.rand(50, 2, generator=generator) < 0.7
    valid[0] = True
    filled = sets.masked_fill(~valid.unsqueeze(-1), 7.0)
    found = by_first_feature(find_prototypes(filled, FEATURES, valid=valid))
    first = sets[..., 0] > 0.5
    for kind, prototype in enumerate(found):
        own = sets[valid & (first == bool(kind))]
        torch.testing.assert_close(prototype, own.mean(0))


def test_prototypes_begin_with_a_full_set() -> None:
    sets = grey_sets()
    valid = torch.ones(50, 2, dtype=torch.bool)
    valid[:, 1] = False
    with pytest.raises(ValueError, match=r"valid: expected at least one set with all of its 2"):
        find_prototypes(sets, FEATURES, valid=valid)
    with pytest.raises(ValueError, match=r"valid: expected booleans of shape \[50, 2\], got"):
        find_prototypes(sets, FEATURES, valid=valid.float())
    with pytest.raises(ValueError, match="valid: expected at least one element in the 50 sets"):
        find_prototypes(sets, FEATURES, valid=torch.zeros_like(valid))


def test_prototypes_of_gaussian_features_are_means() -> None:
    generator = torch.Generator().manual_seed(3)
    sets = torch.tensor([[100.0], [-7.0]]) + torch.randn(30, 2, 1, generator=generator)
    found = find_prototypes(sets, sw.Features(sw.Gaussian(1)))
    expected = sets.mean(0)
    torch.testing.assert_close(by_first_feature(found), by_first_feature(expected))


@pytest.mark.parametrize(
    ("sets", "problem"),
    [
        (torch.zeros(0, 2, 7), r"sets: expected at least one.*got \(0, 2, 7\)"),
        (torch.zeros(4, 2, 6), "7"),
        (torch.full((4, 2, 7), 16.0), "sets: Bernoulli features must be probabilities"),
        (torch.full((4, 2, 7), torch.nan), "found values from nan"),
    ],
)
def test_prototypes_need_sets(sets: torch.Tensor, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        find_prototypes(sets, FEATURES)


def test_pairs_are_those_of_least_cost() -> None:
    """Beside all pairings, which the costs of an assignment loss decide between."""
    sets = torch.rand(6, 3, 5, generator=torch.Generator().manual_seed(2))
    features, prototypes = sw.Features(sw.Bernoulli(5)), torch.rand(3, 5).mul(0.9).add(0.05)
    found = pair_with_prototypes(sets, prototypes.double(), features)
    logits = features.from_probs(prototypes)
    for one, pairing in zip(sets, found.tolist(), strict=True):
        costs = {
            order: sw.ordered_cross_entropy(logits, one[list(order)], features).item()
            for order in itertools.permutations(range(3))
        }
        assert tuple(pairing) == min(costs, key=costs.__getitem__)


@pytest.mark.parametrize(
    ("prototypes", "problem"),
    [
        (torch.rand(3, 7), r"prototypes: expected shape \[2, 7\].*got \[3, 7\]"),
        (torch.full((2, 7), 16.0), "prototypes: Bernoulli features must be probabilities"),
        (torch.full((2, 7), torch.nan), "prototypes: .*found values from nan"),
    ],
)
def test_pairs_need_prototypes(prototypes: torch.Tensor, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        pair_with_prototypes(grey_sets(), prototypes, FEATURES)


def test_a_start_that_does_not_fit_changes_nothing() -> None:
    sets = grey_sets()
    model = a_model(sets)
    before = [weight.clone() for weight in model.parameters()]
    with pytest.raises(ValueError, match=r"prototypes: expected shape \[2, 7\].*got \[3, 7\]"):
        start_at_prototypes(model, sets, FEATURES, torch.rand(3, 7))
    assert all(map(torch.equal, model.parameters(), before))


def test_outputs_begin_at_the_prototypes() -> None:
    sets = grey_sets()
    model, prototypes = a_model(sets), find_prototypes(sets, FEATURES)
    drawn = model.decoder.output.weight.clone()
    start_at_prototypes(model, sets, FEATURES)
    bias = model.decoder.output.bias.unflatten(0, (2, 7))
    torch.testing.assert_close(bias[:, :3].sigmoid(), prototypes[:, :3])
    # The class that never occurs gets one part in a thousand among four.
    torch.testing.assert_close(bias[:, 3:].softmax(-1), 0.999 * prototypes[:, 3:] + 0.001 / 4)
    torch.testing.assert_close(model.decoder.output.weight, 0.1 * drawn)


def test_what_is_read_is_standardised_where_it_varies() -> None:
    sets = grey_sets()
    model = a_model(sets)
    first = model.encoder.embed[0]
    before = first.weight.clone()
    start_at_prototypes(model, sets, FEATURES, sets[0])
    elements = sets.flatten(0, 1)
    deviation = elements.std(0, correction=0)
    deviation[6] = 1.0  # the class that never occurs
    read = (elements - elements.mean(0)) / deviation
    torch.testing.assert_close(first(elements), read @ before.T, atol=1e-4, rtol=0)
    torch.testing.assert_close(first.weight[:, 6], before[:, 6])
