"""Arrays of few and of many numbers, beside the same by plain NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from setwise.kernels import arrays, matmul_precision
from setwise.kernels.arrays import Array


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(torch, "get_num_threads", lambda: request.param)
    return int(request.param)


def numbers(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 1, 1), (70, 9, 40), (70, 90, 60), (3, 0, 4)])
def test_sums(shape: tuple[int, ...]) -> None:
    given = numbers(*shape)
    for axis in (-1, 1):
        right = given.astype(np.float64).sum(axis=axis)
        np.testing.assert_allclose(arrays.total(given, axis=axis), right, atol=1e-4)
        kept = arrays.total(given, axis=axis, keepdims=True)
        assert kept.shape == given.sum(axis=axis, keepdims=True).shape
    part = given[..., : shape[-1] // 2 + 1]  # its rows are apart
    np.testing.assert_allclose(arrays.total(part), part.sum(axis=-1), atol=1e-4)


# Up to 64 factors at once, and some parts of as many, with and without a remainder.
@pytest.mark.parametrize("width", [1, 15, 64, 65, 92, 127, 128, 328, 1000])
@pytest.mark.parametrize("rows", [3, 2000])
def test_products_of_many_factors(width: int, rows: int) -> None:
    factors = 1 / (1 + np.exp(-np.abs(numbers(1, rows, width))))
    factors[0, 0] = 0.5  # the smallest they may be
    right = np.log(factors.astype(np.float64)).sum(axis=-1)
    np.testing.assert_allclose(arrays.log_product(factors), right, rtol=2e-6)


@pytest.mark.parametrize("has_mkl", [True, False])
@pytest.mark.parametrize(
    ("B", "rows", "inner", "columns"),
    [(2, 3, 4, 5), (300, 9, 15, 9), (100, 5, 328, 5), (3, 70, 80, 90), (0, 3, 4, 5)],
)
@pytest.mark.parametrize("precision", ["highest", "medium"])
def test_matrices(
    B: int,
    rows: int,
    inner: int,
    columns: int,
    has_mkl: bool,
    precision: str,
    threads: int,
    set_precision: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In full precision, whatever PyTorch may do and whichever of the two multiplies."""
    monkeypatch.setattr(arrays, "HAS_MKL", has_mkl)
    set_precision(precision)
    left, right = numbers(B, rows, inner), numbers(B, columns, inner)
    for one, other in (
        (left, right.swapaxes(1, 2)),
        (left, np.ascontiguousarray(right.swapaxes(1, 2))),
        (numbers(B, inner, rows).swapaxes(1, 2), right.swapaxes(1, 2)),
    ):
        exact = np.matmul(one.astype(np.float64), other.astype(np.float64))
        np.testing.assert_allclose(arrays.matmul(one, other), exact, rtol=2e-6, atol=1e-4)


def test_pytorch_is_not_asked_for_products_that_it_rounds(
    set_precision: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if this processor multiplied in bfloat16, which few do; at other settings it is asked."""
    asked: list[str] = []

    def bmm(left: Tensor, right: Tensor) -> Tensor:
        asked.append(torch.get_float32_matmul_precision())
        return left @ right

    monkeypatch.setattr(torch, "bmm", bmm)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(matmul_precision, "_rounds", lambda allowed: allowed in ("bf16", "medium"))
    left, right = numbers(3, 70, 80), numbers(3, 80, 90)
    for level in ("highest", "high", "medium"):
        set_precision(level)
        assert matmul_precision.rounds_on_cpu() == (level == "medium")
        arrays.matmul(left, right)
    assert asked == ["highest", "high"]


@pytest.mark.parametrize("kinds", [3, 10**6])  # of numbers: many that are equal, and none
@pytest.mark.parametrize(("S", "T", "N"), [(2, 5, 4), (3, 20, 100), (2, 100, 120), (1, 300, 7)])
def test_the_first_of_the_largest(S: int, T: int, N: int, kinds: int, threads: int) -> None:
    scores = np.random.default_rng(0).integers(kinds, size=(S, T, N)).astype(np.float32)
    for found, axis in ((arrays.best_rows, 1), (arrays.best_columns, 2)):
        where, largest = found(scores)
        np.testing.assert_array_equal(where, scores.argmax(axis=axis))
        np.testing.assert_array_equal(largest, scores.max(axis=axis))
    scores[0, 2, 1] = np.nan
    where, largest = arrays.best_rows(scores)
    assert where[0, 1] == 2
    assert np.isnan(largest[0, 1])


@pytest.mark.parametrize("confident", [False, True])  # powers of e are then next to nothing
@pytest.mark.parametrize("width", [3, 15, 16, 92])
def test_the_way_back_through_a_softmax(width: int, confident: bool) -> None:
    given, pull = numbers(70, 9, width) * (300 if confident else 1), numbers(70, 9, width)
    logs, shares = arrays.log_softmax(given)
    leaf = torch.from_numpy(given).double().requires_grad_()
    right = leaf.log_softmax(dim=-1)
    np.testing.assert_allclose(logs, right.detach().numpy(), rtol=1e-5, atol=1e-5)
    right.backward(torch.from_numpy(pull).double())
    assert leaf.grad is not None
    found = arrays.through_log_softmax(pull.copy(), logs, shares)
    np.testing.assert_allclose(found, leaf.grad.numpy(), atol=1e-5)
