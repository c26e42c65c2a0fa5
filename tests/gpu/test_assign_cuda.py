"""Assignment on the device; tests/kernels/test_assignment.py interprets its kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

import setwise as sw
from assignment_problems import Problems, check, problems

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
LARGE = [(60, 100), (100, 300), (300, 300), (700, 130), (1000, 1000)]


@contextmanager
def no_waiting() -> Iterator[None]:
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def solve(given: Problems) -> Tensor:
    cost, *masks = (None if t is None else t.cuda() for t in given[1:])
    assert cost is not None
    with no_waiting():
        found = sw.assign(cost, row_valid=masks[0], column_valid=masks[1])
    return found.cpu()


def test_ten_thousand_problems() -> None:
    for given in problems(10_000):
        check(given, solve(given))


def test_larger_ones() -> None:
    for given in problems(1, LARGE):
        check(given, solve(given))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32])
def test_types(dtype: torch.dtype) -> None:
    cost = (100 * torch.randn(3, 20, 40)).to(dtype)
    check(Problems(str(dtype), cost, None, None), sw.assign(cost.cuda()).cpu())


@pytest.mark.parametrize("bad", [torch.nan, -torch.inf])
def test_costs_that_cannot_be_compared(bad: float) -> None:
    """Nothing of their problem is matched; others are as ever."""
    cost = torch.randn(5, 7, 9)
    expected = sw.assign(cost)
    cost[2, 3, 4] = bad
    cost[3, 6, 8] = bad
    columns = torch.ones(5, 9, dtype=torch.bool)
    columns[3, 8] = False
    found = sw.assign(cost.cuda(), column_valid=columns.cuda()).cpu()
    assert found[2].eq(-1).all()
    others = [0, 1, 4]
    assert torch.equal(found[others], expected[others])
    assert found[3].ge(0).all()


def test_numbers_that_overflow() -> None:
    """Sums of them are infinite: the result is a matching nevertheless."""
    cost = torch.finfo(torch.float64).max * torch.randn(4, 30, 30, dtype=torch.float64).sign()
    found = sw.assign(cost.cuda()).cpu()
    assert torch.equal(found.sort(-1).values, torch.arange(30).expand(4, -1))


def test_from_a_graph() -> None:
    """And captured, which waiting for the device would break."""
    given = [torch.randn(8, 40, 60) for _ in range(3)]
    cost = given[0].cuda()
    rows = torch.randint(0, 41, (8,), device="cuda")
    sw.assign(cost, row_valid=rows)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = sw.assign(cost, row_valid=rows)
    for fresh in given:
        cost.copy_(fresh)
        graph.replay()
        valid = torch.arange(40) < rows.cpu().unsqueeze(-1)
        check(Problems("replayed", fresh, valid, None), found.cpu())


def test_compiled_and_mapped() -> None:
    cost = torch.randn(4, 3, 12, 17, device="cuda")
    expected = sw.assign(cost)
    assert torch.equal(torch.compile(sw.assign, fullgraph=True)(cost), expected)
    assert torch.equal(torch.func.vmap(sw.assign)(cost), expected)


def test_losses_do_not_wait() -> None:
    outputs = torch.randn(4, 20, 6, device="cuda", requires_grad=True)
    target = torch.rand(4, 15, 6, device="cuda")
    lengths = torch.tensor([15, 0, 3, 9], device="cuda")
    sw.assignment_cross_entropy(outputs, target, target_valid=lengths).backward()  # compiles
    with no_waiting():
        loss = sw.assignment_cross_entropy(outputs, target, target_valid=lengths)
        loss.backward()
        found = sw.most_likely_matching(outputs, target, target_valid=lengths)
        sw.earth_movers(outputs[:, :15], target).backward()
    on_host = sw.most_likely_matching(outputs.cpu(), target.cpu(), target_valid=lengths.cpu())
    assert torch.equal(found.cpu(), on_host)
    torch.testing.assert_close(
        loss.cpu(),
        sw.assignment_cross_entropy(outputs.cpu(), target.cpu(), target_valid=lengths.cpu()),
    )


def test_bad_outputs_are_not_hidden() -> None:
    outputs = torch.randn(3, 5, 4, device="cuda")
    outputs[1, 2, 3] = torch.nan
    loss = sw.assignment_cross_entropy(
        outputs, torch.rand(3, 4, 4, device="cuda"), reduction="none"
    )
    assert loss.isfinite().tolist() == [True, False, True]
