"""Metrics side by side in a torchmetrics collection: each keeps its own count."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torchmetrics import MetricCollection

import setwise as sw
from setwise import metrics

POINT = sw.Features(sw.Gaussian(1))


def _right_then_wrong() -> list[tuple[Tensor, Tensor]]:
    """In the first batch all metrics agree; in the second a target is produced twice."""
    target = torch.eye(3)
    twice = torch.cat([target, target[:1]])
    return [(9 * target - 4, target), (9 * twice - 4, target)]


def test_metrics_that_agree_at_first_are_not_taken_for_one() -> None:
    alone = [metrics.SetSuccess(), metrics.MultisetEquality()]
    together = MetricCollection([metrics.SetSuccess(), metrics.MultisetEquality()])
    for batch in _right_then_wrong():
        together.update(*batch)
        for metric in alone:
            metric.update(*batch)
    expected = {type(metric).__name__: metric.compute() for metric in alone}
    assert expected == {"SetSuccess": 1.0, "MultisetEquality": 0.5}
    assert together.compute() == expected


@pytest.mark.parametrize(
    ("cls", "strict", "loose"),
    [
        (metrics.SetSuccess, {"tolerance": 0.1}, {"tolerance": 0.5}),
        (metrics.MultisetEquality, {"tolerance": 0.1}, {"tolerance": 0.5}),
        (metrics.AveragePrecision, {"within": 0.1}, {"within": 0.5}),
    ],
)
def test_one_metric_may_stand_there_with_two_settings(cls: Any, strict: Any, loose: Any) -> None:
    together = MetricCollection({"strict": cls(POINT, **strict), "loose": cls(POINT, **loose)})
    target, presence = torch.zeros(1, 1), torch.ones(1)
    for off in (0.0, 0.3):  # right by both, then by one
        together.update(target + off, target, presence=presence)
    found = together.compute()
    assert found["loose"] == 1.0
    assert found["strict"] == 0.5


def test_every_class_joins_with_masks_and_presence() -> None:
    generator = torch.Generator().manual_seed(0)
    together = MetricCollection(
        [
            metrics.SetSuccess(),
            metrics.MultisetEquality(),
            metrics.MatchedError(),
            metrics.CardinalityError(),
            metrics.AveragePrecision(),
        ]
    )
    batches = []
    for _ in range(3):
        target = torch.randint(0, 2, (20, 3, 2), generator=generator).float()
        logits = torch.cat([9 * target - 4, torch.randn(20, 2, 2, generator=generator)], dim=1)
        masks = {
            "presence": torch.randn(20, 5, generator=generator) + torch.tensor([3.0, 3, 3, -3, -3]),
            "input_valid": torch.rand(20, 5, generator=generator) < 0.95,
            "target_valid": torch.randint(1, 4, (20,), generator=generator),
        }
        together.update(logits, target, **masks)
        batches.append((logits, target, masks))
    logits, target = (torch.cat([batch[k] for batch in batches]) for k in (0, 1))
    masks = {name: torch.cat([batch[2][name] for batch in batches]) for name in batches[0][2]}
    outputs = masks["input_valid"] & (masks["presence"] > 0)
    real = torch.arange(3) < masks["target_valid"].unsqueeze(-1)
    expected = {
        "SetSuccess": metrics.set_success(logits, target, **masks),
        "MultisetEquality": metrics.multiset_equality(logits, target, **masks),
        "MatchedError": metrics.matched_error(logits, target, **masks),
        "CardinalityError": metrics.cardinality_error(outputs, real),
        "AveragePrecision": metrics.average_precision(logits, target, **masks),
    }
    found = together.compute()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
        assert 0 < value < 1 or name == "CardinalityError"
    together.reset()
    with pytest.warns(UserWarning, match="before the ``update``"):
        assert all(math.isnan(value) for value in together.compute().values())


def test_masks_are_told_once_to_the_cardinality_error() -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(TypeError, match="booleans alone"):
        metrics.CardinalityError().update(mask, mask, presence=torch.zeros(2, 3))
