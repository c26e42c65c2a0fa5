"""Sums over all matchings against every matching, one by one; Bethe's against what is proven."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from matchings import log_sum, random_problem, restricted
from setwise.kernels import counting, permanent
from setwise.kernels.counting import log_count_probability
from setwise.kernels.matchings import (
    log_sum_of_matchings,
    matching_probabilities,
    sum_matchings,
)

SIZES = [(1, 1), (2, 2), (3, 3), (4, 4), (1, 4), (2, 5), (4, 6), (3, 7), (5, 3)]


def _zeros(scores: Tensor) -> Tensor:
    return torch.zeros_like(scores[:, 0])


def _all_valid(scores: Tensor) -> tuple[Tensor, Tensor]:
    return torch.ones_like(scores[..., 0]).bool(), torch.ones_like(scores[:, 0]).bool()


class TestExact:
    @pytest.mark.parametrize(("M", "N"), SIZES)
    def test_value_and_probabilities_by_brute_force(self, M: int, N: int) -> None:
        scores, rows, columns = random_problem(M * N, 8, M, N, scale=3.0)
        scores.requires_grad_()
        value, pairs = permanent.log_permanent(scores.detach(), rows, columns, record=True)
        expected = torch.stack([log_sum(each) for each in restricted(scores, rows, columns)])
        torch.testing.assert_close(value, expected.detach(), rtol=1e-10, atol=1e-10)
        (gradient,) = torch.autograd.grad(expected.sum(), scores)
        torch.testing.assert_close(pairs, gradient, rtol=1e-10, atol=1e-10)

    def test_value_alone_is_the_same(self) -> None:
        problem = random_problem(0, 8, 4, 6)
        value, pairs = permanent.log_permanent(*problem, record=False)
        assert value.equal(permanent.log_permanent(*problem, record=True)[0])
        assert pairs.shape == (8, 0, 6)

    @pytest.mark.parametrize("M", [9, 16])
    def test_known_permanents_of_larger_sets(self, M: int) -> None:
        """Of ones it is M!, and of a matrix that is 1 but on its diagonal the derangements."""
        derangements = round(math.factorial(M) / math.e)
        hollow = torch.where(torch.eye(M, dtype=torch.bool), -torch.inf, 0.0).double()
        scores = torch.stack([torch.zeros(M, M).double(), hollow.clamp(min=-1e4)])
        value, pairs = permanent.log_permanent(scores, *_all_valid(scores), record=True)
        expected = [math.lgamma(M + 1), math.log(derangements)]
        assert value.tolist() == pytest.approx(expected, rel=1e-12)
        torch.testing.assert_close(pairs[0], torch.full((M, M), 1 / M).double())
        off_diagonal = (1 - torch.eye(M).double()) / (M - 1)
        torch.testing.assert_close(pairs[1], off_diagonal)

    def test_a_batch_in_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        problem = random_problem(1, 7, 3, 5)
        whole = permanent.log_permanent(*problem, record=True)
        monkeypatch.setattr(permanent, "STORED", 2 * 3 * 2**3)  # two sets at a time
        parts = permanent.log_permanent(*problem, record=True)
        torch.testing.assert_close(parts, whole)

    @pytest.mark.parametrize(("M", "N"), [(1, 1), (2, 3)])
    def test_derivatives(self, M: int, N: int) -> None:
        scores, rows, columns = random_problem(5, 2, M, N)
        odds = torch.randn(2, N, generator=torch.Generator().manual_seed(6)).double()

        def value(scores: Tensor, odds: Tensor) -> Tensor:
            return log_sum_of_matchings(scores, odds, None, rows, columns, "exact")[0]

        inputs = (scores.requires_grad_(), odds.requires_grad_())
        assert gradcheck(value, inputs)
        assert gradgradcheck(value, inputs)

    def test_no_graph_is_stored(self) -> None:
        """But for what the value itself needs: one node, whatever the size."""
        scores, rows, columns = random_problem(5, 2, 6, 6)
        value, _ = log_sum_of_matchings(
            scores.requires_grad_(), _zeros(scores), None, rows, columns, "exact"
        )
        assert value.grad_fn is not None
        assert [type(node).__name__ for node, _ in value.grad_fn.next_functions if node] == [
            "AccumulateGrad"
        ]


class TestBethe:
    @pytest.mark.parametrize("masked", [False, True])
    @pytest.mark.parametrize(("M", "N"), [(1, 1), (2, 2), (3, 3), (2, 5), (4, 6)])
    def test_within_the_proven_bounds(self, M: int, N: int, masked: bool) -> None:
        """exact / 2^(N/2) <= Bethe <= exact, with the numbers of valid elements."""
        for scale in (0.3, 3.0):
            scores, rows, columns = random_problem(M + N, 30, M, N, scale)
            if not masked:
                rows, columns = _all_valid(scores)
            problem = (scores, _zeros(scores), None, rows, columns)
            exact, *_ = sum_matchings(*problem, "exact", False)
            bethe, pairs, used, settled, _ = sum_matchings(*problem, "bethe", True)
            assert settled.double().mean() > 0.85
            gap = (exact - bethe)[settled]
            most = columns.sum(-1)[settled] / 2 * math.log(2)
            assert (gap >= -1e-7).all()
            assert (gap <= most + 1e-7).all()
            torch.testing.assert_close(pairs.sum(-1), rows.double())
            assert (used[settled] <= 1 + 1e-7).all()

    def test_known_values_of_equal_scores(self) -> None:
        """Vontobel (2013), for ones: (n - 1)^(n (n - 1)) / n^(n (n - 2))."""
        for n in range(2, 8):
            scores = torch.zeros(1, n, n).double()
            value = sum_matchings(scores, _zeros(scores), None, *_all_valid(scores), "bethe", True)
            expected = n * (n - 1) * math.log(n - 1) - n * (n - 2) * math.log(n)
            assert value[0].item() == pytest.approx(expected, abs=1e-9)

    def test_free_energy_is_least_at_its_beliefs(self) -> None:
        """The energy, written out, of any other doubly stochastic matrix is larger."""
        scores, _, _ = random_problem(3, 1, 4, 4)
        value, pairs, *_ = sum_matchings(
            scores, _zeros(scores), None, *_all_valid(scores), "bethe", True
        )

        def energy(p: Tensor) -> Tensor:
            entropy = torch.special.xlogy(p, p) - torch.special.xlogy(1 - p, 1 - p)
            return (entropy - p * scores).sum()

        assert energy(pairs).item() == pytest.approx(-value.item(), abs=1e-8)
        for shift in (1, 2, 3):
            other = 0.99 * pairs + 0.01 * torch.eye(4).double().roll(shift, 0)
            assert energy(other) > energy(pairs)

    # Slow where every entry of the second derivative is a run of messages of several pairs.
    @pytest.mark.parametrize("exclusivity", [None, 0.6])
    @pytest.mark.parametrize(("M", "N"), [(1, 2), pytest.param(2, 3, marks=pytest.mark.slow)])
    def test_derivatives(self, M: int, N: int, exclusivity: float | None) -> None:
        scores, rows, columns = random_problem(7, 2, M, N)
        odds = torch.randn(2, N, generator=torch.Generator().manual_seed(6)).double()
        shared = None if exclusivity is None else scores.new_full((2,), exclusivity)

        def value(scores: Tensor, odds: Tensor) -> Tensor:
            return log_sum_of_matchings(scores, odds, shared, rows, columns, "bethe")[0]

        inputs = (scores.requires_grad_(), odds.requires_grad_())
        assert gradcheck(value, inputs)
        assert gradgradcheck(value, inputs)

    # Slow: every entry of the second derivative is a run of messages. Smaller sets are above.
    @pytest.mark.slow
    def test_second_derivatives_where_all_outputs_are_used(self) -> None:
        scores, _, _ = random_problem(8, 1, 3, 3)

        def value(scores: Tensor) -> Tensor:
            odds, masks = _zeros(scores), _all_valid(scores)
            return log_sum_of_matchings(scores, odds, None, *masks, "bethe")[0]

        assert gradgradcheck(value, (scores.requires_grad_(),))

    def test_exclusivity_rises_from_rows_to_matchings(self) -> None:
        """At 0 the product over targets of sums over outputs, at 1 Bethe's; falling in between."""
        for M, N in ((3, 3), (4, 6)):
            scores, rows, columns = random_problem(M, 15, M, N, scale=3.0)
            problem = (scores, _zeros(scores))
            alone = torch.where(columns.unsqueeze(1), scores, -torch.inf).logsumexp(-1)
            last = torch.where(rows, alone, 0.0).sum(-1)
            for share in (0.0, 0.1, 0.5, 0.9):
                shared = scores.new_full((15,), share)
                value, _, _, settled, _ = sum_matchings(
                    *problem, shared, rows, columns, "bethe", True
                )
                assert settled.all()
                if share == 0.0:
                    torch.testing.assert_close(value, last, rtol=1e-12, atol=1e-12)
                assert (value <= last + 1e-9).all()
                last = value
            at_one, plain = (
                sum_matchings(*problem, shared, rows, columns, "bethe", True)
                for shared in (scores.new_ones(15), None)
            )
            torch.testing.assert_close(at_one[0], plain[0], rtol=1e-9, atol=1e-9)
            assert (plain[0] <= last + 1e-6)[plain[3]].all()

    def test_what_does_not_settle_is_said(self) -> None:
        """Two ways that weigh nearly the same are where messages hardly move."""
        scores = torch.tensor([[[0.0, 0.0], [0.0, 1e-3]], [[0.0, 0.0], [0.0, 9.0]]]).double()
        *_, settled, _ = sum_matchings(
            scores, _zeros(scores), None, *_all_valid(scores), "bethe", True
        )
        assert settled.tolist() == [False, True]


