"""Losses of a matching on a CPU, in few steps and with their gradient, beside the general way."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import setwise as sw
from fused_cases import ELEMENTS
from setwise.kernels import arrays, dense_losses, dense_matchings, few_steps
from setwise.losses import matched

LOSSES = {
    "assignment": sw.assignment_cross_entropy,
    "stable matching": sw.stable_matching_cross_entropy,
}
B, M, N = 6, 5, 7


def call(features: sw.Features, dtype: torch.dtype) -> dict[str, Any]:
    """Arguments of a call with all there is; a set has no targets, and one too few outputs."""
    generator = torch.Generator().manual_seed(0)
    return {
        "input": torch.randn(B, N, features.width, generator=generator).to(dtype).requires_grad_(),
        "target": features.random_targets((B, M), generator).to(dtype),
        "features": features,
        "presence": torch.randn(B, N, generator=generator).to(dtype).requires_grad_(),
        "presence_weight": 0.7,
        "weight": torch.rand(B, M, generator=generator).to(dtype),
        "input_valid": torch.tensor([N, N - 1, N, 1, N, N]),
        "target_valid": torch.tensor([M, M, 0, 3, 2, M]),
        "reduction": "none",
    }


def step(loss: Any, given: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Values, and the gradient to the outputs of those that are finite."""
    value = loss(**given)
    counts = torch.arange(1, 1 + value.numel()).to(value).view(value.shape)
    total = torch.where(value.isfinite(), counts * value, 0.0).sum()
    return value.detach(), torch.autograd.grad(total, given["input"])[0]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The matchings of losses that were computed in few steps."""
    found: list[Tensor] = []
    computed = few_steps.matched_loss

    def listened(logits: Tensor, elements: Any, matching: Tensor, *rest: Any) -> Tensor:
        found.append(matching)
        return computed(logits, elements, matching, *rest)

    monkeypatch.setattr(few_steps, "matched_loss", listened)
    return found


@pytest.mark.parametrize("without", [(), ("presence",), ("weight", "input_valid", "target_valid")])
@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("name", LOSSES)
def test_it_is_what_the_general_way_gives(
    name: str,
    element: str,
    without: tuple[str, ...],
    served: list[Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = call(ELEMENTS[element], torch.float32)
    given = {key: value for key, value in given.items() if key not in without}
    value, gradient = step(LOSSES[name], given)
    assert len(served) == 1
    monkeypatch.setattr(matched, "on_host", lambda sets: None)
    for module in (sw.losses.assignment, sw.losses.stable_matching):
        monkeypatch.setattr(module, "on_host", lambda sets: None)
    double = {
        k: v.double() if torch.is_tensor(v) and v.is_floating_point() else v
        for k, v in given.items()
    }
    double["input"] = given["input"].detach().double().requires_grad_()
    right, right_gradient = step(LOSSES[name], double)
    assert len(served) == 1
    torch.testing.assert_close(value.double(), right, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient.double(), right_gradient, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_large_arrays(reduction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if they were: PyTorch computes, and rows are added up one by one."""
    given = call(ELEMENTS["boxes"], torch.float32)
    del given["input_valid"]  # every set can be produced
    given["reduction"] = reduction
    few = step(sw.assignment_cross_entropy, given)
    monkeypatch.setattr(arrays, "MANY", 1)
    monkeypatch.setattr(arrays, "FEW_PRODUCTS", 0)
    for mine, expected in zip(step(sw.assignment_cross_entropy, given), few, strict=True):
        torch.testing.assert_close(mine, expected)


def test_the_matching_is_the_cheapest(served: list[Tensor]) -> None:
    """By SciPy, of costs that are computed pair by pair."""
    for element, features in ELEMENTS.items():
        given = call(features, torch.float64)
        x, z = given["target"], given["input"].detach()
        value = sw.assignment_cross_entropy(z, x, features, reduction="none")
        pairs = features.cost(z[:, None].expand(B, M, N, -1), x[:, :, None].expand(B, M, N, -1))
        for loss, costs in zip(value.tolist(), pairs.numpy(), strict=True):
            right = costs[linear_sum_assignment(costs)].sum()
            assert loss == pytest.approx(right, rel=1e-9), element
    assert len(served) == len(ELEMENTS)


def test_what_is_no_pair_may_cost_what_it_likes(served: list[Tensor]) -> None:
    """The target that is not valid is no pair with the first output, whose cost overflows."""
    z = torch.zeros(1, 2, 3)
    z[0, 0] = 3e38
    loss = sw.assignment_cross_entropy(z, torch.zeros(1, 2, 3), target_valid=torch.tensor([1]))
    assert loss.item() == pytest.approx(3 * math.log(2))
    assert served


def test_derivatives(served: list[Tensor]) -> None:
    given = call(ELEMENTS["boxes"], torch.float64)
    given = {k: v[:2] if torch.is_tensor(v) else v for k, v in given.items() if k != "input_valid"}
    given["input"], given["presence"] = (
        given[k].detach().requires_grad_() for k in ("input", "presence")
    )

    def of(logits: Tensor, presence: Tensor) -> Tensor:
        return sw.assignment_cross_entropy(**(given | {"input": logits, "presence": presence}))

    assert gradcheck(of, (given["input"], given["presence"]))
    assert gradgradcheck(of, (given["input"], given["presence"]))
    assert served


def test_a_gradient_to_targets_takes_the_general_way(served: list[Tensor]) -> None:
    features = ELEMENTS["boxes"]
    given = call(features, torch.float64)
    target = given["target"].requires_grad_()
    sw.assignment_cross_entropy(given["input"], target, features).backward()
    assert target.grad is not None
    assert not served


@pytest.mark.parametrize(("S", "T", "C"), [(700, 9, 9), (2, 90, 100), (3, 4, 5)])
def test_the_best_of_rows_and_columns(S: int, T: int, C: int) -> None:
    """The first of those that are equally good, in whichever way they are looked for."""
    scores = np.random.default_rng(0).integers(0, 3, (S, T, C)).astype(np.float32)
    where, largest = arrays.best_rows(scores)
    assert (where == scores.argmax(axis=1)).all()
    assert (largest == scores.max(axis=1)).all()
    where, largest = arrays.best_columns(scores)
    assert (where == scores.argmax(axis=2)).all()
    assert (largest == scores.max(axis=2)).all()


def test_costs_of_all_pairs_are_those_of_each() -> None:
    for features, dtype in itertools.product(ELEMENTS.values(), (torch.float32, torch.float64)):
        given = call(features, dtype)
        x, z = given["target"], given["input"].detach()
        assert features.kernel is not None
        elements = dense_losses.prepared(features.kernel, "mean", x, z, 1.0)
        assert elements is not None
        right = features.cost(z[:, None].expand(B, M, N, -1), x[:, :, None].expand(B, M, N, -1))
        torch.testing.assert_close(
            dense_matchings.all_costs(elements, None), right, rtol=1e-4, atol=1e-4
        )
