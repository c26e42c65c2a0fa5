"""Who produced whom: probabilities, samples and the likeliest, against all matchings."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import setwise as sw
from matchings import injections
from strategies import Call, calls, pairwise_costs


def _distribution(call: Call, b: int, presence: Tensor) -> dict[tuple[int, ...], float]:
    """The probability of each matching of one set, by the numbers of all its outputs."""
    costs = pairwise_costs(call)[b]
    if call.weight is not None:
        costs = costs * call.weight[b].unsqueeze(-1)
    scores = presence[b] - costs
    M, N = costs.shape
    rows = range(M) if call.target_valid is None else call.target_valid[b].nonzero()[:, 0].tolist()
    columns = range(N) if call.input_valid is None else call.input_valid[b].nonzero()[:, 0].tolist()
    weights = {}
    for choice in injections(len(rows), len(columns)):
        matching = [-1] * M
        for i, j in zip(rows, choice, strict=True):
            matching[i] = columns[j]
        score = sum(float(scores[i, j]) for i, j in enumerate(matching) if j >= 0)
        weights[tuple(matching)] = math.exp(score)
    total = sum(weights.values())
    return {matching: weight / total for matching, weight in weights.items()}


@settings(max_examples=12)
@given(call=calls(max_size=4))
def test_marginals_and_the_likeliest_by_all_matchings(call: Call) -> None:
    generator = torch.Generator().manual_seed(0)
    presence = torch.randn(call.logits.shape[:2], generator=generator).double()
    options = {
        "presence": presence,
        "input_valid": call.input_valid,
        "target_valid": call.target_valid,
        "weight": call.weight,
    }
    args = (call.logits, call.target, call.features)
    marginals = sw.matching_marginals(*args, method="exact", **options)
    best = sw.most_likely_matching(*args, **options)
    for b in range(len(marginals)):
        expected = torch.zeros_like(marginals[b])
        distribution = _distribution(call, b, presence)
        for matching, probability in distribution.items():
            for i, j in enumerate(matching):
                if j >= 0:
                    expected[i, j] += probability
        torch.testing.assert_close(marginals[b], expected, rtol=1e-9, atol=1e-9)
        if distribution:
            likeliest = distribution[tuple(best[b].tolist())]
            assert likeliest >= max(distribution.values()) - 1e-9


@pytest.mark.parametrize("method", ["exact", "bethe"])
def test_marginals_sum_to_one_over_outputs(method: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 6, 4, generator=generator)
    target = torch.rand(2, 3, 5, 4, generator=generator)
    lengths = torch.tensor([[5, 4, 3], [2, 1, 0]])
    marginals = sw.matching_marginals(logits, target, target_valid=lengths, method=method)
    assert marginals.shape == (2, 3, 5, 6)
    valid = (torch.arange(5) < lengths.unsqueeze(-1)).float()
    torch.testing.assert_close(marginals.sum(-1), valid)
    assert (marginals.sum(-2) <= 1 + 1e-4).all()


@pytest.mark.parametrize("method", ["exact", "bethe"])
def test_derivatives_of_marginals_are_right_or_refused(method: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 3, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.rand(1, 2, 2, generator=generator, dtype=torch.float64)

    def marginals(logits: Tensor) -> Tensor:
        return sw.matching_marginals(logits, target, method=method)

    assert gradcheck(marginals, (logits,))
    if method == "exact":
        assert gradgradcheck(marginals, (logits,))
        return
    with pytest.raises(RuntimeError, match=r"no further derivative: .*'exact' has all of them"):
        gradgradcheck(marginals, (logits,))


@pytest.mark.parametrize(
    ("loss", "options"),
    [(sw.set_likelihood, {"method": "bethe"}), (sw.transport_cross_entropy, {})],
)
def test_third_derivatives_are_refused(loss: Any, options: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 3, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.rand(1, 2, 2, generator=generator, dtype=torch.float64)
    slope: Tensor = loss(logits, target, **options)
    for _ in range(2):
        (slope,) = torch.autograd.grad(slope.square().sum(), logits, create_graph=True)
    with pytest.raises(RuntimeError, match="no further derivative"):
        torch.autograd.grad(slope.sum(), logits)


@pytest.mark.parametrize(
    ("loss", "options"),
    [(sw.set_likelihood, {"method": "bethe"}), (sw.transport_cross_entropy, {})],
)
def test_a_slope_by_two_backward_passes_has_a_gradient(loss: Any, options: dict[str, Any]) -> None:
    """The second pass is by what the first one was given, but depends on the outputs too."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 3, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.rand(1, 2, 2, generator=generator, dtype=torch.float64)
    direction = torch.randn(1, 3, 2, generator=generator, dtype=torch.float64)

    def slope(logits: Tensor) -> Tensor:
        given = torch.ones((), dtype=torch.float64, requires_grad=True)
        (back,) = torch.autograd.grad(loss(logits, target, **options), logits, given, True, True)
        return torch.autograd.grad((back * direction).sum(), given, create_graph=True)[0]

    assert gradcheck(slope, (logits,))