@pytest.mark.parametrize("method", ["exact", "bethe"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_scores_stay_finite(method: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    for M, N in ((3, 3), (3, 5)):
        scores = torch.randint(-1, 2, (20, M, N), generator=generator).to(dtype) * 1e4
        odds = torch.randint(-1, 2, (20, N), generator=generator).to(dtype) * 1e4
        value, pairs, used, *_ = sum_matchings(
            scores, odds, None, *_all_valid(scores), method, True
        )
        for found in (value, pairs, used):
            assert found.isfinite().all()


@pytest.mark.parametrize("method", ["exact", "bethe"])
def test_probabilities_have_derivatives_of_their_own(method: str) -> None:
    scores, rows, columns = random_problem(9, 2, 2, 3)

    def pairs(scores: Tensor) -> Tensor:
        return matching_probabilities(scores, _zeros(scores), None, rows, columns, method)[0]

    assert gradcheck(pairs, (scores.requires_grad_(),))


@pytest.mark.parametrize("method", ["exact", "bethe"])
def test_operator_keeps_its_promises(method: Any) -> None:
    scores, rows, columns = random_problem(2, 3, 2, 3)
    args = (scores, _zeros(scores), None, rows, columns, method, True)
    torch.library.opcheck(sum_matchings, args)


class TestCounts:
    @pytest.fixture(autouse=True, params=["coins", "frequencies"])
    def way(
        self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[None]:
        ways: list[str] = []
        honest, is_eager = counting.counted, request.param == "coins"

        def counted(*args: Any) -> Any:
            ways.append("coins")
            return honest(*args)

        monkeypatch.setattr(counting, "is_eager", lambda: is_eager)
        monkeypatch.setattr(counting, "counted", counted)
        yield
        assert bool(ways) == is_eager

    def test_against_every_outcome(self) -> None:
        """Of five coins, two of which are not there for some sets."""
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(20, 5, generator=generator, dtype=torch.float64)
        valid = torch.rand(20, 5, generator=generator) < 0.7
        count = torch.randint(0, 5, (20,), generator=generator).clamp(max=valid.sum(-1))
        outcomes = torch.cartesian_prod(*[torch.tensor([0.0, 1.0]).double()] * 5)
        p = (logits.sigmoid() * valid).unsqueeze(1)
        chances = torch.where(outcomes == 1, p, 1 - p).prod(-1)
        expected = (chances * (outcomes.sum(-1) == count.unsqueeze(1))).sum(-1).log()
        got = log_count_probability(logits, valid, count)
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
        assert log_count_probability(logits * 1e4, valid, count).isfinite().all()

    @pytest.mark.parametrize(("N", "scale"), [(1, 1.0), (40, 3.0), (41, 100.0), (150, 1.0)])
    def test_coin_after_coin(self, N: int, scale: float) -> None:
        """In logarithms, all terms positive; also what is as unlikely as can be."""
        generator = torch.Generator().manual_seed(N)
        logits = scale * torch.randn(N, generator=generator, dtype=torch.float64)
        numbers = np.array([0.0] + [-np.inf] * N)
        for z in logits.tolist():
            happens, fails = -np.logaddexp(0.0, -z), -np.logaddexp(0.0, z)
            numbers[1:] = np.logaddexp(numbers[1:] + fails, numbers[:-1] + happens)
            numbers[0] += fails
        wanted = torch.tensor([0, N // 3, N // 2, N - 1, N])
        args = (torch.ones(5, N) > 0, wanted)
        got = log_count_probability(logits.expand(5, N), *args)
        torch.testing.assert_close(got, torch.from_numpy(numbers)[wanted], rtol=1e-10, atol=1e-10)
        single = log_count_probability(logits.expand(5, N).float(), *args)
        torch.testing.assert_close(single.double(), got, rtol=1e-5, atol=1e-5)

    def test_derivatives(self) -> None:
        """By a coin: the chance that it shows, given the number, less the chance without."""
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(4, 5, generator=generator, dtype=torch.float64).requires_grad_()
        valid = torch.tensor([[True] * 5, [True] * 5, [True, False, True, True, False], [True] * 5])
        count = torch.tensor([0, 2, 1, 5])

        def value(logits: Tensor) -> Tensor:
            return log_count_probability(logits, valid, count)

        assert gradcheck(value, (logits,))
        assert gradgradcheck(value, (logits,))
        (gradient,) = torch.autograd.grad(value(logits).sum(), logits)
        expected = count - (logits.sigmoid() * valid).sum(-1)
        torch.testing.assert_close(gradient.sum(-1), expected)
        assert (gradient[2, ~valid[2]] == 0).all()

    def test_of_nothing(self) -> None:
        nothing = log_count_probability(torch.zeros(2, 0), torch.ones(2, 0) > 0, torch.zeros(2))
        assert nothing.tolist() == [0.0, 0.0]
        none_valid = log_count_probability(torch.ones(1, 3), torch.zeros(1, 3) > 0, torch.zeros(1))
        assert none_valid.tolist() == [0.0]
