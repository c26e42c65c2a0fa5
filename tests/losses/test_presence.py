"""Outputs that may not exist: each loss by its definition, and the bounds that make them safe."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.nn import functional as F

import setwise as sw
from matchings import injections
from strategies import Call, calls, pairwise_costs

ROWS = [sw.set_cross_entropy, sw.set_average, sw.hausdorff]
EVERY = [
    *ROWS,
    sw.ordered_cross_entropy,
    sw.assignment_cross_entropy,
    sw.stable_matching_cross_entropy,
    sw.transport_cross_entropy,
    sw.set_likelihood,
]


def _presence(call: Call) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return 2 * torch.randn(call.logits.shape[:2], generator=generator).double()


def _each_set(call: Call, presence: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Costs, weights and probabilities of existence of the valid elements of each set."""
    sets = []
    for b, costs in enumerate(pairwise_costs(call)):
        M, N = costs.shape
        rows = torch.ones(M).bool() if call.target_valid is None else call.target_valid[b]
        columns = torch.ones(N).bool() if call.input_valid is None else call.input_valid[b]
        w = torch.ones(M).double() if call.weight is None else call.weight[b].double()
        sets.append((costs[rows][:, columns], w[rows], presence[b, columns].sigmoid()))
    return sets


def _size_cost(c: Tensor, size: int) -> float:
    """-log of the probability that so many exist, over all outcomes."""
    chances = [
        math.prod((p if bit else 1 - p) for p, bit in zip(c.tolist(), outcome, strict=True))
        for outcome in itertools.product((0, 1), repeat=len(c))
        if sum(outcome) == size
    ]
    return -math.log(sum(chances)) if chances else math.inf


def _expected(loss: Any, call: Call, presence: Tensor, options: dict[str, Any]) -> list[float]:
    values = []
    for costs, w, c in _each_set(call, presence):
        M, N = costs.shape
        if M > N:
            values.append(math.inf)
            continue
        rows = costs - c.log()
        back = costs.amin(0)
        if loss is sw.set_cross_entropy:
            value = float(-(w * (-rows).logsumexp(1)).sum())
        elif loss is sw.set_average:
            value = float((w * rows.amin(1)).sum() / w.sum())
            value += 0.0 if options == {} else float((c * back).sum() / c.sum())
        elif loss is sw.hausdorff:
            value = float((w * rows.amin(1)).amax())
            value = value if options == {} else max(value, float((c * back).amax()))
        else:
            matched = [
                sum(w[i] * costs[i, j] - c[j].log() for i, j in enumerate(choice))
                - sum((1 - c[j]).log() for j in range(N) if j not in choice)
                for choice in injections(M, N)
            ]
            values.append(float(min(matched)))
            continue
        values.append(value + _size_cost(c, M))
    return values


VARIANTS: list[tuple[Any, dict[str, Any]]] = [
    *((loss, {}) for loss in (*ROWS, sw.assignment_cross_entropy)),
    *((loss, {"directed": False}) for loss in (sw.set_average, sw.hausdorff)),
]


