"""Tensors that are no plain arrays, and numbers that their type holds only nearly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw

Z, X = torch.zeros(2, 3, 4), torch.ones(2, 3, 4)
NESTED = {
    "strided": lambda t: torch.nested.nested_tensor(list(t)),
    "jagged": lambda t: torch.nested.nested_tensor(list(t), layout=torch.jagged),
}
SPARSE = {"coo": Tensor.to_sparse, "csr": lambda t: t.flatten(0, -2).to_sparse_csr()}
LIMITS = 1e-6, 1e6
LOSSES = [sw.set_cross_entropy, sw.set_average, sw.hausdorff, sw.assignment_cross_entropy]
LOSSES += [sw.ordered_cross_entropy, sw.metrics.set_success, sw.metrics.matched_error]

pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning"),
]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("make", [*NESTED.values(), *SPARSE.values()], ids=[*NESTED, *SPARSE])
def test_elements_are_arrays(loss: Callable[..., Any], make: Callable[[Tensor], Tensor]) -> None:
    said = (
        "got a nested one; use torch.nested.to_padded_tensor" if make(X).is_nested else "to_dense"
    )
    for name, call in (("input", (make(Z), X)), ("target", (Z, make(X)))):
        with pytest.raises(TypeError, match=rf"^{name}: expected a dense tensor, .*{said}"):
            loss(*call)


@pytest.mark.parametrize("name", ["weight", "input_valid", "target_valid", "temperature"])
def test_so_is_what_comes_with_them(name: str) -> None:
    given = torch.tensor(1.0) if name == "temperature" else torch.ones(2, 3)
    with pytest.raises(TypeError, match=rf"^{name}: expected .* use {name}\.to_dense\(\)$"):
        sw.set_cross_entropy(Z, X, **{name: given.to_sparse()})
    with pytest.raises(TypeError, match=r"^input_valid: .* use input_valid\.to_dense\(\)$"):
        sw.metrics.cardinality_error(torch.ones(2, 3).bool().to_sparse(), torch.ones(2, 3).bool())


@pytest.mark.parametrize(
    ("loss", "name", "shape"),
    [
        (sw.set_cross_entropy, "presence", (2, 3)),
        (sw.assignment_cross_entropy, "matching_cost", (2, 3, 3)),
        (sw.set_likelihood, "exclusivity", ()),
    ],
)
def test_so_are_options(loss: Callable[..., Any], name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(TypeError, match=rf"^{name}: expected .* use {name}\.to_dense\(\)$"):
        loss(Z, X, **{name: torch.ones(shape).to_sparse()})


def test_so_are_classes() -> None:
    classes = torch.ones(2, 3, 1).long().to_sparse()
    with pytest.raises(TypeError, match=r"^target: expected .* use target\.to_dense\(\)$"):
        sw.set_cross_entropy(Z, classes, sw.Features(sw.Categorical(4)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("limit", LIMITS)
def test_the_temperatures_at_the_limits(limit: float, dtype: torch.dtype) -> None:
    """In a tensor they are what its type makes of them."""
    given = torch.tensor(limit, dtype=dtype)
    if given.isinf():  # in float16, which ends at 65504
        given = torch.tensor(65504.0, dtype=dtype)
    loss = sw.set_cross_entropy(Z, X, temperature=given)
    exact = sw.set_cross_entropy(Z.double(), X.double(), temperature=given.double().clamp(*LIMITS))
    torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=1e-5)
    beyond = torch.tensor(limit * (0.5 if limit < 1 else 2), dtype=dtype)
    with pytest.raises(ValueError, match="temperature: must lie between 1e-6 and 1e6, got"):
        sw.set_cross_entropy(Z, X, temperature=beyond)
