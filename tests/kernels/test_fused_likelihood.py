"""The kernels of likelihoods and of transport in Triton's interpreter, against the PyTorch code."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

import triton
import triton.language as tl

import setwise as sw
from matchings import random_problem
from setwise.kernels import bethe, counting, matchings, permanent, sinkhorn
from setwise.kernels.triton import bethe as kernels
from setwise.kernels.triton import (
    plain_bethe,
    plain_messages,
    rounds,
    subset_sums,
    tilting,
    transport,
)

LN_2 = math.log(2)
# Where a GPU is, the kernels are not made for the interpreter; tests/gpu has them compiled.
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are made for the GPU")


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have calls on a CPU served as on a GPU."""
    modules = {"bethe": kernels, "subset_sums": subset_sums, "transport": transport}

    def serve(module: str, scores: Tensor) -> Any:
        return modules[module] if scores.dtype == torch.float32 else None

    for user in (matchings, sinkhorn):
        monkeypatch.setattr(user, "fused", serve)


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles that are smaller than the sets, and one program for all of these."""
    for user in (kernels, plain_bethe, transport):
        monkeypatch.setattr(user, "grid", lambda *_: rounds.Grid(1, 1, 2, 2, 1))
    monkeypatch.setattr(plain_bethe, "planned", plain_bethe.planned.__wrapped__)
    for times in ("ASKED_AT_ONCE", "ADDED_AT_ONCE"):
        monkeypatch.setattr(transport, times, 1)


@pytest.fixture(params=["plain numbers", "logarithms"])
def numbers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In which messages of exclusive outputs are computed; else logarithms are for very many."""
    if request.param == "logarithms":
        monkeypatch.setattr(plain_bethe, "MOST_OUTPUTS", 0)


