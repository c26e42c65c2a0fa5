"""What tests of several kernels set, and set back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from engine_cases import slow
from setwise.kernels import bernoulli, leaves, trees


@pytest.fixture
def set_precision() -> Iterator[Callable[[str], None]]:
    before = torch.get_float32_matmul_precision()
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


@pytest.fixture(params=["in the forward pass", slow("in the backward pass")])
def gradient_is_computed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the logits of sets that are not small: large ones leave it to the backward pass."""
    if request.param == "in the backward pass":
        monkeypatch.setattr(bernoulli, "LIGHT_PRODUCTS", 0)


@pytest.fixture
def few_points_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "FEWEST_POINTS", 50)
    monkeypatch.setattr(leaves, "FEWEST", 8)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What trees were asked for, and whether blocks were left out."""
    found: list[str] = []
    nearest, visits = trees.argmax, leaves.Pairs.visits

    def argmax(*args: Tensor) -> Tensor:
        found.append("nearest")
        return nearest(*args)

    def watched(*args) -> Iterator[leaves.Visit] | None:
        result = visits(*args)
        found.append("all" if result is None else "some")
        return result

    monkeypatch.setattr(trees, "argmax", argmax)
    monkeypatch.setattr(leaves.Pairs, "visits", watched)
    return found


@pytest.fixture
def always_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEW", "LARGEST_SHARE"):
        monkeypatch.setattr(trees, name, 1.0)
