"""Entropic transport against POT, stable matchings by definition, points under plain names."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from scipy.spatial import cKDTree
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import setwise as sw
from setwise.kernels.sinkhorn import TransportValue, transport
from setwise.kernels.stable import stable_matching
from strategies import Call, calls

POINTS = sw.Features(sw.Gaussian(2))


def _clouds(n: int, m: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(n, 2, generator=generator, dtype=torch.float64),
        torch.randn(m, 2, generator=generator, dtype=torch.float64),
    )


def _kl(p: Any, q: Any) -> Any:
    return (p * np.log(p / q) - p + q).sum()


class TestTransport:
    @pytest.mark.parametrize("missing", [None, 0.5, 3.0])
    @pytest.mark.parametrize(("n", "m"), [(5, 5), (7, 4), (3, 6)])
    def test_against_pot(self, n: int, m: int, missing: float | None, ot: Any) -> None:
        y, x = _clouds(n, m)
        costs = torch.cdist(x, y).square().numpy() / 2
        a, b, t = np.full(m, 1 / m), np.full(n, 1 / n), 0.7
        if missing is None:
            plan = ot.sinkhorn(a, b, costs, t, method="sinkhorn_log", stopThr=1e-14)
            margins = 0.0
        else:
            plan = ot.unbalanced.sinkhorn_unbalanced(
                a, b, costs, t, missing, stopThr=1e-14, numItermax=10000
            )
            margins = missing * (_kl(plan.sum(1), a) + _kl(plan.sum(0), b))
        expected = m * ((plan * costs).sum() + t * _kl(plan, np.outer(a, b)) + margins)
        leaf = y.clone().requires_grad_()
        loss, settled = sw.transport_cross_entropy(
            leaf, x, POINTS, temperature=t, missing_cost=missing, return_settled=True
        )
        assert settled
        assert loss.item() == pytest.approx(expected, rel=1e-8)
        (grad,) = torch.autograd.grad(loss, leaf)
        moved = torch.from_numpy(m * plan).T.unsqueeze(-1) * (y.unsqueeze(1) - x.unsqueeze(0))
        torch.testing.assert_close(grad, moved.sum(1), rtol=1e-6, atol=1e-6)
        if missing is not None:
            assert loss <= m * (t + 2 * missing)

    def test_a_low_temperature_is_the_assignment(self) -> None:
        y, x = _clouds(5, 5)
        best = sw.assignment_cross_entropy(y, x, POINTS)
        got = sw.transport_cross_entropy(y, x, POINTS, temperature=0.02)
        assert best - 1e-6 <= got <= best + 5 * 0.02 * math.log(5)

    def test_with_presence_too(self) -> None:
        """Surplus outputs go to nobody, for what their absence costs."""
        y, x = _clouds(6, 4)
        presence = torch.randn(6, generator=torch.Generator().manual_seed(1)).double()
        best = sw.assignment_cross_entropy(y, x, POINTS, presence=presence)
        got = sw.transport_cross_entropy(y, x, POINTS, presence=presence, temperature=0.02)
        assert best - 1e-6 <= got <= best + 6 * 0.02 * math.log(6)
        too_few = sw.transport_cross_entropy(y[:3], x, POINTS, presence=presence[:3])
        assert too_few == math.inf

    @settings(max_examples=8)
    @given(call=calls(masked=True, max_size=4))
    def test_never_below_the_transport_without_entropy(self, call: Call) -> None:
        """Which no plan is: each target with its nearest output, at least."""
        nearest = call.run(sw.set_average)
        if call.weight is not None:
            nearest = nearest * call.weight.where(call.target_valid, 0.0).sum(-1)
        else:
            assert call.target_valid is not None
            nearest = nearest * call.target_valid.sum(-1)
        assert (call.run(sw.transport_cross_entropy) >= nearest - 1e-8).all()

    @pytest.mark.parametrize("missing", [None, 2.0])
    def test_derivatives(self, missing: float | None) -> None:
        costs = torch.rand(2, 2, 3, generator=torch.Generator().manual_seed(0)).double()
        a = torch.tensor([[0.5, 0.5], [1.0, 0.0]]).double()
        b = torch.full((2, 3), 1 / 3).double()

        def value(costs: Tensor) -> Tensor:
            return TransportValue.apply(costs, a, b, 0.8, missing)[0]

        assert gradcheck(value, (costs.requires_grad_(),))
        assert gradgradcheck(value, (costs,))

    def test_operator_keeps_its_promises(self) -> None:
        args = (torch.rand(2, 2, 3), torch.full((2, 2), 0.5), torch.full((2, 3), 1 / 3), 1.0, None)
        torch.library.opcheck(transport, args)

    def test_operator_keeps_its_promises_of_any_strides(self) -> None:
        costs, shares = torch.rand(2, 3, 2).mT, torch.full((2, 2), 0.5)
        torch.library.opcheck(transport, (costs, shares, torch.full((3, 2), 1 / 3).T, 1.0, None))

    @pytest.mark.parametrize("side", ["input_valid", "target_valid"])
    def test_what_has_no_mass_earns_nothing(self, side: str) -> None:
        """However far its potential is: that of a masked element answers to the others alone."""
        y, x = _clouds(3, 3)
        y, x = (y, x + 1e3) if side == "target_valid" else (y + 1e3, x)
        missing = {"missing_cost": 0.01}
        few = {"input_valid": (y[:2], x), "target_valid": (y, x[:2])}[side]
        got = sw.transport_cross_entropy(y, x, POINTS, **missing, **{side: torch.tensor(2)})
        assert got.isfinite()
        torch.testing.assert_close(got, sw.transport_cross_entropy(*few, POINTS, **missing))

    def test_nobody_without_mass_earns_nothing(self) -> None:
        """As many outputs as targets: nothing is left for nobody, who would have cost least."""
        y, x = _clouds(3, 3)
        presence = torch.zeros(3).double()
        call = (y + 1e3, x, POINTS)
        got = sw.transport_cross_entropy(*call, presence=presence, missing_cost=0.01)
        alone = sw.transport_cross_entropy(*call, missing_cost=0.01)
        assert got.isfinite()
        torch.testing.assert_close(got, alone)

    def test_what_does_not_settle_is_said(self) -> None:
        y, x = _clouds(30, 30)
        _, settled = sw.transport_cross_entropy(y, x, POINTS, temperature=1e-4, return_settled=True)
        assert not settled


class TestStableMatching:
    @pytest.mark.parametrize(("M", "N"), [(1, 1), (3, 3), (4, 6), (5, 3)])
    def test_nobody_would_rather_have_each_other(self, M: int, N: int) -> None:
        """Of all matchings it is the only one like that, if no two costs are equal."""
        generator = torch.Generator().manual_seed(M + N)
        costs = torch.rand(20, M, N, generator=generator)
        rows = torch.rand(20, M, generator=generator) < 0.8
        columns = torch.rand(20, N, generator=generator) < 0.8
        for b, matching in enumerate(stable_matching(costs, rows, columns).tolist()):
            targets, outputs = (v[b].nonzero()[:, 0].tolist() for v in (rows, columns))
            stable = [
                pairs
                for pairs in _matchings(targets, outputs)
                if _is_stable(costs[b].tolist(), pairs, targets, outputs)
            ]
            assert stable == [{i: j for i, j in enumerate(matching) if j >= 0}]

    def test_infinite_costs_are_shared_out_too(self) -> None:
        all_valid = torch.ones(1, 3) > 0
        costs = torch.full((1, 3, 3), math.inf)
        costs[0, 1, 2] = 1.0
        matching = stable_matching(costs, all_valid, all_valid)[0].tolist()
        assert matching[1] == 2
        assert sorted(matching) == [0, 1, 2]

    def test_loss_is_that_of_its_pairs(self) -> None:
        y, x = _clouds(4, 3)
        weight = torch.tensor([1.0, 2.0, 0.5]).double()
        costs = torch.cdist(x, y).square() / 2 * weight.unsqueeze(-1)
        (matching,) = stable_matching(costs[None], torch.ones(1, 3) > 0, torch.ones(1, 4) > 0)
        expected = costs[torch.arange(3), matching].sum()
        got = sw.stable_matching_cross_entropy(y, x, POINTS, weight=weight)
        torch.testing.assert_close(got, expected)
        assert got >= sw.assignment_cross_entropy(y, x, POINTS, weight=weight)


def _matchings(targets: list[int], outputs: list[int]) -> list[dict[int, int]]:
    """All that match as many as they can."""
    if len(targets) <= len(outputs):
        choices = itertools.permutations(outputs, len(targets))
        return [dict(zip(targets, choice, strict=True)) for choice in choices]
    found = itertools.permutations(targets, len(outputs))
    return [dict(sorted(zip(choice, outputs, strict=True))) for choice in found]


def _is_stable(
    costs: list[list[float]], pairs: dict[int, int], targets: list[int], outputs: list[int]
) -> bool:
    partner = {j: i for i, j in pairs.items()}
    for i, j in itertools.product(targets, outputs):
        mine = costs[i][pairs[i]] if i in pairs else math.inf
        other = costs[partner[j]][j] if j in partner else math.inf
        if costs[i][j] < mine and costs[i][j] < other:
            return False
    return True


class TestPoints:
    def test_chamfer_against_scipy(self) -> None:
        y, x = _clouds(60, 50)
        there, back = cKDTree(y.numpy()).query(x.numpy())[0], cKDTree(x.numpy()).query(y.numpy())[0]
        expected = (there**2).mean() + (back**2).mean()
        assert sw.chamfer(y, x).item() == pytest.approx(expected)
        assert sw.chamfer(y, x, directed=True).item() == pytest.approx((there**2).mean())

    def test_earth_movers_against_pot(self, ot: Any) -> None:
        y, x = _clouds(20, 20)
        uniform = np.full(20, 1 / 20)
        expected = ot.emd2(uniform, uniform, torch.cdist(x, y).numpy())
        assert sw.earth_movers(y, x).item() == pytest.approx(expected)
        lengths = torch.tensor(12)
        masked = sw.earth_movers(y, x, input_valid=lengths, target_valid=lengths)
        torch.testing.assert_close(masked, sw.earth_movers(y[:12], x[:12]))

    @pytest.mark.parametrize("loss", [sw.earth_movers, sw.chamfer])
    def test_far_from_the_origin(self, loss: Any) -> None:
        """More points than PyTorch takes the distances of without a matrix product."""
        y, x = ((points + 1e4).float() for points in _clouds(40, 40))
        assert loss(y, x).item() == pytest.approx(loss(y.double(), x.double()).item(), rel=1e-5)

    def test_earth_movers_of_sets_that_are_not_equal_in_number(self) -> None:
        y, x = _clouds(4, 4)
        assert sw.earth_movers(y, x, target_valid=torch.tensor(3)) == math.inf
        with pytest.raises(ValueError, match=r"^target: .*take transport_cross_entropy"):
            sw.earth_movers(y, x[:3])

    def test_points_that_are_right_have_a_gradient_of_zero(self) -> None:
        y, x = _clouds(4, 4)
        y[:2] = x[:2]
        y.requires_grad_()
        (grad,) = torch.autograd.grad(sw.earth_movers(y, x), y)
        assert grad.isfinite().all()
        assert gradcheck(sw.earth_movers, (_clouds(4, 4)[0].requires_grad_(), x))

    @pytest.mark.parametrize("loss", [sw.chamfer, sw.earth_movers])
    @pytest.mark.parametrize("bad", [[[0.0]], torch.zeros(3), torch.zeros(2, 0), torch.zeros(2, 3)])
    def test_bad_calls(self, loss: Any, bad: Any) -> None:
        with pytest.raises((ValueError, TypeError), match=r"^(input|target): "):
            loss(bad, torch.zeros(2, 2))