def problem(B: int, M: int, N: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    scores, rows, columns = random_problem(M + N, B, M, N, scale=3.0)
    odds = torch.randn(B, N, generator=torch.Generator().manual_seed(B)).double()
    return scores, odds, rows, columns


def close(got: Tensor, right: Tensor, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    torch.testing.assert_close(got.double(), right, rtol=rtol, atol=atol)


@triton.jit
def _judge(PARTS, FOUND):
    tl.store(FOUND, rounds.total_of(PARTS, 3))
    tl.store(FOUND + 1, rounds.largest_of(PARTS + 3, 3))
    settled = rounds.settles(6.5, rounds.total_of(PARTS, 3), tl.load(FOUND + 1), 5, 1.0)
    tl.store(FOUND + 2, settled.to(tl.float32))


@triton.jit
def _join(ASKED, MASS, AT, MOVED, AFTER, OFFERED, NOW, FOUND, N, PROGRAMS: tl.constexpr):
    earned, change = transport._columns(
        ASKED, MASS, AT, MOVED, AFTER, OFFERED, NOW, N, 1.0, 1.0, False, PROGRAMS, 4
    )
    tl.store(FOUND, earned)
    tl.store(FOUND + 1, change)


class TestSeveralPrograms:
    """The interpreter has one program a set, but what several have found can be given to it."""

    def test_they_judge_a_set_as_one_would(self) -> None:
        for changes in ([0.2, 0.3, 0.4], [0.9, 0.9, 0.9], [0.1, 1.1, 0.1]):
            found = torch.zeros(3)
            _judge[(1,)](torch.tensor([1.0, 2.0, 3.0, *changes]), found)
            torch.testing.assert_close(found, torch.tensor([6.0, max(changes), max(changes) <= 1]))

    def test_transport_is_shared_out_by_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One program where it need not wait, many rows for many sets, few for wide ones."""
        device = torch.device("cuda")
        for user in (rounds, transport):
            monkeypatch.setattr(user, "sm_count", lambda device: 132)
        shared = [(64, 64, 64), (64, 300, 300), (8, 300, 300), (2, 2000, 2000), (1, 64, 8192)]
        found = [transport._programs(*shape, device) for shape in shared]
        assert found == [1, 5, 10, 16, 16]
        unwrapped = inspect.unwrap(rounds.grid)
        assert unwrapped(64, 300, 300, 5, device, 5, 4) == rounds.Grid(5, 64, 32, 32, 8)
        monkeypatch.setattr(rounds, "sm_count", lambda device: 6)
        # No more than fit at once, for they wait for each other.
        assert unwrapped(64, 300, 300, 10, device, 2, 2) == rounds.Grid(6, 2, 32, 32, 16)

    def test_each_adds_up_what_all_have_asked_of_columns(self) -> None:
        generator = torch.Generator().manual_seed(0)
        asked, (at, before) = (torch.randn(k, 6, generator=generator) for k in (3, 2))
        asked[1, 2], asked[2] = -1e30, -torch.inf  # rows without mass, and no rows at all
        b = torch.full((6,), 1 / 6)
        after, offered, now, found = (torch.zeros(n) for n in (6, 6, 6, 2))
        _join[(1,)](asked, b, at, before, after, offered, now, found, 6, 3)
        together = torch.logsumexp(asked.double() * LN_2, 0) / LN_2
        close(after, -together)
        close(offered, b.log2() - together)
        moved = b * torch.exp2(at + together)
        close(now, moved)
        close(found[0], (b * at * LN_2 - moved).sum())
        close(found[1], (moved - before).abs().sum())


class TestExact:
    @pytest.mark.parametrize(("M", "N"), [(1, 1), (3, 3), (3, 5), (4, 2)])
    def test_value_and_probabilities(self, M: int, N: int) -> None:
        scores, odds, rows, columns = problem(2, M, N)
        value, pairs = permanent.log_permanent(scores + odds.unsqueeze(1), rows, columns, True)
        args = (scores.float(), odds.float(), (rows, columns))
        got, got_pairs, used = subset_sums.log_sum(*args, record=True)
        close(got, value)
        close(got_pairs, pairs)
        close(used, pairs.sum(1))
        alone, nothing, _ = subset_sums.log_sum(*args, record=False)
        assert alone.equal(got)
        assert nothing.shape == (2, 0, N)

    def test_in_parts_and_by_small_tiles(self, monkeypatch: pytest.MonkeyPatch) -> None:
        scores, odds, rows, columns = problem(3, 4, 4)
        value, pairs = permanent.log_permanent(scores + odds.unsqueeze(1), rows, columns, True)
        plan = subset_sums._plan(1, 4, True, True, True)
        kind = dict.fromkeys(("MASKED", "PRESENCE", "RECORD"), True)
        small = subset_sums.launcher(
            subset_sums.log_permanent, kind | {"BLOCK_M": 4, "BLOCK_T": 2}, 4, 1
        )
        monkeypatch.setattr(subset_sums, "STORED", 3 * 2**4)  # one set at a time
        monkeypatch.setattr(subset_sums, "_plan", lambda *_: plan._replace(launch=small))
        got = subset_sums.log_sum(scores.float(), odds.float(), (rows, columns), True)
        close(got[0], value)
        close(got[1], pairs)

    def test_extreme_scores(self) -> None:
        generator = torch.Generator().manual_seed(0)
        scores = torch.randint(-1, 2, (3, 3, 4), generator=generator).float() * 1e4
        odds = torch.randint(-1, 2, (3, 4), generator=generator).float() * 1e4
        all_valid = torch.ones(3, 3) > 0, torch.ones(3, 4) > 0
        value, pairs, used = subset_sums.log_sum(scores, odds, all_valid, record=True)
        exact = (scores + odds.unsqueeze(1)).double()
        right, right_pairs = permanent.log_permanent(exact, *all_valid, True)
        close(value, right)
        close(pairs, right_pairs, atol=1e-2)
        assert used.isfinite().all()

    def test_what_32_bits_cannot_count_is_left_to_pytorch(
        self, monkeypatch: pytest.MonkeyPatch, fused: None
    ) -> None:
        assert subset_sums.fits(18, 2**13 + 16)
        assert not subset_sums.fits(18, 2**13 + 17)
        scores, odds, rows, columns = problem(2, 3, 5)
        monkeypatch.setattr(subset_sums, "fits", lambda M, N: (M, N) != (3, 5))
        monkeypatch.setattr(subset_sums, "log_sum", None)
        args = (scores.float(), odds.float(), None, rows, columns, "exact", True)
        value, _ = permanent.log_permanent(scores + odds.unsqueeze(1), rows, columns, True)
        close(matchings._sum_matchings(*args)[0], value)

    def test_what_is_impossible_stays_finite(self) -> None:
        found = subset_sums.log_sum(torch.randn(1, 3, 2), None, None, record=True)
        assert all(t.isfinite().all() for t in found)


class TestBethe:
    @pytest.mark.parametrize(("M", "N"), [(1, 1), (2, 5), (4, 3)])
    @pytest.mark.usefixtures("numbers")
    def test_value_and_beliefs(self, M: int, N: int) -> None:
        self.judge(M, N, None)

    @pytest.mark.parametrize(("M", "N", "exclusivity"), [(3, 2, 0.3), (2, 4, 0.0)])
    def test_outputs_that_are_shared(self, M: int, N: int, exclusivity: float) -> None:
        self.judge(M, N, exclusivity)

    def judge(self, M: int, N: int, exclusivity: float | None) -> None:
        scores, odds, rows, columns = problem(2, M, N)
        shared = None if exclusivity is None else scores.new_full((2,), exclusivity)
        value, pairs, used, settled, _ = bethe.bethe(scores, odds, shared, rows, columns)
        shared = None if shared is None else shared.float()
        got = kernels.bethe(scores.float(), odds.float(), shared, (rows, columns))
        assert settled.all()
        assert got[3].all()
        close(got[0], value, rtol=1e-4)
        close(got[1], pairs, atol=1e-4)
        close(got[2], used, atol=1e-4)

    @pytest.mark.usefixtures("small_tiles", "numbers")
    def test_messages_are_those_of_pytorch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.judge_rounds(monkeypatch, 3, 4)

    def test_more_outputs_than_answer_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.judge_rounds(monkeypatch, 2, plain_bethe.AT_ONCE + 4)

    def judge_rounds(self, monkeypatch: pytest.MonkeyPatch, M: int, N: int) -> None:
        """Round by round, and what has not settled by then is said."""
        scores, odds, rows, columns = problem(2, M, N)
        for user in (kernels, plain_bethe):
            monkeypatch.setattr(user, "MOST_ROUNDS", 2)
        got = kernels.bethe(scores.float(), odds.float(), None, (rows, columns))
        g = bethe.graph(scores, odds, None, rows, columns)
        one = bethe._answer(g, bethe._ask(g, torch.zeros_like(g.scores)))
        two = bethe._answer(g, bethe._ask(g, one))
        close(got[4], two, atol=1e-4)
        close(got[1], bethe._beliefs(g, two)[0])
        assert not got[3].any()

    @pytest.mark.usefixtures("numbers")
    def test_extreme_scores(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One way to match wins against the largest scores, by way of very small ones."""
        for user in (kernels, plain_bethe):  # which gives up then, and leaves it to logarithms
            monkeypatch.setattr(user, "MOST_ROUNDS", 11)
        scores = torch.tensor([[[0.0, -1000.0], [-1000.0, -3000.0]]])
        value, pairs, *_ = kernels.bethe(scores, None, None, None)
        close(value, torch.tensor([-2000.0]).double())
        close(pairs[0], torch.eye(2).flip(0).double())

    @pytest.mark.usefixtures("numbers")
    def test_odds_may_be_large_and_all_alike(self) -> None:
        scores, odds = torch.randn(2, 1, 3), torch.tensor([[250.0] * 3, [-250.0] * 3])
        value, *_ = kernels.bethe(scores, odds, None, None)
        close(value, (scores[:, 0] + odds).logsumexp(1).double())

    @pytest.mark.filterwarnings("ignore:(All-NaN slice|invalid value) encountered")  # interpreted
    @pytest.mark.usefixtures("numbers")
    @pytest.mark.parametrize("number", [math.nan, math.inf])
    @pytest.mark.parametrize("what", ["score", "odds", "shared score", "shared odds", "share"])
    def test_what_is_no_number_is_not_hidden(self, what: str, number: float) -> None:
        generator = torch.Generator().manual_seed(0)
        scores = torch.randn(3, 4, 6, generator=generator)
        odds = torch.randn(3, 6, generator=generator)
        shared = torch.full((3,), 0.7) if "share" in what else None
        value, pairs, *_ = kernels.bethe(scores, odds, shared, None)
        if what == "share":
            shared[1] = math.nan
        else:
            (odds if "odds" in what else scores[:, 2])[1, 3] = number
        got, got_pairs, _, settled, _ = kernels.bethe(scores, odds, shared, None)
        assert not got[1].isfinite()
        assert settled.tolist() == [True, False, True]
        for now, before in ((got, value), (got_pairs, pairs)):
            assert torch.equal(now[::2], before[::2])

    def test_scores_of_many_bits_settle_in_plain_numbers(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of more than float32 has powers of 2: by way of totals, for nothing is left to others."""
        scores = 300 * torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(0))
        value, pairs, _, settled, _ = bethe.bethe(
            scores.double(), torch.zeros(3, 8).double(), None, *(torch.ones(3, 8) > 0,) * 2
        )
        got, got_pairs, quiet, _, left = plain_bethe.plain_bethe(scores, None, None)
        assert settled.all()
        assert quiet.all()
        assert not left.any()
        close(got, value)
        close(got_pairs, pairs, atol=1e-4)

    @pytest.mark.parametrize(
        ("scores", "odds", "is_left"),
        [
            # A total rises further than another falls: all terms of a target are lost for a while.
            ([[3200.0, 0.0]], [-800.0, 800.0], False),
            ([[7705.0, -1320, 794], [3128, 4156, -2898]], [-2196.0, -1648.0, 216.0], False),
            # Too many rounds from the end.
            ([[1.0, 0.5, -0.5, 0.0], [-1.0, 0.0, 0.3, 0.2]], [-1e4] * 4, True),
            ([[5000.0, 0.0, 0.0], [5000.0, 0.0, 0.0]], [0.0] * 3, True),
            # Rounding keeps it in motion.
            ([[3000.0, 1.0, 0.0], [3000.0, 0.0, 0.5]], [0.0] * 3, True),
        ],
    )
    def test_what_is_held_back_has_not_settled(
        self, scores: list[list[float]], odds: list[float], is_left: bool
    ) -> None:
        """It may seem quiet. In the end it is left to logarithms, and what stands beside it not."""
        far, prices = torch.tensor([scores]), torch.tensor([odds])
        near = torch.randn(far.shape, generator=torch.Generator().manual_seed(0))
        scores_, odds_ = torch.cat([far, near]), torch.cat([prices, 0 * prices])
        valid = [torch.ones(2, size) > 0 for size in far.shape[1:]]
        value, pairs, used, settled, _ = bethe.bethe(scores_.double(), odds_.double(), None, *valid)
        *_, quiet, _, left = plain_bethe.plain_bethe(scores_, odds_, None)
        assert left.tolist() == [is_left, False]
        assert quiet.tolist() == [not is_left, True]
        got = kernels.bethe(scores_, odds_, None, None)
        assert settled.all()
        assert got[3].all()
        close(got[0], value)
        close(got[1], pairs, atol=2e-3)
        close(got[2], used, atol=2e-3)

    @pytest.mark.parametrize("far", [1.0, 5.0])
    def test_who_has_most_of_a_line(self, far: float) -> None:
        """Beside two that share theirs evenly; the value leaves none of them out."""
        scores = torch.full((1, 3, 4), -far)
        scores[:, :, :2] = 0
        scores[:, 2, 3] = far
        right, *_ = bethe.bethe(
            scores.double(),
            torch.zeros(1, 4).double(),
            None,
            *(torch.ones(1, n) > 0 for n in (3, 4)),
        )
        got, *_ = plain_bethe.plain_bethe(scores, None, None)
        close(got, right, rtol=1e-6, atol=0)

    def test_in_several_chunks(self) -> None:
        scores, odds, rows, columns = problem(1, 2, 70)
        value, pairs, used, settled, _ = bethe.bethe(scores, odds, None, rows, columns)
        got = kernels.bethe(scores.float(), odds.float(), None, (rows, columns))
        assert settled.all()
        assert got[3].all()
        close(got[0], value)
        close(got[1], pairs, atol=1e-4)
        close(got[2], used, atol=1e-4)

    def test_nothing_but_infinity_stays_where_it_is(self) -> None:
        """Of other sets nothing changes; a set with too many targets is not asked."""
        scores = torch.randn(3, 2, 3, generator=torch.Generator().manual_seed(0))
        alone, *_ = kernels.bethe(scores, None, None, None)
        scores[1, 1] = -math.inf
        value, pairs, *_ = kernels.bethe(scores, None, None, None)
        assert value[1] == -math.inf
        assert value[[0, 2]].equal(alone[[0, 2]])
        assert (pairs[1, 1] == 0).all()
        odds = torch.tensor([[1e4, -1e4]])
        value, pairs, _, settled, _ = kernels.bethe(torch.randn(1, 3, 2), odds, None, None)
        assert settled.all()
        assert (pairs == 0).all()

    def test_a_device_is_given_no_more_than_it_has_room_for(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Programs that wait for each other run at the same time, and scratch is theirs."""
        device, plan = torch.device("cuda"), plain_bethe.grid
        monkeypatch.setattr(plain_bethe, "sm_count", lambda device: 132)
        sizes = [
            plan(*shape, device)[:2] for shape in ((64, 300, 300), (1, 20, 300), (1, 300, 300))
        ]
        assert sizes == [(11, 36), (2, 1), (16, 1)]
        for found in (plan(64, 300, 300, device), plan(100_000, 9, 9, device)):
            for width in (16, found.elements, 5 * found.elements):
                pieces = plain_bethe.numbers(300, found, width)
                assert [size % 16 for size in pieces] == [0, 0]  # which compilers are told of
        assert plan(100_000, 9, 9, device)[:2] == (1, 132 * plain_bethe.MOST_PER_SM)
        monkeypatch.setattr(plain_bethe, "sm_count", lambda device: 6)
        assert plan(64, 300, 300, device)[:2] == (6, 3)


@triton.jit
def _lost(SHARES, FOUND, E: tl.constexpr):
    taken, top = tl.zeros([1], tl.float32), tl.zeros([1], tl.float32)
    others = top
    for e in tl.static_range(E):
        p = tl.load(SHARES + e + tl.arange(0, 1))
        taken = plain_messages._any_of(taken, p)
        top, others = plain_messages._join(top, others, p, 0.0)
    beside = plain_messages._log_beside(top, others, 1.0)
    tl.store(FOUND + tl.arange(0, 1), plain_messages._log_of_none(taken) + beside)


@pytest.mark.parametrize(
    "shares",
    [
        [0.5, 0.5],
        [0.5 + 2**-24, 0.5 + 2**-24],  # as rounding has it
        [0.6249, 0.3751],
        [0.6251, 0.3749],
        [1 - 1e-6, 6e-7, 4e-7],
        [0.3, 1e-9, 2e-9, 0.2, 0.1, 0.4],
        [3e-8] * 8,  # each of which 1 - p would round away
    ],
)
def test_what_all_pairs_of_a_line_lose(shares: list[float]) -> None:
    """The sum of the logarithms of ``1 - p``; of most of a line by what the others have."""
    p, found = torch.tensor(shares), torch.zeros(1)
    _lost[(1,)](p, found, len(shares))
    exact = p.double()
    rests = 1 - exact
    if exact[0] > 0.625:
        rests[0] = exact[1:].sum()
    close(found, rests.log2().sum().unsqueeze(0), rtol=1e-6, atol=0)


@triton.jit
def _put_together(OFFERED, STATE, ODDS, N: tl.constexpr, PROGRAMS: tl.constexpr):
    plain_messages.answer(OFFERED, STATE, ODDS, ODDS, N, 0.0, True, False, False, PROGRAMS, N, N)


def test_outputs_answer_the_targets_of_all_programs() -> None:
    """What the largest is among them, and all others together, are told apart by no difference."""
    asked = torch.rand(3, 5, 4, generator=torch.Generator().manual_seed(0))  # programs, targets
    asked[1, 2, 0] = 1e12  # beside which a sum of all would leave nothing of the others
    offered = torch.stack([asked.amax(1), asked.sum(1) - asked.amax(1)], dim=1)
    rest = asked.double().clone()
    rest[1, 2, 0] = 0
    offered[1, 1, 0] = rest[1, :, 0].sum()
    state = torch.zeros(4, 4)
    _put_together[(1,)](offered, state, torch.zeros(4), 4, 3)
    everything = torch.cat([asked.flatten(0, 1).double(), torch.ones(1, 4)])  # and nobody
    total, largest = everything.sum(0), everything.amax(0)
    others = torch.where(torch.arange(4) == 0, rest.sum((0, 1)) + 1, total - largest)
    close(state[0], largest)
    close(state[1] / state[2], others)
    close(state[2], 1 / total)
    close(state[3], -total.log2())


class TestTransport:
    @pytest.mark.parametrize("missing", [None, 0.5])
    def test_value_and_plan(self, missing: float | None) -> None:
        M, N, generator = 2, 5, torch.Generator().manual_seed(0)
        costs = 4 * torch.rand(2, M, N, generator=generator, dtype=torch.float64)
        a, b = (torch.rand(2, k, generator=generator, dtype=torch.float64) for k in (M, N))
        a[0, 0] = b[1, 1] = 0.0
        a, b = a / a.sum(1, keepdim=True), b / b.sum(1, keepdim=True)
        value, plan, settled, _ = sinkhorn.transport(costs, a, b, 0.8, missing)
        got = transport.transport(costs.float(), a.float(), b.float(), 0.8, missing)
        assert settled.all()
        assert got[2].all()
        close(got[0], value)
        close(got[1], plan)
        assert (got[1][0, 0] == 0).all()

    @pytest.mark.usefixtures("small_tiles")
    def test_potentials_are_those_of_pytorch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(transport, "MOST_ROUNDS", 2)
        costs = torch.rand(1, 3, 3, generator=torch.Generator().manual_seed(0)).double()
        a, b = (torch.tensor([share]).double() for share in ([0.1, 0.6, 0.3], [0.5, 0.3, 0.2]))
        got = transport.transport(costs.float(), a.float(), b.float(), 0.3, 2.0)
        masses = sinkhorn.Masses(a, b, 0.3, 2.0)
        two = masses.round(costs, masses.round(costs, torch.zeros_like(b)))
        close(got[3], two)
        close(got[1], masses.plan(costs, two))
        assert not got[2].any()


def test_numbers_by_the_tilt_of_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets with some, all and none of what is counted, and one without anything valid."""
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(4, 5, generator=generator, dtype=torch.float64)
    valid = torch.tensor([[True, False, True, True, True]] * 3 + [[False] * 5])
    count = torch.tensor([2, 4, 0, 0])
    right = counting.log_count_probability(logits, valid, count)
    for block in (2, 1024):  # in several steps, and in one
        monkeypatch.setattr(tilting, "MAX_BLOCK", block)
        tilt = tilting.tilt(logits.float(), valid, count, 30.0, 24)
        expected = (torch.where(valid, (logits + tilt).sigmoid(), 0.0)).sum(1)
        close(expected, count.double(), atol=1e-4)
    monkeypatch.setattr(counting, "fused", lambda module, logits: tilting)
    close(counting.log_count_probability(logits.float(), valid, count), right)


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize(
    ("loss", "options"),
    [
        (sw.set_likelihood, {"method": "exact"}),
        (sw.set_likelihood, {"method": "bethe"}),
        (sw.transport_cross_entropy, {"temperature": 3.0}),
    ],
)
def test_losses_and_their_gradients(loss: Any, options: dict[str, Any]) -> None:
    """Masked, with presence, differentiated twice; float64 is served by PyTorch code."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    target = torch.rand(2, 3, 4, generator=generator, dtype=torch.float64).round()
    presence = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    found = []
    for dtype in (torch.float64, torch.float32):
        leaves = [t.to(dtype).requires_grad_() for t in (logits, presence)]
        value = loss(
            leaves[0],
            target.to(dtype),
            presence=leaves[1],
            target_valid=torch.tensor([2, 1]),
            reduction="none",
            **options,
        )
        grads = torch.autograd.grad(value.sum(), leaves, create_graph=True)
        (second,) = torch.autograd.grad(grads[0].square().sum(), leaves[0])
        found.append((value, *grads, second))
    for right, got in zip(*found, strict=True):
        close(got, right, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("fused")
def test_operator_gives_what_it_promises() -> None:
    scores, odds, rows, columns = problem(2, 2, 3)
    args = (scores.float(), odds.float(), None, rows, columns)
    for method, record in (("exact", True), ("exact", False), ("bethe", True)):
        torch.library.opcheck(
            matchings.sum_matchings, (*args, method, record), test_utils=("test_faketensor",)
        )


@pytest.mark.parametrize(("method", "reduction"), [("exact", "mean"), ("bethe", "none")])
def test_shortcut_is_the_loss(method: Any, reduction: Any) -> None:
    """From logits to gradient in few launches, and through the general operator to the second."""
    from setwise.kernels.bernoulli_likelihood import BernoulliLikelihood

    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    target = torch.rand(2, 2, 4, generator=generator, dtype=torch.float64)

    def loss(logits: Tensor, target: Tensor) -> Tensor:
        if logits.dtype == torch.float32:
            return BernoulliLikelihood.apply(target, logits, method, reduction, True)
        return sw.set_likelihood(logits, target, method=method, reduction=reduction)

    found = []
    for dtype in (torch.float64, torch.float32):
        z, x = (t.to(dtype).requires_grad_() for t in (logits, target))
        value = loss(z, x.detach())
        (first,) = torch.autograd.grad(value.sum(), z)
        grads = torch.autograd.grad(loss(z, x).sum(), (z, x), create_graph=True)
        (second,) = torch.autograd.grad(grads[0].square().sum(), z)
        found.append((value, first, *grads, second))
    for right, got in zip(*found, strict=True):
        close(got, right, rtol=1e-4, atol=1e-4)
