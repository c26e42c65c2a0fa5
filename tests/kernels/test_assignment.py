"""Cheapest matchings by every engine, against SciPy; tests/gpu has the kernels compiled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import setwise as sw
from assignment_problems import KINDS, Problems, check, problems
from setwise.kernels import assignment, host_assignment

SMALL = [(1, 1), (4, 3), (3, 6), (12, 12)]
Solve = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]


@pytest.fixture(params=["lapx", "SciPy"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which of the two solves problems on the host."""
    if request.param == "lapx":
        pytest.importorskip("lap")
        assert host_assignment._lapx() is not None
    else:
        monkeypatch.setattr(host_assignment, "_lapx", lambda: None)
    name: str = request.param
    return name


@pytest.mark.usefixtures("library")
def test_two_thousand_problems_on_the_host() -> None:
    for given in problems(2_000):
        check(given, assignment.assign(*given[1:]))


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("masked", [True, False])
def test_threads_change_nothing(masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cost = torch.randn(7, 12, 20)
    rows = torch.rand(7, 12) < 0.6 if masked else None
    expected = assignment.assign(cost, rows, None)
    monkeypatch.setattr(host_assignment, "PAIRS_FOR_THREADS", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(assignment.assign(cost, rows, None), expected)


def test_what_a_thread_raises_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(host_assignment, "PAIRS_FOR_THREADS", 1)
    monkeypatch.setattr(host_assignment, "_lapx", lambda: None)
    monkeypatch.setattr("scipy.optimize.linear_sum_assignment", fail)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with pytest.raises(MemoryError):
        assignment.assign(torch.randn(3, 2, 2), None, None)


@pytest.mark.usefixtures("library")
def test_costs_of_any_size() -> None:
    """Some libraries take a million for infinity, and a millionth for zero."""
    cost = torch.rand(3, 9, 11, dtype=torch.float64)
    expected = assignment.assign(cost, None, None)
    for factor in (1e-300, 1e-9, 1e8, 1e12, 1e140, 1e300):
        assert torch.equal(assignment.assign(factor * cost, None, None), expected)


@pytest.mark.usefixtures("library")
def test_forbidden_pairs_beside_the_largest_costs() -> None:
    """To forbid a pair it has to cost more, which float32 cannot hold there."""
    cost = torch.tensor([[[1e38, torch.inf], [1e38, torch.inf]], [[3e38, -3e38], [torch.inf, 1.0]]])
    assert assignment.assign(cost, None, None).sort(dim=1).values.tolist() == [[-1, 0], [0, 1]]


def test_sums_that_overflow_are_left_to_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_assignment, "_lapx", lambda: pytest.fail)
    cost = torch.tensor([[[1e308, -1e308], [1e308, 1e307]]], dtype=torch.float64)
    assert assignment.assign(cost, None, None).tolist() == [[1, 0]]


def test_a_package_of_the_same_name_is_not_taken_for_lapx(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "lap.py").write_text("def lapjv(cost): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "lap", raising=False)
    assert host_assignment._lapx.__wrapped__() is None
    monkeypatch.delitem(sys.modules, "lap")


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