@pytest.mark.parametrize(
    ("loss", "options"), VARIANTS, ids=lambda v: getattr(v, "__name__", str(v))
)
@settings(max_examples=12)
@given(call=calls(max_size=4))
def test_losses_with_presence_are_their_definition(
    loss: Any, options: dict[str, Any], call: Call
) -> None:
    presence = _presence(call)
    got = call.run(loss, presence=presence, **options)
    expected = torch.tensor(_expected(loss, call, presence, options), dtype=torch.float64)
    torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_engines_agree_at_any_temperature(impl: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    z, x = (torch.randn(2, n, 3, generator=generator).double() for n in (5, 4))
    presence, features = (
        torch.randn(2, 5, generator=generator).double(),
        sw.Features(sw.Gaussian(3)),
    )
    for t in (0.5, 2.0):
        got = sw.set_cross_entropy(z, x, features, presence=presence, temperature=t, impl=impl)
        scores = F.logsigmoid(presence).unsqueeze(1) - torch.cdist(x, z).square() / 2
        rows = -t * (scores / t).logsumexp(-1).sum(-1)
        sizes = torch.tensor([_size_cost(c, 4) for c in presence.sigmoid()], dtype=torch.float64)
        torch.testing.assert_close(got, (rows + sizes).mean())


@settings(max_examples=15)
@given(call=calls(weighted=False))
def test_set_cross_entropy_with_presence_is_bounded(call: Call) -> None:
    """By what it is without, for any presence, which is at least -M ln N for costs from 0 on."""
    plain = call.run(sw.set_cross_entropy)
    N = call.logits.shape[1]
    M = torch.full((len(plain),), call.target.shape[1])
    M = M if call.target_valid is None else call.target_valid.sum(-1)
    assert (plain >= -M * math.log(N) - 1e-9).all()
    for scale in (1.0, 1e2, 1e4):
        value = call.run(sw.set_cross_entropy, presence=scale * _presence(call))
        assert not value.isnan().any()
        assert (value >= plain - 1e-6).all()


def test_presence_cannot_be_driven_below_the_bound() -> None:
    """Descending on everything at once: the form with odds in the rows fell without end here."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 6, 4, generator=generator).requires_grad_()
    presence = torch.zeros(1, 6).requires_grad_()
    target = torch.randint(0, 2, (1, 3, 4), generator=generator).float()
    optimizer = torch.optim.Adam([logits, presence], lr=0.5)
    for _ in range(60):
        loss = sw.set_cross_entropy(logits, target, presence=presence)
        assert loss >= -3 * math.log(6)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert presence.sigmoid().sum().item() == pytest.approx(3.0, abs=0.2)


def test_ordered_loss_with_presence_is_a_loss_of_each_output() -> None:
    generator = torch.Generator().manual_seed(0)
    z, x = torch.randn(2, 3, 4, generator=generator), torch.rand(2, 3, 4, generator=generator)
    presence, lengths = torch.randn(2, 3, generator=generator), torch.tensor([1, 3])
    got = sw.ordered_cross_entropy(z, x, presence=presence, target_valid=lengths)
    there = (torch.arange(3) < lengths.unsqueeze(1)).float()
    plain = sw.ordered_cross_entropy(z, x, target_valid=lengths)
    exists = F.binary_cross_entropy_with_logits(presence, there, reduction="sum") / 2
    torch.testing.assert_close(got, plain + exists)


@pytest.mark.parametrize("loss", EVERY, ids=lambda loss: loss.__name__)
class TestEveryLoss:
    def test_no_targets_cost_the_absence_of_all_outputs(self, loss: Any) -> None:
        z, presence = torch.zeros(1, 3, 4), torch.tensor([[0.0, 1.0, -2.0]])
        nothing = torch.tensor([0])
        got = loss(z, torch.zeros(1, 3, 4), presence=presence, target_valid=nothing)
        torch.testing.assert_close(got, F.softplus(presence).sum())

    def test_outputs_that_are_not_valid_do_not_exist(self, loss: Any) -> None:
        generator = torch.Generator().manual_seed(0)
        z, x = (torch.randn(1, 3, 4, generator=generator).sigmoid() for _ in range(2))
        presence = torch.randn(1, 3, generator=generator)
        masks = {"input_valid": torch.tensor([2]), "target_valid": torch.tensor([2])}
        masked = loss(z, x, presence=presence, **masks)
        torch.testing.assert_close(masked, loss(z[:, :2], x[:, :2], presence=presence[:, :2]))

    def test_weight_zero_leaves_presence_out(self, loss: Any) -> None:
        generator = torch.Generator().manual_seed(0)
        z, x = (torch.randn(1, 3, 4, generator=generator).sigmoid() for _ in range(2))
        presence = torch.randn(1, 3, generator=generator)
        torch.testing.assert_close(loss(z, x, presence=presence, presence_weight=0), loss(z, x))

    def test_gradients(self, loss: Any) -> None:
        generator = torch.Generator().manual_seed(3)
        z = torch.randn(2, 3, 2, generator=generator, dtype=torch.float64, requires_grad=True)
        x = torch.rand(2, 3, 2, generator=generator, dtype=torch.float64)
        presence = torch.randn(2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
        lengths = torch.tensor([2, 1])

        def value(z: Tensor, presence: Tensor) -> Tensor:
            return loss(z, x, presence=presence, presence_weight=0.7, target_valid=lengths)

        assert torch.autograd.gradcheck(value, (z, presence))
        presence_of_16_bits = presence.detach().bfloat16()
        half = loss(z.detach().bfloat16(), x.bfloat16(), presence=presence_of_16_bits)
        assert half.dtype == torch.float32


class TestMatchingCost:
    """What a matching is found by may differ from what it costs."""

    def _sets(self) -> tuple[Tensor, Tensor, sw.Features]:
        features = sw.Features(sw.Gaussian(1), sw.Gaussian(1))
        return torch.tensor([[[0.0, 5.0], [1.0, 0.0]]]), torch.tensor([[[0.0, 0.0]]]), features

    def test_other_weights(self) -> None:
        z, x, features = self._sets()
        by_first = sw.Features(sw.Gaussian(1), sw.Gaussian(1, weight=1e-9))
        loss, matching = sw.assignment_cross_entropy(
            z, x, features, matching_cost=by_first, return_matching=True
        )
        assert matching.tolist() == [[0]]
        assert loss == 12.5
        assert sw.assignment_cross_entropy(z, x, features) == 0.5

    def test_targets_are_allowed_by_other_features_too(self) -> None:
        z, x, features = self._sets()
        bits = sw.Features(sw.Bernoulli(2))
        bad = torch.cat([x, x + 5.0], dim=1)
        with pytest.raises(ValueError, match=r"^matching_cost: target: Bernoulli .* to 5"):
            sw.assignment_cross_entropy(z, bad, features, matching_cost=bits)
        one = torch.tensor([1])  # what a mask hides may be anything
        sw.assignment_cross_entropy(z, bad, features, matching_cost=bits, target_valid=one)

    def test_a_tensor(self) -> None:
        z, x, features = self._sets()
        costs = torch.tensor([[[0.0, 1.0]]])
        assert sw.assignment_cross_entropy(z, x, features, matching_cost=costs) == 12.5
        module = sw.AssignmentCrossEntropyLoss(features)
        assert module(z, x, matching_cost=costs) == 12.5
        assert module(z, x) == 0.5

    def test_a_tensor_for_any_shape(self) -> None:
        generator = torch.Generator().manual_seed(0)
        for shape in (
            (2, 3, 4, 2),
            (2, 0, 4, 2),
            (2, 3, 0, 2),
            (0, 3, 4, 2),
            (3, 4, 2),
            (2, 2, 3, 4, 2),
        ):
            *lead, M, N, F_ = shape
            z, x = torch.randn(*lead, N, F_, generator=generator), torch.rand(*lead, M, F_)
            features = sw.Features(sw.Gaussian(F_))
            costs = torch.cdist(x, z).square() / 2
            given_ = sw.assignment_cross_entropy(
                z, x, features, matching_cost=costs, reduction="none"
            )
            own = sw.assignment_cross_entropy(z, x, features, reduction="none")
            torch.testing.assert_close(given_, own)

    def test_presence_is_part_of_the_cost(self) -> None:
        z, x, features = self._sets()
        presence = torch.tensor([[30.0, -30.0]])
        _, matching = sw.assignment_cross_entropy(
            z, x, features, presence=presence, return_matching=True
        )
        assert matching.tolist() == [[0]]

    @pytest.mark.parametrize(
        "bad", [torch.zeros(1, 2, 1), torch.zeros(1, 1, 2).long(), sw.Features(sw.Gaussian(3)), "x"]
    )
    def test_what_is_no_cost(self, bad: Any) -> None:
        with pytest.raises((ValueError, TypeError), match=r"^matching_cost: "):
            sw.assignment_cross_entropy(*self._sets(), matching_cost=bad)
