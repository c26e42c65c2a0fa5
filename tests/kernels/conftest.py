"""What tests of several kernels set, and set back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from engine_cases import slow
from setwise.kernels import bernoulli


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
