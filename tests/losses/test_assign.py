"""The solver at its public door."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import setwise as sw


def test_leading_dimensions_masks_and_lengths() -> None:
    cost = torch.randn(2, 3, 4, 5)
    rows, columns = torch.tensor([[4, 2, 0], [1, 3, 4]]), torch.rand(2, 3, 5) < 0.8
    found = sw.assign(cost, row_valid=rows, column_valid=columns)
    assert found.shape == (2, 3, 4)
    for a in range(2):
        for b in range(3):
            M = int(rows[a, b])
            alone = sw.assign(cost[a, b, :M], column_valid=columns[a, b])
            assert found[a, b].tolist() == alone.tolist() + [-1] * (4 - M)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0), (0, 0)])
def test_nothing_to_match(shape: tuple[int, ...]) -> None:
    found = sw.assign(torch.zeros(shape))
    assert found.shape == shape[:-1]
    assert found.eq(-1).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_any_real_type(dtype: torch.dtype) -> None:
    cost = torch.tensor([[4, 1, 3], [2, 0, 5], [3, 2, 2]], dtype=dtype)
    assert sw.assign(cost).tolist() == [1, 0, 2]
    assert sw.assign(-cost).tolist() == [0, 2, 1]


def test_costs_keep_their_gradient_to_themselves() -> None:
    cost = torch.randn(3, 3, requires_grad=True)
    assert not sw.assign(cost).requires_grad


def test_forbidden_pairs_leave_as_few_rows_as_possible() -> None:
    """However much it costs: the cheapest pair would leave the second row without a column."""
    cost = torch.tensor([[0.0, 1e9, math.inf], [5.0, math.inf, math.inf], [math.inf] * 3])
    assert sw.assign(cost).tolist() == [1, 0, -1]


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a list": ({"cost": [[1.0]]}, TypeError, "cost: expected a torch.Tensor, got list"),
    "booleans": ({"cost": torch.ones(2, 2) > 0}, TypeError, "real numbers, got torch.bool"),
    "complex": ({"cost": torch.ones(2, 2) * 1j}, TypeError, "real numbers, got torch.complex64"),
    "a vector": ({"cost": torch.ones(2)}, ValueError, r"shape \[\*, rows, columns\], got \(2,\)"),
    "NaN": (
        {"cost": torch.full((2, 1, 1), math.nan)},
        ValueError,
        "cost: problem 0 of the batch has a cost of NaN or minus infinity",
    ),
    "too long": (
        {"cost": torch.ones(2, 3, 4), "row_valid": torch.tensor([3, 4])},
        ValueError,
        "row_valid: lengths must lie between 0 and 3",
    ),
    "a mask of the other side": (
        {"cost": torch.ones(2, 3, 4), "column_valid": torch.ones(2, 3) > 0},
        ValueError,
        r"column_valid: a boolean mask here must have shape \(2, 4\), got \(2, 3\)",
    ),
}


@pytest.mark.parametrize("call", BAD)
def test_bad_calls(call: str) -> None:
    arguments, kind, message = BAD[call]
    with pytest.raises(kind, match=message):
        sw.assign(**arguments)


def test_what_is_not_valid_may_hold_anything() -> None:
    cost = torch.tensor([[math.nan, -math.inf], [1.0, math.nan]])
    valid = {"row_valid": torch.tensor([False, True]), "column_valid": torch.tensor(1)}
    assert sw.assign(cost, **valid).tolist() == [-1, 0]
