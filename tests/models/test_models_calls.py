"""What networks refuse, and rule learners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import setwise as sw
from setwise.models import (
    BinaryConcrete,
    DeepSetsEncoder,
    EquivariantRuleLearner,
    GumbelSoftmax,
    SetAutoencoder,
    SetDecoder,
    annealed_temperature,
)
from small_models import TIGHT


def bad_calls() -> dict[str, tuple[Callable[[], object], type[Exception], str]]:
    encoder = DeepSetsEncoder(4, 3, (5,), (5,))
    gumbel, triple, concrete = GumbelSoftmax(3), GumbelSoftmax(3, 3), BinaryConcrete(3)
    decoder = SetDecoder(5, 2, 3, width=4)
    sets, table = torch.rand(2, 3, 4), torch.rand(6, 4)
    tree: Any = "a tree"
    return {
        "features": (lambda: DeepSetsEncoder(0, 3), ValueError, "features: .* 1, got 0"),
        "outputs": (lambda: DeepSetsEncoder(4, 2.5), TypeError, "outputs: .*int, got 2.5"),
        "one width": (lambda: DeepSetsEncoder(4, 3, 7), TypeError, r"element_widths: .*got 7"),
        "widths": (lambda: DeepSetsEncoder(4, 3, (5,), (0,)), ValueError, "widths: .*got 0"),
        "no tensor": (lambda: encoder([1.0]), TypeError, "sets: .*Tensor, got list"),
        "integers": (lambda: encoder(sets.long()), TypeError, r"int64; use sets.float\(\)"),
        "wrong features": (lambda: encoder(sets[..., :2]), ValueError, r"4 in .*\(2, 3, 2\)"),
        "one element": (lambda: encoder(sets[0, 0]), ValueError, r"sets: .*got \(4,\)"),
        "float mask": (lambda: encoder(sets, torch.ones(2, 3)), TypeError, r"valid.bool\(\)"),
        "mask shape": (
            lambda: encoder(sets, torch.ones(3, dtype=torch.bool)),
            ValueError,
            r"valid: .*\(2, 3\), got \(3,\)",
        ),
        "counts": (
            lambda: encoder.from_counts(torch.ones(2, 5), table),
            ValueError,
            r"counts: .*6\].*\(2, 5\)",
        ),
        "count list": (lambda: encoder.from_counts([1] * 6, table), TypeError, "counts: .*list"),
        "table": (lambda: encoder.from_counts(torch.ones(3), sets), ValueError, "elements: .*one"),
        "variables": (lambda: GumbelSoftmax(0), ValueError, "variables: .*got 0"),
        "one category": (lambda: GumbelSoftmax(3, 1), ValueError, "categories: .*2, got 1"),
        "noise": (lambda: BinaryConcrete(3, noise=1), TypeError, "noise: .*got 1"),
        "logits": (lambda: gumbel(torch.rand(2, 3), 1.0), ValueError, r"logits: .*6 .*\(2, 3\)"),
        "cold": (lambda: concrete(torch.rand(3), 0.0), ValueError, "temperature: .*got 0.0"),
        "temperatures": (
            lambda: concrete(torch.rand(3), torch.ones(2)),
            ValueError,
            r"temperature: .*no dimensions, got shape \(2,\)",
        ),
        "no number": (lambda: concrete(torch.rand(3), "hot"), TypeError, "temperature: .*str"),
        "ternary": (
            lambda: triple.codes(torch.rand(9)),
            ValueError,
            "3 categories; .*categories=2",
        ),
        "ternary back": (
            lambda: triple.from_codes(torch.ones(3, dtype=torch.bool)),
            ValueError,
            "3 categories",
        ),
        "float codes": (lambda: gumbel.from_codes(torch.ones(3)), TypeError, r"codes.bool\(\)"),
        "codes": (
            lambda: concrete.from_codes(torch.ones(2, 4, dtype=torch.bool)),
            ValueError,
            r"codes: .*3\].*\(2, 4\)",
        ),
        "steps": (lambda: annealed_temperature(17), ValueError, "progress: .*17; divide"),
        "until": (lambda: annealed_temperature(0.5, until=0.0), ValueError, "until: .*0.0"),
        "start": (lambda: annealed_temperature(0.5, start=-1.0), ValueError, "start: .*-1.0"),
        "hidden": (lambda: SetDecoder(5, 2, 3, hidden_layers=0), ValueError, "hidden_layers: "),
        "dropout": (lambda: SetDecoder(5, 2, 3, dropout=1.5), ValueError, "dropout .*1.5"),
        "decoder": (lambda: decoder(torch.rand(2, 4)), ValueError, r"input: .*5 .*\(2, 4\)"),
        "latent": (lambda: SetAutoencoder(2, 3, tree), TypeError, "latent: .*'a tree'"),
    }


@pytest.mark.parametrize("case", bad_calls())
def test_bad_calls_say_what_was_expected(case: str) -> None:
    call, error, message = bad_calls()[case]
    with pytest.raises(error, match=message):
        call()


def test_features_may_stand_for_their_width() -> None:
    features = sw.Features(sw.Categorical(3), sw.Bernoulli(2))
    decoder = SetDecoder(4, 2, features, width=8)
    assert decoder(torch.rand(3, 4)).shape == (3, 2, features.width)
    encoder = DeepSetsEncoder(features, 6, (8,), (8,))
    assert encoder(torch.rand(3, 2, features.width)).shape == (3, 6)


def test_a_rule_learner_does_not_care_for_names() -> None:
    """Constants that are renamed in the head are renamed in the body, and nothing else changes."""
    torch.manual_seed(0)
    learner = EquivariantRuleLearner(
        constants=7, arguments=3, atoms=4, predicates=3, width=16
    ).double()
    head, order = torch.rand(5, 3 + 3 * 7).double(), torch.randperm(7)

    def renamed(blocks: Tensor, count: int) -> Tensor:
        rest = blocks[..., 3:].unflatten(-1, (count, 7))[..., order].flatten(-2)
        return torch.cat([blocks[..., :3], rest], dim=-1)

    body = learner(head)
    assert body.shape == (5, 4, 3 + 2 * 7)
    torch.testing.assert_close(learner(renamed(head, 3)), renamed(body, 2), **TIGHT)
    assert not learner(renamed(head, 3)).allclose(body)
    # Arguments that change places are another rule, and the predicate is read.
    swapped = torch.cat([head[:, :3], head[:, 10:17], head[:, 3:10], head[:, 17:]], dim=1)
    assert not learner(swapped).allclose(body)
    assert not learner(torch.cat([head[:, :3].flip(1), head[:, 3:]], dim=1)).allclose(body)


def test_a_rule_learner_learns_a_chain() -> None:
    """From 200 clauses over 12 constants, what holds of 100 others."""
    torch.manual_seed(0)
    paths = torch.rand(300, 12).argsort(dim=1)[:, :4]
    hot = nn.functional.one_hot(paths, 12).float()
    heads = torch.cat([torch.tensor([0.0, 1.0]).expand(300, 2), hot.flatten(1)], dim=1)
    neighbour = torch.tensor([1.0, 0.0]).expand(300, 3, 2)
    bodies = torch.cat([neighbour, hot[:, :-1], hot[:, 1:]], dim=-1)
    features = sw.Features(sw.Categorical(2), sw.Categorical(12), sw.Categorical(12))
    learner = EquivariantRuleLearner(constants=12, arguments=4, atoms=3, width=32)
    optimiser = torch.optim.Adam(learner.parameters(), lr=5e-3)
    for step in range(200):
        temperature = 10.0 ** max(0.0, 1 - step / 100)
        loss = sw.set_cross_entropy(
            learner(heads[:200]), bodies[:200], features, temperature=temperature
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert sw.metrics.set_success(learner(heads[200:]), bodies[200:], features) == 1