def test_samples_have_the_probability_of_their_matching() -> None:
    """Within five standard deviations, for every matching, of sets with masks and without."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    target = torch.rand(2, 3, 3, generator=generator, dtype=torch.float64).round()
    presence = torch.randn(2, 4, generator=generator, dtype=torch.float64)
    outputs = torch.tensor([[True] * 4, [True, False, True, True]])
    targets = torch.tensor([[True] * 3, [True, False, True]])
    K = 20_000
    found = sw.sample_matchings(
        logits,
        target,
        samples=K,
        generator=generator,
        presence=presence,
        input_valid=outputs,
        target_valid=targets,
    )
    assert found.shape == (K, 2, 3)
    call = Call(sw.Features(sw.Bernoulli(3)), logits, target, outputs, targets, None)
    for b in range(2):
        matchings, counts = found[:, b].unique(dim=0, return_counts=True)
        seen = {tuple(m): int(n) for m, n in zip(matchings.tolist(), counts, strict=True)}
        distribution = _distribution(call, b, presence)
        assert seen.keys() <= distribution.keys()
        for matching, p in distribution.items():
            deviation = abs(seen.get(matching, 0) - K * p) / math.sqrt(K * p * (1 - p))
            assert deviation < 5, matching


def test_targets_may_be_classes() -> None:
    """Integers without a dimension of their own, as many or not as there are sets."""
    generator = torch.Generator().manual_seed(0)
    features, logits = sw.Features(sw.Categorical(4)), torch.randn(2, 6, 4, generator=generator)
    for lead in ((), (2,)):
        outputs = logits[(0,) * (1 - len(lead))]
        classes = torch.randint(0, 4, (*lead, 5), generator=generator)
        vectors = torch.nn.functional.one_hot(classes, 4).float()
        for found in (sw.matching_marginals, sw.most_likely_matching):
            expected = found(outputs, vectors, features)
            torch.testing.assert_close(found(outputs, classes, features), expected)
        drawn = sw.sample_matchings(outputs, classes, features, samples=3, generator=generator)
        assert drawn.shape == (3, *lead, 5)


def test_too_few_outputs() -> None:
    logits, target = torch.zeros(1, 4), torch.zeros(2, 4)
    assert sw.matching_marginals(logits, target).tolist() == [[0.0], [0.0]]
    assert sw.sample_matchings(logits, target).tolist() == [[-1, -1]]
    assert sorted(sw.most_likely_matching(logits, target).tolist()) == [-1, 0]


def test_nothing_to_match() -> None:
    some, nothing = torch.zeros(2, 3, 4), torch.zeros(2, 0, 4)
    assert sw.matching_marginals(some, nothing).shape == (2, 0, 3)
    assert sw.sample_matchings(some, nothing, samples=5).shape == (5, 2, 0)
    assert sw.most_likely_matching(some, nothing).shape == (2, 0)
    assert sw.matching_marginals(nothing, some).shape == (2, 3, 0)


def test_what_cannot_be_sampled() -> None:
    many = torch.zeros(1, 19, 2)
    with pytest.raises(ValueError, match="at most 18 targets, got 19"):
        sw.sample_matchings(many, many)
    for bad in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="samples: expected a number from 1 on"):
            sw.sample_matchings(many[:, :2], many[:, :2], samples=bad)  # type: ignore[arg-type]
