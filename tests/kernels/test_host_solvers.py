"""Solvers in plain numbers on a CPU against those in logarithms, wherever either may go wrong."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor

from setwise.kernels import bethe, fixed_point, permanent, sinkhorn
from setwise.kernels import host_bethe as messages
from setwise.kernels import host_permanent as sums
from setwise.kernels import host_sinkhorn as plans
from setwise.kernels.host_weights import FLOOR, weigh

SHAPES = [(1, 1), (4, 7), (6, 6), (6, 4)]
SCALES = [0.3, 30.0, 1e4]
SLOW = pytest.mark.slow
KINDS = ["random", "wrong", "planted"]


def problem(kind: str, M: int, N: int, scale: float) -> tuple[Tensor, ...]:
    """Scores [12, M, N], odds [12, N] and masks, by which half of the sets are whole.

    Where all is "wrong", every target would have the same outputs.
    """
    B, generator = 12, torch.Generator().manual_seed(M * N)
    scores = scale * torch.randn(B, M, N, generator=generator, dtype=torch.float64)
    if kind == "wrong":
        scores += 3 * scale * torch.arange(N)
    if kind == "planted":
        own = torch.arange(min(M, N))
        scores[:, own, own] += 5 * scale
    odds = torch.randn(B, N, generator=generator, dtype=torch.float64)
    rows, columns = torch.ones(B, M).bool(), torch.ones(B, N).bool()
    rows[6:] = torch.rand(6, M, generator=generator) < 0.7
    columns[6:] = torch.rand(6, N, generator=generator) < 0.8
    return scores, odds, rows, columns


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several parts of a batch."""
    monkeypatch.setattr(messages, "PAIRS_AT_ONCE", 150)
    monkeypatch.setattr(plans, "PAIRS_AT_ONCE", 150)
    monkeypatch.setattr(sums, "AT_ONCE", 1000)


def no_logarithms(*_: Any) -> Any:
    raise AssertionError("left to logarithms")


class TestWeights:
    @pytest.mark.parametrize("kind", KINDS)
    def test_the_best_matching_weighs_one_and_no_pair_more(self, kind: str) -> None:
        scores, _, rows, columns = problem(kind, 4, 6, 1e3)
        rows &= (rows.sum(1) <= columns.sum(1)).unsqueeze(1)
        valid = rows.unsqueeze(2) & columns.unsqueeze(1)
        logs = torch.where(valid, scores, permanent.NEVER)
        found = weigh(logs, rows, columns, valid, FLOOR)
        assert found.raised is not None
        assert (found.pairs <= 1 + 1e-5).all()
        assert (found.prices >= 0).all()
        assert not found.pairs[~valid].any()
        ones = (found.pairs > 1 - 1e-5).any(2)
        assert ones.equal(rows)
        # What is divided by is what the best matching weighs: brute force over all injections.
        for b in range(len(logs)):
            some = logs[b][rows[b]][:, columns[b]]
            m, n = some.shape
            best = max(
                sum(some[i, j].item() for i, j in enumerate(choice))
                for choice in itertools.permutations(range(n), m)
            )
            assert found.offset()[b].item() == pytest.approx(best, abs=1e-4)

    def test_a_set_without_numbers_does_no_harm_to_others(self) -> None:
        scores, _, rows, columns = problem("wrong", 6, 6, 1e4)
        valid = rows.unsqueeze(2) & columns.unsqueeze(1)
        logs = torch.where(valid, scores, permanent.NEVER)[:6]
        masks = rows[:6], columns[:6], valid[:6]
        right = weigh(logs, *masks, FLOOR)
        logs[0, 0, 0] = torch.nan
        found = weigh(logs, *masks, FLOOR)
        torch.testing.assert_close(found.pairs[1:], right.pairs[1:])

    def test_weights_that_are_near_each_other_need_no_prices(self) -> None:
        scores = problem("random", 4, 7, 1.0)[0]
        all_valid = torch.ones_like(scores).bool()
        found = weigh(scores, all_valid[..., 0], all_valid[:, 0], all_valid, FLOOR)
        assert found.raised is None
        assert not found.prices.any()
        torch.testing.assert_close(found.pairs, (scores - scores.amax(2, keepdim=True)).exp())


