"""Metrics of sets whose outputs say whether they exist."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import setwise as sw
from setwise import metrics

FUNCTIONS = [metrics.set_success, metrics.multiset_equality, metrics.matched_error]


@pytest.mark.parametrize("metric", FUNCTIONS, ids=lambda metric: metric.__name__)
def test_presence_is_a_mask_by_its_threshold(metric: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(0, 2, (50, 3, 2), generator=generator).float()
    logits = torch.cat([9 * target - 4, torch.randn(50, 2, 2, generator=generator)], dim=1)
    presence = torch.randn(50, 5, generator=generator) + torch.tensor([2.0, 2, 2, -1, -1])
    outputs = torch.rand(50, 5, generator=generator) < 0.9
    for threshold in (0.5, 0.2, 0.9):
        masked = metric(
            logits,
            target,
            input_valid=outputs & (presence.sigmoid() > threshold),
            reduction="none",
        )
        got = metric(
            logits,
            target,
            presence=presence,
            threshold=threshold,
            input_valid=outputs,
            reduction="none",
        )
        assert got.equal(masked)
        assert 0 < got.mean() < 1  # some are right, some are not: it is a test


def test_classes_take_it_too() -> None:
    target = torch.eye(3)
    logits, presence = torch.cat([9 * target - 4, -target]), torch.tensor([9.0, 9, 9, -9, -9, -9])
    for metric in (metrics.MultisetEquality(), metrics.SetSuccess()):
        metric.update(logits, target, presence=presence)
        assert metric.compute() == 1
    strict = metrics.MultisetEquality()
    strict.update(logits, target)
    assert strict.compute() == 0
    error = metrics.MatchedError()
    error.update(logits, target, presence=-presence, threshold=0.1)
    assert error.compute() > 0


def test_threshold_at_its_ends() -> None:
    presence = torch.tensor([-1e30, 0.0, 40.0, 1e30])
    assert metrics.present(presence, 0.0).all()
    assert not metrics.present(presence, 1.0).any()
    assert metrics.present(presence, 1 - 1e-12).tolist() == [False, False, True, True]


def test_expected_size_is_the_mean_over_all_outcomes() -> None:
    presence = torch.tensor([0.3, -1.2, 2.0], dtype=torch.float64)
    outcomes = torch.cartesian_prod(*[torch.tensor([0.0, 1.0]).double()] * 3)
    p = presence.sigmoid()
    chances = torch.where(outcomes == 1, p, 1 - p).prod(-1)
    torch.testing.assert_close(metrics.expected_size(presence), (chances * outcomes.sum(-1)).sum())
    first = torch.tensor([True, False, False])
    torch.testing.assert_close(metrics.expected_size(presence, first), p[0])


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: metrics.present(torch.tensor([True])), "presence"),
        (lambda: metrics.present(torch.tensor(1.0)), "presence"),
        (lambda: metrics.present(torch.zeros(2), 1.5), "threshold"),
        (lambda: metrics.present(torch.zeros(2), math.nan), "threshold"),
        (lambda: metrics.expected_size([0.0]), "presence"),
        (lambda: metrics.expected_size(torch.zeros(2), torch.ones(2)), "input_valid"),
        (lambda: metrics.expected_size(torch.zeros(2), torch.ones(3).bool()), "input_valid"),
        (
            lambda: sw.metrics.set_success(
                torch.zeros(2, 3), torch.zeros(2, 3), presence=torch.zeros(3)
            ),
            "presence",
        ),
    ],
)
def test_bad_calls_are_refused_by_name(call: Any, name: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{name}: "):
        call()
