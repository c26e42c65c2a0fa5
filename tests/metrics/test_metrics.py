"""The metrics against brute force, and their classes over batches and processes."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from hypothesis import given
from torch import Tensor

import setwise as sw
from setwise import metrics
from strategies import Call, calls


def _discrete(call: Call) -> tuple[list[list[list[float]]], list[list[list[float]]]]:
    """The valid elements of each set as plain lists: discretised outputs, and targets."""
    outputs = call.features.discretise(call.logits)
    assert call.input_valid is not None
    assert call.target_valid is not None
    return (
        [y[v].tolist() for y, v in zip(outputs, call.input_valid, strict=True)],
        [x[v].tolist() for x, v in zip(call.target, call.target_valid, strict=True)],
    )


def _run(metric: Any, call: Call, **options: Any) -> list[float]:
    values: Tensor = metric(
        call.logits,
        call.target,
        call.features,
        input_valid=call.input_valid,
        target_valid=call.target_valid,
        reduction="none",
        **options,
    )
    return values.tolist()


def _with_some_right(call: Call) -> Call:
    """Random outputs rarely match; make most of them copies of targets."""
    M = call.target.shape[1]
    for j in range(1, call.logits.shape[1]):
        source = call.target[:, j % M]
        call.logits[:, j] = torch.where(source == 1, 5.0, torch.where(source == 0, -5.0, source))
    return call


def _plain(element: list[float]) -> tuple[float, ...]:
    return tuple(element)


@given(call=calls(masked=True).map(_with_some_right))
def test_success_and_equality_are_what_they_say(call: Call) -> None:
    outputs, targets = _discrete(call)
    success = [all(x in y for x in xs) for xs, y in zip(targets, outputs, strict=True)]
    equal = [
        sorted(map(_plain, xs)) == sorted(map(_plain, y))
        for xs, y in zip(targets, outputs, strict=True)
    ]
    assert _run(metrics.set_success, call) == [float(s) for s in success]
    assert _run(metrics.multiset_equality, call) == [float(e) for e in equal]


def _element_error(features: sw.Features, x: list[float], y: list[float]) -> float:
    total, questions, start = 0.0, 0, 0
    for block in features.blocks:
        pairs = list(zip(x, y, strict=True))[start : start + block.width]
        start += block.width
        if isinstance(block, sw.Categorical):
            total, questions = total + float(any(a != b for a, b in pairs)), questions + 1
            continue
        scale = block.scale if isinstance(block, sw.Gaussian) else 1.0
        total += sum(abs(a - b) / scale for a, b in pairs)
        questions += block.width
    return total / questions


@given(call=calls(masked=True, max_size=4).map(_with_some_right))
def test_matched_error_by_trying_every_matching(call: Call) -> None:
    outputs, targets = _discrete(call)
    for got, ys, xs in zip(_run(metrics.matched_error, call), outputs, targets, strict=True):
        M, N = len(xs), len(ys)
        # More targets than outputs: the best choice of targets gets them, the others count 1 each.
        few, many = min(M, N), max(M, N)
        best = math.inf
        for order in itertools.permutations(range(many), few):
            pairs = (
                zip(range(few), order, strict=True)
                if M <= N
                else zip(order, range(few), strict=True)
            )
            cost = sum(_element_error(call.features, xs[i], ys[j]) for i, j in pairs)
            best = min(best, (cost + max(0, M - N)) / M)
        assert got == pytest.approx(best, abs=1e-9)


def test_matched_error_of_counts_and_angles_by_trying_every_matching() -> None:
    """Counts differ by whole numbers, angles by the shorter way round, a class is one question."""
    features = sw.Features(sw.Poisson(2), sw.Angle(1, concentration=4.0), sw.Categorical(3))
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20, 4, 6, generator=generator, dtype=torch.float64)
    target = features.random_targets((20, 4), generator).double()
    outputs = features.discretise(logits).tolist()

    def element_error(x: list[float], y: list[float]) -> float:
        way = abs(x[2] - y[2]) % (2 * math.pi)
        wrong = abs(x[0] - y[0]) + abs(x[1] - y[1]) + 2 * min(way, 2 * math.pi - way)
        return (wrong + (x[3:] != y[3:])) / 4

    found = metrics.matched_error(logits, target, features, reduction="none").tolist()
    for got, xs, ys in zip(found, target.tolist(), outputs, strict=True):
        best = min(
            sum(element_error(x, ys[j]) for x, j in zip(xs, order, strict=True)) / 4
            for order in itertools.permutations(range(4))
        )
        assert got == pytest.approx(best, abs=1e-9)


def test_counts_are_right_or_wrong_and_angles_go_round() -> None:
    features = sw.Features(sw.Poisson(1), sw.Angle(1))
    x = torch.tensor([[2.0, 3.1], [0.0, -0.5]])
    z = torch.tensor([[1e-5, 5.8], [2.2, -3.1]])  # the angles are 0.02 and 0.08 off
    z[:, 0] = z[:, 0].log()  # of rates
    for metric in (metrics.set_success, metrics.multiset_equality):
        assert metric(z, x, features, tolerance=0.1) == 1.0
        assert metric(z, x, features, tolerance=0.05) == 0.0
        wrong = z + torch.tensor([1.0, 0.0])  # a rate of 6 where 2 is asked for
        assert metric(wrong, x, features, tolerance=100.0) == 0.0


def test_continuous_features_may_be_a_tolerance_apart() -> None:
    points = sw.Features(sw.Gaussian(2), sw.Bernoulli(1))
    x = torch.tensor([[0.0, 1.0, 1.0], [2.0, 3.0, 0.0]])
    z = torch.tensor([[2.05, 2.95, -1.0], [0.0, 1.08, 1.0]])
    for metric in (metrics.set_success, metrics.multiset_equality):
        assert metric(z, x, points, tolerance=0.1) == 1.0
        assert metric(z, x, points, tolerance=0.06) == 0.0
        assert metric(z, x, points) == 0.0
        with pytest.raises(ValueError, match="tolerance"):
            metric(z, x, points, tolerance=-1.0)


def test_success_forgives_what_equality_does_not() -> None:
    """An output too many, or one output for two equal targets."""
    x = torch.eye(3)
    z = 9 * torch.cat([x, x[:1]]) - 4
    assert metrics.set_success(z, x) == 1.0
    assert metrics.multiset_equality(z, x) == 0.0
    twice = torch.cat([x, x[:1]])
    assert metrics.set_success(9 * x - 4, twice) == 1.0
    assert metrics.multiset_equality(9 * x - 4, twice) == 0.0


def test_empty_sets() -> None:
    nothing, something = torch.zeros(1, 0, 3), torch.ones(1, 2, 3)
    assert metrics.set_success(something, nothing) == 1.0
    assert metrics.set_success(nothing, something) == 0.0
    assert metrics.multiset_equality(nothing, nothing) == 1.0
    assert metrics.multiset_equality(something, nothing) == 0.0
    assert metrics.matched_error(something, nothing) == 0.0
    assert metrics.matched_error(nothing, something) == 1.0


def test_cardinality_error() -> None:
    outputs = torch.tensor([[True, True, False], [False, False, False]])
    targets = torch.tensor([[True, False], [True, True]])
    assert metrics.cardinality_error(outputs, targets, reduction="none").tolist() == [1.0, 2.0]
    assert metrics.cardinality_error(outputs, targets) == 1.5
    with pytest.raises(TypeError, match="input_valid"):
        metrics.cardinality_error(outputs.float(), targets)
    with pytest.raises(ValueError, match="target_valid"):
        metrics.cardinality_error(outputs, targets[:1])


@pytest.mark.parametrize(
    "metric", [metrics.set_success, metrics.multiset_equality, metrics.matched_error]
)
def test_bad_calls_name_the_argument(metric: Any) -> None:
    z, x = torch.zeros(2, 3, 4), torch.zeros(2, 3, 4)
    with pytest.raises(TypeError, match="target"):
        metric(z, x.long())
    with pytest.raises(ValueError, match="features"):
        metric(z, x, sw.Features(sw.Bernoulli(5)))
    with pytest.raises(ValueError, match="reduction"):
        metric(z, x, reduction="median")
    with pytest.raises(ValueError, match="input"):
        metric(z + torch.nan, x)


def _batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    batches = []
    for size in (3, 1, 4, 2):
        x = torch.randint(0, 2, (size, 3, 2), generator=generator).float()
        z = torch.randn(size, 3, 2, generator=generator) + 2 * x
        batches.append((z, x))
    return batches


CLASSES = {
    metrics.SetSuccess: metrics.set_success,
    metrics.MultisetEquality: metrics.multiset_equality,
    metrics.MatchedError: metrics.matched_error,
}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_classes_weigh_sets_not_batches(cls: Any) -> None:
    metric = cls()
    for z, x in _batches():
        metric.update(z, x)
    every_z, every_x = (torch.cat(parts) for parts in zip(*_batches(), strict=True))
    torch.testing.assert_close(metric.compute(), CLASSES[cls](every_z, every_x))


def test_class_of_the_cardinality_error() -> None:
    metric = metrics.CardinalityError()
    metric.update(torch.tensor([[True, True]]), torch.tensor([[True, False]]))
    metric.update(torch.tensor([[True, True]] * 2), torch.tensor([[False, False]] * 2))
    assert metric.compute() == pytest.approx(5 / 3)


def _worker(rank: int, store: str, results: Any) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    pooled, each = (metrics.AveragePrecision(definition=d) for d in ("dataset", "picture"))
    success = metrics.SetSuccess()
    for z, x in _batches()[rank::2]:
        success.update(z, x)
        for metric in (pooled, each):
            metric.update(z, x, presence=z.sum(-1))
    found = [metric.compute().item() for metric in (success, pooled, each)]
    results[rank] = found
    dist.destroy_process_group()


# Slow: three processes start. The tests above add up batches in one.
@pytest.mark.slow
def test_classes_reduce_over_processes(tmp_path: Path) -> None:
    """Two processes with sets of their own both arrive at the number for all sets."""
    with mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(_worker, args=(str(tmp_path / "store"), results), nprocs=2)
        every_z, every_x = (torch.cat(parts) for parts in zip(*_batches(), strict=True))
        ranked = {"presence": every_z.sum(-1)}
        expected = [
            metrics.set_success(every_z, every_x).item(),
            metrics.average_precision(every_z, every_x, **ranked).item(),
            metrics.average_precision(every_z, every_x, definition="picture", **ranked).item(),
        ]
        assert all(0 < number < 1 for number in expected)
        assert dict(results) == {0: pytest.approx(expected), 1: pytest.approx(expected)}


@pytest.mark.parametrize(
    "features", [sw.Features(sw.Bernoulli(3)), sw.Features(sw.Categorical(3))], ids=str
)
def test_soft_targets_are_no_multiset_of_outputs(features: sw.Features) -> None:
    """They equal no output, so neither way of counting may call them found."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 4, 3, generator=generator)
    for target in (torch.full((50, 4, 3), 1 / 3), torch.rand(50, 4, 3, generator=generator)):
        for tolerance in (0.0, 1e-9):
            found = sw.metrics.multiset_equality(logits, target, features, tolerance=tolerance)
            assert found == 0.0


def test_multisets_are_compared_alike_with_and_without_a_matching() -> None:
    """Without a tolerance elements are counted, with one they are matched."""
    generator = torch.Generator().manual_seed(1)
    target = torch.randint(0, 2, (500, 3, 1), generator=generator).float()
    logits = torch.randn(500, 3, 1, generator=generator)
    counted, matched = (
        sw.metrics.multiset_equality(logits, target, tolerance=tolerance, reduction="none")
        for tolerance in (0.0, 1e-9)
    )
    assert torch.equal(counted, matched)
    assert 0 < counted.mean() < 1
