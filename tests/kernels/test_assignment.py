"""Cheapest matchings by every engine, against SciPy; tests/gpu has the kernels compiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import setwise as sw
from assignment_problems import KINDS, Problems, check, problems
from setwise.kernels import assignment

SMALL = [(1, 1), (4, 3), (3, 6), (12, 12)]
Solve = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]


def test_two_thousand_problems_on_the_host() -> None:
    for given in problems(2_000):
        check(given, assignment.assign(*given[1:]))


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = torch.randn(7, 12, 20)
    rows = torch.rand(7, 12) < 0.6
    expected = assignment.assign(cost, rows, None)
    monkeypatch.setattr(assignment, "PAIRS_FOR_THREADS", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(assignment.assign(cost, rows, None), expected)


def test_what_a_thread_raises_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(assignment, "PAIRS_FOR_THREADS", 1)
    monkeypatch.setattr(assignment, "_cheapest", fail)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with pytest.raises(MemoryError):
        assignment.assign(torch.randn(3, 2, 2), None, None)


@pytest.fixture
def interpreted() -> Solve:
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("there the kernels are compiled")
    from setwise.kernels.triton import assignment as kernels

    solve: Solve = kernels.solve
    return solve


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # inf - inf, unused
@pytest.mark.parametrize("kind", KINDS)
def test_kernels(kind: str, interpreted: Solve) -> None:
    for given in problems(1, SMALL):
        if given.kind.startswith(kind):
            check(given, interpreted(*given[1:]))


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("bad", [torch.nan, -torch.inf])
def test_costs_that_cannot_be_compared(bad: float, interpreted: Solve) -> None:
    """Nothing of their problem is matched; what is not valid may hold anything."""
    cost = torch.tensor([[[1.0, 2.0], [3.0, bad]], [[1.0, bad], [3.0, bad]]])
    columns = torch.tensor([[True, True], [True, False]])
    for solve in (interpreted, assignment.assign):
        assert solve(cost, None, columns).tolist() == [[-1, -1], [0, -1]]


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
def test_numbers_that_overflow(interpreted: Solve) -> None:
    """Sums of them are infinite: the result is a matching nevertheless."""
    cost = torch.finfo(torch.float64).max * torch.randn(1, 6, 6, dtype=torch.float64).sign()
    assert interpreted(cost, None, None).sort().values.tolist() == [list(range(6))]


def test_one_that_is_not_the_cheapest_is_told() -> None:
    """The oracle itself."""
    given = Problems("two", torch.tensor([[[1.0, 2.0], [2.0, 1.0]]]), None, None)
    check(given, torch.tensor([[0, 1]]))
    for wrong in ([1, 0], [0, 0], [0, -1]):
        with pytest.raises(AssertionError):
            check(given, torch.tensor([wrong]))


def test_fake_tensors() -> None:
    """Which have no numbers: compilers and exporters run the library with them."""
    with FakeTensorMode():
        assert sw.assign(torch.empty(2, 3, 4)).shape == (2, 3)


def test_the_operator_says_the_truth_about_itself() -> None:
    cost, valid = torch.randn(2, 3, 4), torch.rand(2, 3) < 0.5
    torch.library.opcheck(assignment.operator, (cost, valid, None))


@pytest.mark.slow  # compiles; tests/losses/test_pytorch.py compiles the loss in the first tier
def test_compiled_and_mapped() -> None:
    cost = torch.randn(2, 3, 4, 6)
    expected = sw.assign(cost)
    assert torch.equal(
        torch.compile(sw.assign, backend="aot_eager", fullgraph=True)(cost), expected
    )
    assert torch.equal(torch.func.vmap(sw.assign)(cost), expected)
