"""The likelihood of a set: against all matchings, one by one, and against all sets of a world."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.nn import functional as F

import setwise as sw
from matchings import log_sum
from strategies import Call, calls, pairwise_costs

SLACK = 1e-7


def _by_definition(call: Call, presence: Tensor | None, presence_weight: float = 1.0) -> Tensor:
    """All injective maps in float64."""
    values = []
    for b, costs in enumerate(pairwise_costs(call)):
        M, N = costs.shape
        rows = torch.ones(M).bool() if call.target_valid is None else call.target_valid[b]
        columns = torch.ones(N).bool() if call.input_valid is None else call.input_valid[b]
        if rows.sum() > columns.sum():
            values.append(torch.tensor(math.inf).double())
            continue
        if call.weight is not None:
            costs = costs * call.weight[b].double().unsqueeze(-1)
        absent = torch.zeros(()).double()
        if presence is not None:
            c = presence[b].double().sigmoid()
            costs = costs - presence_weight * (c / (1 - c)).log()
            absent = -presence_weight * (1 - c[columns]).log().sum()
        values.append(absent - log_sum(-costs[rows][:, columns]))
    return torch.stack(values)


@settings(max_examples=25)
@given(call=calls())
def test_exact_likelihood_is_the_sum_over_all_injections(call: Call) -> None:
    got = call.run(sw.set_likelihood, method="exact")
    torch.testing.assert_close(got, _by_definition(call, None), rtol=1e-10, atol=1e-10)


@settings(max_examples=15)
@given(call=calls())
def test_with_presence_too(call: Call) -> None:
    generator = torch.Generator().manual_seed(0)
    presence = 2 * torch.randn(call.logits.shape[:2], generator=generator).double()
    for weight in (1.0, 0.3):
        got = call.run(sw.set_likelihood, method="exact", presence=presence, presence_weight=weight)
        expected = _by_definition(call, presence, weight)
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@settings(max_examples=15)
@given(call=calls(weighted=False))
def test_chain_of_inequalities(call: Call) -> None:
    """SH <= exact <= Bethe <= assignment, for sets of any size and masks."""
    exact = call.run(sw.set_likelihood, method="exact")
    bethe, settled = call.run(sw.set_likelihood, method="bethe", return_settled=True)
    possible = exact.isfinite()
    assert (call.run(sw.set_cross_entropy) <= exact + SLACK).all()
    assert (exact <= bethe + SLACK)[settled & possible].all()
    assert (bethe <= call.run(sw.assignment_cross_entropy) + SLACK)[settled & possible].all()
    assert bethe[~possible].eq(math.inf).all()


# Slow: 10,000 matrices; the test above draws some of them.
@pytest.mark.slow
@pytest.mark.parametrize(("M", "N"), [(2, 2), (3, 3), (4, 4), (5, 5), (3, 5), (4, 7)])
def test_chain_of_inequalities_on_many_matrices(M: int, N: int) -> None:
    generator = torch.Generator().manual_seed(M + N)
    B = 1700
    logits = 3 * torch.randn(B, N, 5, generator=generator, dtype=torch.float64)
    target = torch.randint(0, 2, (B, M, 5), generator=generator).double()
    presence = torch.randn(B, N, generator=generator, dtype=torch.float64)
    outputs = torch.randint(1, N + 1, (B,), generator=generator)
    lengths = torch.randint(0, M + 1, (B,), generator=generator).minimum(outputs)
    for masks in ({}, {"input_valid": outputs, "target_valid": lengths}):
        for options in ({}, {"presence": presence}):
            given_ = {**masks, **options, "reduction": "none"}
            exact = sw.set_likelihood(logits, target, method="exact", **given_)
            bethe, settled = sw.set_likelihood(
                logits, target, method="bethe", return_settled=True, **given_
            )
            if not options:
                assert (sw.set_cross_entropy(logits, target, **given_) <= exact + SLACK).all()
            assert settled.double().mean() > 0.9
            assert (exact <= bethe + SLACK)[settled].all()
            most = (outputs if masks else torch.full((B,), N)) / 2 * math.log(2)
            assert (bethe - exact <= most + SLACK)[settled].all()


def _world(options: dict[str, Any]) -> float:
    """The summed probability of all multisets that three outputs over three classes may produce."""
    generator = torch.Generator().manual_seed(1)
    N, features = 3, sw.Features(sw.Categorical(3))
    logits = torch.randn(N, 3, generator=generator, dtype=torch.float64)
    sizes = range(N + 1) if "presence" in options else [N]
    total = 0.0
    for size in sizes:
        for classes in itertools.combinations_with_replacement(range(3), size):
            target = F.one_hot(torch.tensor(classes, dtype=torch.long), 3).double()
            loss = sw.set_likelihood(logits, target.reshape(size, 3), features, **options)
            # Orders of equal elements are one and the same outcome.
            same = math.prod(math.factorial(k) for k in Counter(classes).values())
            total += math.exp(-loss.item()) / same
    return total


def test_density_sums_to_one_over_all_sets() -> None:
    assert _world({}) == pytest.approx(1.0, abs=1e-12)
    presence = torch.tensor([1.0, -0.5, 0.3], dtype=torch.float64)
    assert _world({"presence": presence}) == pytest.approx(1.0, abs=1e-12)


def test_a_set_without_targets_costs_the_absence_of_all_outputs() -> None:
    presence = torch.tensor([[0.0, 1.0, -2.0]])
    nothing = torch.zeros(1, 0, 4)
    for method in ("exact", "bethe"):
        loss = sw.set_likelihood(torch.zeros(1, 3, 4), nothing, presence=presence, method=method)
        torch.testing.assert_close(loss, F.softplus(presence).sum())


def test_exclusivity_leads_from_set_cross_entropy_to_bethe() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(8, 5, 6, generator=generator, dtype=torch.float64)
    target = torch.rand(8, 4, 6, generator=generator, dtype=torch.float64).round()
    last = sw.set_cross_entropy(logits, target, reduction="none")
    first = sw.set_likelihood(logits, target, exclusivity=0, reduction="none")
    torch.testing.assert_close(first, last)
    for share in (0.2, 0.5, 0.9, 1.0):
        as_number, as_tensor = (
            sw.set_likelihood(logits, target, exclusivity=e, reduction="none")
            for e in (share, torch.tensor(share))
        )
        torch.testing.assert_close(as_number, as_tensor, rtol=1e-6, atol=1e-6)
        assert (as_number > last).all()
        last = as_number
    bethe = sw.set_likelihood(logits, target, method="bethe", reduction="none")
    torch.testing.assert_close(last, bethe, rtol=1e-8, atol=1e-8)


def test_exclusivity_with_presence_is_bounded_and_rises() -> None:
    """One confident output that serves all targets pays once: nothing is gained from its odds."""
    logits = torch.full((1, 3, 4), 30.0)
    target = torch.ones(1, 3, 4)
    confident = torch.tensor([[200.0, 0.0, 0.0]])
    values = [
        sw.set_likelihood(logits, target, presence=confident, exclusivity=e).item()
        for e in (0.0, 0.5, 0.9, 1.0)
    ]
    assert values == sorted(values)
    assert values[0] >= -3 * math.log(3)


def test_fewer_outputs_than_targets_are_possible_unless_exclusive() -> None:
    logits, target = torch.zeros(2, 4), torch.ones(3, 4)
    assert sw.set_likelihood(logits, target) == math.inf
    assert sw.set_likelihood(logits, target, exclusivity=1.0) == math.inf
    assert sw.set_likelihood(logits, target, exclusivity=0.5).isfinite()
    assert sw.set_likelihood(logits[:0], target, exclusivity=0.5) == math.inf


@pytest.mark.parametrize("method", ["exact", "bethe"])
def test_extreme_logits_stay_finite(method: Any) -> None:
    signs = torch.tensor([[1.0, -1, -1, -1], [-1, 1, -1, -1], [1, 1, 1, 1], [-1, -1, -1, 1]])
    logits = (1e4 * signs).requires_grad_()
    presence = torch.tensor([1e4, -1e4, 1e4, -1e4], requires_grad=True)
    target = torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 1]])
    for options in ({}, {"presence": presence}):
        loss = sw.set_likelihood(logits, target, method=method, **options)
        assert loss.isfinite()
        for grad in torch.autograd.grad(loss, [logits, *options.values()]):
            assert grad.isfinite().all()


def test_auto_is_exact_while_that_is_cheap() -> None:
    generator = torch.Generator().manual_seed(0)
    for M, N, method in ((5, 5, "exact"), (6, 40, "exact"), (15, 15, "bethe"), (10, 60, "bethe")):
        logits = torch.randn(2, N, 4, generator=generator)
        target = torch.rand(2, M, 4, generator=generator)
        expected = sw.set_likelihood(logits, target, method=method)
        assert sw.set_likelihood(logits, target) == expected


def test_methods_say_what_they_cannot_do() -> None:
    many = torch.zeros(1, 19, 2)
    with pytest.raises(
        ValueError, match="method: 'exact' takes sets of at most 18 targets, got 19"
    ):
        sw.set_likelihood(many, many, method="exact")
    with pytest.raises(ValueError, match="method: 'exact' has no exclusivity"):
        sw.set_likelihood(many, many, method="exact", exclusivity=0.5)


def test_exclusivity_has_no_gradient_and_says_so() -> None:
    some = torch.zeros(1, 2, 2)
    with pytest.raises(ValueError, match=r"^exclusivity: .* use exclusivity\.detach\(\)$"):
        sw.set_likelihood(some, some, exclusivity=torch.tensor(0.5, requires_grad=True))
    with pytest.raises(ValueError, match=r"^exclusivity: on meta, but input is on cpu$"):
        sw.set_likelihood(some, some, exclusivity=torch.tensor(0.5, device="meta"))


def test_exclusivity_has_a_schedule() -> None:
    rising = [sw.rising_exclusivity(step / 50) for step in range(51)]
    assert rising[0] == 0.0
    assert rising == sorted(rising)
    assert rising[35:] == [1.0] * 16
    assert rising[34] < 1.0
    assert sw.rising_exclusivity(0.0, until=0.0) == 1.0
    for bad in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="progress: must lie between 0 and 1"):
            sw.rising_exclusivity(bad)
    with pytest.raises(TypeError, match="until: expected a number"):
        sw.rising_exclusivity(0.5, until="end")  # type: ignore[arg-type]