@pytest.mark.usefixtures("few_at_once")
class TestBethe:
    # The ends of exclusivity are slow: what lies between them breaks with them, and None is 1.
    @pytest.mark.parametrize(
        "exclusivity", [None, 0.3, 0.999, *(pytest.param(e, marks=SLOW) for e in (0.0, 1.0))]
    )
    @pytest.mark.parametrize("kind", KINDS)
    def test_it_is_what_logarithms_give(self, kind: str, exclusivity: float | None) -> None:
        for (M, N), scale in itertools.product(SHAPES, SCALES):
            scores, odds, rows, columns = problem(kind, M, N, scale)
            shared = None if exclusivity is None else torch.full((12,), exclusivity).double()
            given = scores, odds, shared, rows, columns
            right, got = bethe.bethe(*given), messages.bethe_on_host(*given)
            possible = rows.sum(1) <= columns.sum(1)
            if exclusivity not in (None, 1.0):
                possible = columns.any(1) | ~rows.any(1)
            both = right[3] & got.settled & possible
            assert both.sum() >= 0.9 * (right[3] & possible).sum()
            for name, mine, expected in zip(got._fields, got, right, strict=True):
                assert mine.isfinite().all()
                if name in ("value", "beliefs", "used"):
                    torch.testing.assert_close(
                        mine[both], expected[both], rtol=1e-8, atol=1e-6, msg=f"{M, N, scale}"
                    )

    @pytest.mark.parametrize(
        ("kind", "scale"), [("random", 0.3), ("random", 60.0), ("planted", 0.3), ("planted", 30.0)]
    )
    def test_answers_stay_what_they_are(self, kind: str, scale: float) -> None:
        """In logarithms, too: second derivatives are taken there. With prices, and without."""
        scores, odds, rows, columns = problem(kind, 4, 7, scale)
        got = messages.bethe_on_host(scores, odds, None, rows, columns)
        settled = got.settled & (rows.sum(1) < columns.sum(1))  # else answers go on growing
        assert settled.sum() == 12
        graph = bethe.graph(scores, odds, None, rows, columns)
        after = bethe._answer(graph, bethe._ask(graph, got.answers))
        torch.testing.assert_close(after, got.answers, rtol=0, atol=1e-3)

    @pytest.mark.parametrize("exclusivity", [None, 0.3, 0.9])
    @pytest.mark.parametrize("size", [1.0, 30.0, 300.0])
    @pytest.mark.parametrize("solve", [bethe.bethe, messages.bethe_on_host])
    def test_one_target_or_one_output(
        self, solve: Any, size: float, exclusivity: float | None
    ) -> None:
        """Both are exact, for there is no circle; odds may be large, or large and all alike."""
        generator = torch.Generator().manual_seed(0)
        for alike in (False, True):
            scores = 5 * torch.randn(9, 1, 4, generator=generator, dtype=torch.float64)
            odds = size * torch.randn(9, 4, generator=generator, dtype=torch.float64)
            if alike:
                odds = odds[:, :1].expand(9, 4).contiguous()
            shared = None if exclusivity is None else torch.full((9,), exclusivity).double()
            all_valid = torch.ones(9, 1).bool(), torch.ones(9, 4).bool()
            value = solve(scores, odds, shared, *all_valid)[0]
            right = (scores[:, 0] + odds).logsumexp(1)
            torch.testing.assert_close(value, right, rtol=1e-9, atol=1e-9)
            if shared is None:
                continue
            value = solve(scores.mT, odds[:, :1], shared, *reversed(all_valid))[0]
            right = scores.sum((1, 2)) + odds[:, 0] + torch.log1p(-shared)
            torch.testing.assert_close(value, right, rtol=1e-9, atol=1e-9)

    @pytest.mark.parametrize("exclusivity", [None, 0.3, 0.9])
    def test_large_odds(self, exclusivity: float | None) -> None:
        """Where both have settled, for in logarithms that may take long."""
        shared = None if exclusivity is None else torch.full((12,), exclusivity).double()
        compared = 0
        for (M, N), size in itertools.product(SHAPES, [30.0, 100.0, 700.0]):
            scores, odds, rows, columns = problem("random", M, N, size)
            given = scores, size * odds, shared, rows, columns
            right, got = bethe.bethe(*given), messages.bethe_on_host(*given)
            both = right[3] & got.settled & (rows.sum(1) <= columns.sum(1))
            compared += int(both.sum())
            torch.testing.assert_close(got.value[both], right[0][both], rtol=1e-8, atol=1e-6)
            torch.testing.assert_close(got.beliefs[both], right[1][both], rtol=0, atol=1e-5)
        assert compared > 80

    @pytest.mark.parametrize("size", [5, 70])
    def test_round_by_round(self, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Messages go the same way, also of long lines, where the rest is a difference."""
        monkeypatch.setattr(messages, "bethe", no_logarithms)
        monkeypatch.setattr(messages, "looks", lambda dtype: range(1))
        monkeypatch.setattr(fixed_point, "looks", lambda dtype: range(1))
        for kind, scale in itertools.product(["random", "planted"], [0.1, 3.0, 12.0]):
            scores, odds, rows, columns = problem(kind, size, size + 2, scale)
            rows &= (rows.sum(1) <= columns.sum(1)).unsqueeze(1)
            given = scores, torch.zeros_like(odds), None, rows, columns
            right, got = bethe.bethe(*given), messages.bethe_on_host(*given)
            torch.testing.assert_close(got.value, right[0], rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(got.beliefs, right[1], rtol=1e-7, atol=1e-9)
            torch.testing.assert_close(got.answers, right[4], rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("size", [7, 90])
    def test_what_all_others_add_up_to(self, size: int) -> None:
        """In exact fractions, where one term outweighs the others, or is all there is."""
        terms = torch.rand(3, 4, size, dtype=torch.float64)
        terms[0, 1, 2] = 1e30
        terms[1] = 0.0
        terms[1, 0, 3] = 1.0
        terms[2, :, 1::2] *= 1e-25
        besides = torch.rand(3, 4, 1, dtype=torch.float64)
        besides[1] = 0.0
        rest = messages._rest(terms, besides)
        for b, line, e in itertools.product(range(3), range(4), range(size)):
            numbers = [Fraction(v) for v in terms[b, line].tolist()]
            right = sum(numbers) - numbers[e] + Fraction(besides[b, line, 0].item())
            assert rest[b, line, e].item() == pytest.approx(float(right), rel=1e-7, abs=1e-139)

    @pytest.mark.parametrize(
        ("scores", "odds"),
        [
            pytest.param([[0.0, -1.0], [1.0, 0.0]], [1e3, 0.0], id="odds that are no number"),
            # Weights are relative to the first output, and -310 is below the floor.
            pytest.param([[0.0, -310.0]], [-250.0, 100.0], id="a pair that weighs too much"),
        ],
    )
    def test_what_plain_numbers_cannot_hold_is_left_to_logarithms(
        self, scores: list[list[float]], odds: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of outputs that may be shared; the set beside it is not."""
        harmless = torch.zeros(len(scores), 2).double()
        both = torch.stack([torch.tensor(scores).double(), harmless])
        of_both = torch.stack([torch.tensor(odds).double(), harmless[0]])
        rows, columns = (torch.ones_like(both[:, :, 0]).bool(), torch.ones(2, 2).bool())
        given = both, of_both, torch.full((2,), 0.5).double(), rows, columns
        asked: list[int] = []

        def listened(*some: Any) -> Any:
            asked.append(len(some[0]))
            return bethe.bethe(*some)

        monkeypatch.setattr(messages, "bethe", listened)
        got, right = messages.bethe_on_host(*given), bethe.bethe(*given)
        assert asked == [1]
        torch.testing.assert_close(got.value, right[0], rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(got.beliefs, right[1], rtol=1e-8, atol=1e-8)


@pytest.mark.usefixtures("few_at_once")
class TestExact:
    @pytest.mark.parametrize("kind", KINDS)
    def test_it_is_what_logarithms_give(self, kind: str) -> None:
        for (M, N), scale in itertools.product(SHAPES, SCALES):
            scores, _, rows, columns = problem(kind, M, N, scale)
            right = permanent.log_permanent(scores, rows, columns, record=True)
            got = sums.log_permanent_on_host(scores, rows, columns, record=True)
            assert all(found.isfinite().all() for found in got)
            possible = rows.sum(1) <= columns.sum(1)
            for mine, expected in zip(got, right, strict=True):
                torch.testing.assert_close(mine[possible], expected[possible], rtol=1e-9, atol=1e-9)
            alone, nothing = sums.log_permanent_on_host(scores, rows, columns, record=False)
            assert alone.equal(got[0])
            assert nothing.shape == (12, 0, N)


@pytest.mark.usefixtures("few_at_once")
class TestTransport:
    @pytest.mark.parametrize("t", [0.1, 10.0])
    def test_it_is_what_logarithms_give(self, t: float) -> None:
        """Settled or not, for rounds are the same."""
        for (M, N), scale in itertools.product(SHAPES, SCALES):
            scores, _, rows, columns = problem("random", M, N, 1.0)
            rows[:, 0] = columns[:, 0] = True
            costs = scale * scores.square()
            a, b = (valid.double() / valid.sum(1, keepdim=True) for valid in (rows, columns))
            value, plan, settled, potentials = sinkhorn.transport_by_logarithms(
                costs, a, b, t, None
            )
            got = plans.transport_on_host(costs, a, b, t)
            assert all(found.isfinite().all() for found in got)
            torch.testing.assert_close(got[0], value, rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(got[1], plan, rtol=1e-5, atol=1e-8)
            assert got[2].equal(settled)
            there = torch.where(b > 0, potentials, 0.0)
            torch.testing.assert_close(got[3], there, rtol=1e-6, atol=1e-6)
